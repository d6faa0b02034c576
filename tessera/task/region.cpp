// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/region.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <unordered_set>

#include "tessera/device/queue/recorder.h"
#include "tessera/executor/executor.h"
#include "tessera/task/trace_hooks.h"

namespace tessera {

class Region::Tasks final : public executor::Group {
 public:
  Tasks(executor::Executor& executor, executor::Group* parent, std::uint32_t window)
      : Group(executor, parent, window) {}
  /// Returns the independent errors and cancellations since the last call. There is one for each task that failed on
  /// its own.
  std::vector<executor::FailureRef> take_failures() noexcept {
    const std::lock_guard hold(lock_);
    seen_.clear();
    return std::exchange(failures_, {});
  }

 protected:
  void failed(const executor::Node& node) noexcept override {
    const executor::FailureRef& failure = node.failure();
    const bool by_itself = failure->cancelled && failure->through.empty();
    // cancel() was called deliberately, so it is not reported. Later tasks use the current contents of the arrays.
    if (by_itself && cancelled()) failure->origin->observed.store(true, std::memory_order_relaxed);
    if (by_itself || (failure->cancelled && cancelled())) return;
    try {
      const std::lock_guard hold(lock_);
      failures_.reserve(failures_.size() + 1);
      if (seen_.insert(failure->origin.get()).second) failures_.push_back(failure);
    } catch (const std::exception&) {  // out of memory; waiting for the task still throws the error
    }
  }

 private:
  std::mutex lock_;
  std::vector<executor::FailureRef> failures_;
  std::unordered_set<const executor::FailureOrigin*> seen_;  // failures that were already recorded
};

namespace {

std::uint32_t window_of(std::uint32_t asked, unsigned threads) {
  return asked != 0 ? asked : std::max<std::uint32_t>(4096, 64 * threads);
}

}  // namespace

Region::Region(const TaskOptions& options, std::uint32_t window)
    : options_(detail::options_with(options)), uncaught_(std::uncaught_exceptions()) {
  Recorder::refuse("a region of tasks");
  executor::Executor& executor = executor::Executor::instance();
  const executor::Node* const around = executor::Executor::current();
  tasks_ = std::make_unique<Tasks>(executor, around != nullptr ? &around->group() : nullptr,
                                   window_of(window, executor.threads()));
  if (detail::tracing::maybe_enabled()) [[unlikely]]
    trace_begin_ = detail::tracing::now();
}

Region::Region(Region&& other) noexcept
    : tasks_(std::move(other.tasks_)),
      ranks_(std::move(other.ranks_)),
      submissions_(other.submissions_),
      options_(std::move(other.options_)),
      uncaught_(std::uncaught_exceptions()),
      trace_begin_(other.trace_begin_) {}

Region::~Region() noexcept(false) {
  if (!tasks_) return;  // the region was moved from
  if (std::uncaught_exceptions() > uncaught_) {
    tasks_->cancel();
    if (ranks_) ranks_->leave();
    try {
      tasks_->wait();
    } catch (...) {}  // out of memory, or a cycle that was already reported: the destructor of tasks_ waits
    if (ranks_)       // tasks failed because messages ended; later tasks can use their tiles
      for (const executor::FailureRef& f : tasks_->take_failures())
        f->origin->observed.store(true, std::memory_order_relaxed);
    tasks_.reset();
    if (ranks_) ranks_->end_after_leave();
    return;
  }
  struct End {
    detail::Owner<Tasks>& tasks;
    ~End() { tasks.reset(); }
  } const end{tasks_};
  wait();
}

executor::Group& Region::group() {
  if (!tasks_) fail<ArgumentError>({.operation = "Region", .wrong = "its tasks were moved to another region"});
  return *tasks_;
}

detail::RankRegion& Region::ranks(std::shared_ptr<detail::RankMessages> messages) {
  if (ranks_) return *ranks_;
  if (executor::Executor::current() != nullptr)
    fail<ArgumentError>({.operation = "spawn",
                         .wrong = "a task uses a block array over ranks that was not passed to it, or creates tasks for "
                                  "other ranks",
                         .remedy = "Pass the array to the task, or use it outside of tasks"});
  ranks_ = std::make_unique<detail::RankRegion>(std::move(messages));
  return *ranks_;
}

void Region::wait() {
  group().wait();
  std::vector<executor::FailureRef> failures = tasks_->take_failures();
  std::ranges::stable_sort(failures, {}, [](const executor::FailureRef& f) { return f->origin->submission; });
  if (const detail::Owner<detail::RankRegion> ranks = std::move(ranks_))
    return ranks->end(failures, tasks_->cancelled());
  if (!failures.empty()) detail::throw_failures(failures);
}

void Region::cancel() noexcept {
  if (tasks_) tasks_->cancel();
}

std::int64_t IndexRange::chunk(int ranks) const {
  if (grain_ > 0) return grain_;
  // The number of threads may differ between ranks.
  const std::int64_t chunks =
      4 * std::int64_t{ranks != 0 ? static_cast<unsigned>(ranks) : executor::Executor::instance().threads()};
  return std::max<std::int64_t>((end_ - begin_ + chunks - 1) / chunks, 1);
}

Region::InheritedOptionsScope::InheritedOptionsScope(const Region& region) : before_(detail::inherited_options) {
  detail::inherited_options = region.options_.get();
}
Region::InheritedOptionsScope::~InheritedOptionsScope() { detail::inherited_options = before_; }

}  // namespace tessera
