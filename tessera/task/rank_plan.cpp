// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/rank_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/task/region.h"
#include "tessera/task/trace_hooks.h"

namespace tessera::detail {

namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

/// Message nodes run before other tasks, because other ranks wait for them.
std::shared_ptr<const InheritedOptions> message_options() {
  static const auto& all = *new std::shared_ptr<const InheritedOptions>([] {
    auto made = std::make_shared<InheritedOptions>();
    made->priority = executor::Node::most_priority;
    return made;
  }());
  return all;
}

/// In traces and summaries, all messages to or from a rank have the same name.
std::string name_in_traces(bool sends, int peer) {
  if (!tracing::maybe_enabled()) [[likely]]
    return {};
  return fmt::format("{} rank {}", sends ? "send to" : "receive from", peer);
}

/// Sends or receives the contents of a tile. Ends when the message has been transferred.
class MessageNode final : public TaskNode {
 public:
  MessageNode(executor::Group& group, std::shared_ptr<RankMessages> messages, bool sends, int peer, const TileKey& key,
              const Submission& by, const Array& array, Access mode)
      : TaskNode(group, Device{}, message_options(), {.name = name_in_traces(sends, peer), .where = by.where}, {}),
        messages_(std::move(messages)),
        sends_(sends),
        peer_(peer),
        key_(key),
        by_(by),
        access_(array, mode) {
    end_later();
    if (trace_id() != 0) [[unlikely]]
      tracing::is_message(*this, sends, peer, array.bytes());
  }
  ~MessageNode() override { forget_data(); }
  std::string name() const override {
    return fmt::format("{} tile {} {} rank {}", sends_ ? "send" : "receive", key_.tile, sends_ ? "to" : "from", peer_);
  }
  void attach_arguments() {
    declare_access(*this, access_);
    data()->order();
  }

 protected:
  std::byte* inline_storage() noexcept override { return inline_storage_.memory; }
  void call() override {
    const Array array = access_.array();
    bytes_ = array.bytes();
    if (sends_) {
      const auto view = std::make_shared<HostView>(array.as_contiguous().host_view());
      data_ = const_cast<std::byte*>(static_cast<const std::byte*>(view->data()));
      memory_ = view;
    } else {
      const auto room = std::make_shared<HostAccess>(array.host_access());
      data_ = static_cast<std::byte*>(room->data());
      memory_ = room;
    }
  }
  void start_later() override {
    const std::shared_ptr<RankMessages> messages = messages_;  // another thread may end and destroy this node
    started_ = true;
    if (sends_)
      messages->send(peer_, key_, by_, {data_, bytes_}, memory_, executor::NodeRef(*this));
    else
      messages->receive(peer_, key_, by_, {data_, bytes_}, memory_, executor::NodeRef(*this));
  }
  void done() noexcept override {
    memory_.reset();
    TaskNode::done();
    if (!started_ && sends_) {
      messages_->send_failure(peer_, key_, by_, failure() ? text_of(failure()->origin->error) : "cancelled");
    } else if (!started_) {
      try {
        messages_->receive(peer_, key_, by_, {}, {}, {});
      } catch (const std::exception&) {}  // the World has failed
    }
    messages_.reset();
  }

 private:
  std::shared_ptr<RankMessages> messages_;
  const bool sends_;
  bool started_ = false;
  const int peer_;
  const TileKey key_;
  const Submission by_;
  std::shared_ptr<void> memory_;  ///< owns `data_`
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  InlineAccessStorage inline_storage_;
  StoredAccess access_;
};

std::string name_of(const TaskOptions& options) {
  return options.name.empty() ? name_of_location(options.where) : options.name;
}

bool is_remote(const executor::Failure& failure) {
  try {
    if (failure.origin->error) std::rethrow_exception(failure.origin->error);
  } catch (const RemoteError&) {
    return true;
  } catch (...) {}
  return false;
}

}  // namespace

// --- The region

RankRegion::RankRegion(std::shared_ptr<RankMessages> messages) : messages_(std::move(messages)) {
  last_.region = messages_->new_region();
}

void RankRegion::count(const std::source_location& where, std::uint64_t what) {
  ++last_.number;
  last_.hash = mix(mix(last_.hash, what), where.line());
  last_.where = where;
  messages_->submitted(last_);
}

