// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/pool.h"

#include <algorithm>
#include <exception>
#include <new>
#include <system_error>

#include "tessera/base/config.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/processor.h"

namespace tessera::cpu {

namespace {
constexpr int spins = 2000;  // a few microseconds: about what waking a sleeping thread costs
}

// One launch; lives on the stack of the thread that waits for it.
struct ThreadPool::Job {
  const std::function<void(std::uint64_t, std::uint64_t)>& f;
  const std::uint64_t items, grain;
  std::atomic<std::uint64_t> next = 0;
  std::atomic<unsigned> helpers = 0;  // raised with the pool's lock held
  std::mutex lock;
  std::exception_ptr error;

  bool left() const { return next.load(std::memory_order_relaxed) < items; }
  void work() noexcept {
    for (;;) {
      const std::uint64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= items) return;
      try {
        f(begin, std::min(items, begin + grain));
      } catch (...) {
        const std::scoped_lock hold(lock);
        if (!error) error = std::current_exception();
        next.store(items, std::memory_order_relaxed);
      }
    }
  }
};

ThreadPool& ThreadPool::instance() {
  struct Entry {
    std::uint32_t generation;
    ThreadPool pool;
    Entry(std::uint32_t g, unsigned n) : generation(g), pool(n) {}
  };
  static std::atomic<Entry*> current = nullptr;
  const std::uint32_t generation = os::fork_generation();
  Entry* entry = current.load(std::memory_order_acquire);
  while (!entry || entry->generation != generation) {
    // The parent's pool is left as it is: its locks may be held by threads that do not exist here.
    const auto asked = config::integer("TESSERA_THREADS", 1, config::most_threads);
    auto* fresh = new Entry(generation, asked ? static_cast<unsigned>(*asked) : os::usable_cores());
    if (current.compare_exchange_strong(entry, fresh, std::memory_order_acq_rel)) return fresh->pool;
    delete fresh;
  }
  return entry->pool;
}

ThreadPool::ThreadPool(unsigned threads) : threads_(std::max(1u, threads)) {}
ThreadPool::~ThreadPool() {
  {
    const std::scoped_lock hold(lock_);
    stopping_ = true;
    posted_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::start() {
  if (started_) return;
  started_ = true;
  try {
    while (workers_.size() + 1 < threads_) workers_.emplace_back([this] { worker(); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those there are, and the caller, do the work.
  } catch (const std::bad_alloc&) {  // nor memory for one
  }
}

ThreadPool::Job* ThreadPool::next_job() {
  for (Job* job : jobs_)
    if (job->left()) return job;
  return nullptr;
}

void ThreadPool::worker() {
  std::uint64_t seen = 0;
  for (;;) {
    Job* job = nullptr;
    {
      std::unique_lock hold(lock_);
      job = next_job();
      if (!job) {
        seen = posted_.load(std::memory_order_relaxed);
        if (stopping_) return;
        hold.unlock();
        for (int i = 0; i < spins && posted_.load(std::memory_order_relaxed) == seen; ++i)
          std::atomic_signal_fence(std::memory_order_seq_cst);
        hold.lock();
        wake_.wait(hold, [&] { return stopping_ || posted_.load(std::memory_order_relaxed) != seen; });
        continue;
      }
      job->helpers.fetch_add(1, std::memory_order_relaxed);
    }
    job->work();
    job->helpers.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::run(std::uint64_t items, std::uint64_t grain,
                     const std::function<void(std::uint64_t, std::uint64_t)>& f) {
  if (items == 0) return;
  grain = std::max<std::uint64_t>(grain, 1);
  if (threads_ == 1 || items <= grain) {
    for (std::uint64_t begin = 0; begin < items; begin += grain) f(begin, std::min(items, begin + grain));
    return;
  }
  Job job{f, items, grain};
  {
    const std::scoped_lock hold(lock_);
    start();
    jobs_.push_back(&job);
    posted_.fetch_add(1, std::memory_order_relaxed);
  }
  wake_.notify_all();
  job.work();
  {
    const std::scoped_lock hold(lock_);  // nobody joins after this
    jobs_.erase(std::ranges::find(jobs_, &job));
  }
  for (int i = 0; job.helpers.load(std::memory_order_acquire) != 0; ++i)
    if (i > spins) std::this_thread::yield();
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace tessera::cpu