void RankRegion::end(std::span<const executor::FailureRef> failures, bool cancelled) {
  RegionEnd mine{.last = last_, .left = left_, .cancelled = cancelled};
  // Errors of this rank's own tasks come first, then cancellations, then tasks that lacked a tile of another rank.
  std::vector<executor::FailureRef> ordered(failures.begin(), failures.end());
  const auto kind = [](const executor::FailureRef& f) { return is_remote(*f) ? 2 : f->cancelled ? 1 : 0; };
  std::ranges::stable_sort(ordered, {}, kind);
  std::optional<TaskError> error;
  if (!ordered.empty()) try {
      for (const executor::FailureRef& f : ordered) f->origin->observed.store(true, std::memory_order_relaxed);
      throw_failure(*ordered.front());
    } catch (const TaskError& e) {
      error = e;
      mine.failed = std::max(ordered.front()->origin->submission, 1u);
      mine.remote = kind(ordered.front()) == 2;
      mine.name = ordered.front()->origin->name, mine.text = e.what();
      mine.what = e.cause() ? text_of(e.cause()) : "cancelled";
    }
  const RegionResult result = messages_->end_region(mine);
  if (result.rank < 0) return;
  const std::string text = fmt::format("rank {}: {}", result.rank, result.end.text);
  if (result.rank == messages_->rank() && error) throw TaskError(text, error->tasks(), error->cause());
  throw TaskError(text, {result.end.name}, std::make_exception_ptr(Error(result.end.what)));
}

void RankRegion::leave() noexcept {
  if (!left_) messages_->leave_region(last_);
  left_ = true;
}

void RankRegion::end_after_leave() noexcept {
  try {
    static_cast<void>(messages_->end_region({.last = last_, .left = true, .name = {}, .what = {}, .text = {}}));
  } catch (...) {}  // the World has failed
}

// --- One submission

RankPlan::RankPlan(RankRegion& region, executor::Group& group, const TaskOptions& options)
    : region_(region),
      group_(group),
      scope_(rank_scope(options, inherited_options)),
      options_(options),
      me_(region.messages().rank()) {
  if (scope_ != nullptr && scope_->ranks()->messages.get() != &region.messages())
    fail<ArgumentError>({.operation = "spawn", .wrong = "the scope and the region's arrays are of different Worlds"});
}

void RankPlan::use(const RankTile& tile, Access mode, bool whole, const Array& array) {
  if (!tile) return use_plain(mode);
  RankTiles& tiles = *tile.tiles;
  if (&tiles.messages() != &region_.messages())
    fail<ArgumentError>({.operation = "spawn", .wrong = "the region's arrays are of different Worlds"});
  tiles.check_epoch();
  const TileKey key = tiles.key(tile.number);
  what_ = mix(what_, key.array << 8 ^ std::uint64_t{key.tile} << 3 ^ static_cast<std::uint64_t>(mode));
  what_ = mix(what_, static_cast<std::uint64_t>(tiles.owner(tile.number)));
  uses_.push_back({&tiles, tile.number, mode, whole, tiles.here(tile.number) ? &array : nullptr});
}

void RankPlan::use_result(int rank) {
  if (rank == everywhere) return;
  if (uses_result_ && result_rank_ != rank)
    fail<ArgumentError>({.operation = "spawn",
                         .with = {{"ranks", fmt::format("{}, {}", result_rank_, rank)}},
                         .wrong = "the task uses results of tasks that ran on different ranks",
                         .remedy = "Write the results to tiles of a block array"});
  uses_result_ = true, result_rank_ = rank;
}

/// Chooses the rank of the task: the scope's, or the owner of the first tile that it writes, or of the first tile.
void RankPlan::choose() {
  const RankPlaces* const places = scope_ != nullptr ? scope_->ranks().get() : nullptr;
  const auto writes_tile = [](const Use& u) { return writes(u.mode); };
  const Use* first = uses_.empty() ? nullptr : uses_.begin();
  const Use* const written = std::find_if(uses_.begin(), uses_.end(), writes_tile);
  if (written != uses_.end()) first = written;
  if (writes_plain_ && (written != uses_.end() || places != nullptr))
    fail<ArgumentError>({.operation = "spawn",
                         .with = {{"task", name_of(options_)}},
                         .wrong = places != nullptr
                                      ? "the task writes an array that exists on all ranks, but its scope "
                                        "selects ranks"
                                      : "the task writes a tile of one rank, and an array that exists on "
                                        "all ranks",
                         .remedy = "Write to tiles only, or to arrays only"});
  if (writes_plain_) {
    rank_ = everywhere;
  } else if (uses_result_) {
    rank_ = result_rank_;
  } else if (first != nullptr && (places == nullptr || places->contains(first->tiles->owner(first->number)))) {
    rank_ = first->tiles->owner(first->number);
  } else if (places != nullptr) {  // in turn
    const int n = region_.messages().size();
    rank_ = static_cast<int>(region_.last().number) % n;
    while (!places->contains(rank_)) rank_ = (rank_ + 1) % n;
  } else {
    rank_ = everywhere;
  }
  if (first != nullptr && first->tiles->owner(first->number) == rank_) device_ = first->tiles->device(first->number);
  if (uses_result_ && (rank_ != result_rank_ || (places != nullptr && !places->contains(rank_))))
    fail<ArgumentError>({.operation = "spawn",
                         .with = {{"task", name_of(options_)},
                                  {"rank of the result", std::to_string(result_rank_)},
                                  {"scope", scope_ != nullptr ? to_string(*scope_) : "all ranks"}},
                         .wrong = "the task does not run on the rank that has the result that it uses",
                         .remedy = "Do not set a scope, or write the result to a tile of a block array"});
  for (const Use& u : uses_)
    if (u.mode == Access::reduce && u.tiles->owner(u.number) != rank_)
      fail<ArgumentError>(
          {.operation = "spawn",
           .with = {{"rank", std::to_string(rank_)}, {"owner of the tile", std::to_string(u.tiles->owner(u.number))}},
           .wrong = "a task can reduce into a tile only on the rank that owns it"});
}

void RankPlan::submit_message(bool sends, int peer, const TileKey& key, const Array& array, Access mode) {
  auto& node = *new MessageNode(group_, region_.shared_messages(), sends, peer, key, region_.last(), array, mode);
  TaskDraft draft(executor::Ref<TaskNode>::adopt(&node));
  node.drop();  // the reference of a handle
  node.set_submission(region_.last().number);
  node.attach_arguments();
  draft.submit();
}

/// Brings the current contents of a tile to a rank.
void RankPlan::bring(const Use& use, int to) {
  const int owner = use.tiles->owner(use.number);
  if (owner == to || (owner != me_ && to != me_)) return;
  const TileKey key = use.tiles->key(use.number);
  if (owner == me_) {
    if (use.tiles->add_reader(use.number, to)) submit_message(true, to, key, *use.array, Access::in);
  } else if (use.tiles->copy(use.number) == nullptr) {
    submit_message(false, owner, key, use.tiles->new_copy(use.number), Access::out);
  }
}

void RankPlan::prepare() {
  choose();
  region_.count(options_.where, mix(what_, static_cast<std::uint64_t>(rank_)));
  for (const Use& u : uses_) {
    if (u.mode == Access::out && u.whole) continue;
    if (rank_ != everywhere)
      bring(u, rank_);
    else if (u.array == nullptr)
      bring(u, me_);
    else
      for (int to = 0; to < region_.messages().size(); ++to) bring(u, to);
  }
}

Array RankPlan::array(const RankTile& tile, Access mode, const Array& array) {
  if (!tile || tile.here()) return array;
  RankTiles& tiles = *tile.tiles;
  const Array* const copy = tiles.copy(tile.number);
  return copy == nullptr && writes(mode) ? tiles.new_copy(tile.number) : *copy;
}

TaskOptions RankPlan::local_options() const {
  TaskOptions local = options_;
  if (scope_ != nullptr)
    local.scope = Scope(scope_->devices());
  else if (!local.scope && (inherited_options == nullptr || !inherited_options->scope))
    local.scope = device_ ? Scope(*device_) : std::optional<Scope>();  // copies of other tiles are on the CPU
  return local;
}

void RankPlan::finish() {
  for (const Use& u : uses_) {
    if (!writes(u.mode)) continue;
    const int owner = u.tiles->owner(u.number);
    if (owner == rank_ || (rank_ != me_ && owner != me_)) {
      u.tiles->written(u.number);
    } else if (rank_ == me_) {
      u.tiles->written_here(u.number);
      submit_message(true, owner, u.tiles->key(u.number), *u.tiles->copy(u.number), Access::in);
    } else {
      u.tiles->written(u.number);
      u.tiles->add_reader(u.number, rank_);
      submit_message(false, rank_, u.tiles->key(u.number), *u.array, Access::out);
    }
  }
}

}  // namespace tessera::detail
