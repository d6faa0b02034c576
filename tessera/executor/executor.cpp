// SPDX-License-Identifier: Apache-2.0
// Worker threads: scheduling, sleeping and the replacement of blocked threads.
#include "tessera/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "tessera/base/config.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/processor.h"

namespace tessera::executor {

namespace {

constexpr int spins = 20000;  // takes about as long as waking a thread, which is tens of µs in a virtual machine
// Maximum number of spare threads, which replace sleeping threads, and of slots for waiting threads outside of the
// pool.
constexpr unsigned most_spare = 1024;
// How long a thread that returns from a wait tries to get a slot before it continues without one.
constexpr std::chrono::microseconds longest_ask{500};

unsigned threads_asked() {
  const auto asked = config::integer("TESSERA_THREADS", 1, config::most_threads);
  return asked ? static_cast<unsigned>(*asked) : os::usable_cores();
}

// Moves a woken thread to another core. Linux often wakes a thread on the waker's core although other cores are idle,
// and leaves both there for tens of milliseconds at half speed. This is frequent in virtual machines.
void leave_to_others(int core) noexcept {
  if (core >= 0 && os::current_core() == core) const os::AvoidCore moved(core);
}

// The core of the thread that posted the last job with which this thread helped.
constinit thread_local int job_core = -1;

struct OfProcess {
  Executor executor{threads_asked()};
};
constinit os::PerProcess<OfProcess> process;

}  // namespace

constinit thread_local Executor::ThreadState Executor::thread_state_{};
constinit thread_local unsigned Executor::worker_number_ = 0;
constinit std::atomic<WaitTracer*> WaitTracer::instance = nullptr;

Executor& Executor::instance() { return process->executor; }

Node* Executor::current() noexcept { return thread_state_.node; }

Executor::Executor(unsigned threads)
    : threads_(std::max(1u, threads)),
      generation_(os::fork_generation()),
      cores_suffice_(threads_ <= os::usable_cores()),
      most_workers_(threads_ + most_spare),
      free_slots_(static_cast<int>(std::max(1u, threads_ - 1))),
      workers_(new std::atomic<Worker*>[most_workers_]()) {}

Executor::~Executor() {
  {
    const std::scoped_lock hold(lock_);
    stopping_ = true;
    posted_.fetch_add(1, std::memory_order_relaxed);
  }
  wake_.notify_all();
  for (std::thread& t : started_) t.join();
  for (unsigned i = 0; i < worker_count_; ++i) delete workers_[i].load();
}

// A call of parallel_for. It is on the stack of the thread that waits for it. Its pieces are divided into one range
// ("run") per thread. A thread that helps with the same launch again starts with the same run, because the data may
// still be in its core's cache. When its run is empty, it steals from the ends of other runs.
struct Executor::Job {
  Job(const std::function<void(std::uint64_t, std::uint64_t)>& what, std::uint64_t first, std::uint64_t count,
      std::uint64_t piece, unsigned threads)
      : f(what), items(count), begin(first), grain(piece), runs(std::min(threads, most_runs)) {
    const std::uint64_t pieces = (items - begin + grain - 1) / grain;
    for (unsigned i = 0; i < runs; ++i) run[i].left = pack(pieces * i / runs, pieces * (i + 1) / runs);
  }
  static constexpr unsigned most_runs = 64;
  struct alignas(64) Run {
    mutable std::uint64_t left;  // range [first, last) of piece indices with 32 bits each; accessed atomically
    std::atomic_ref<std::uint64_t> atomic() const { return std::atomic_ref(left); }
  };
  static std::uint64_t pack(std::uint64_t first, std::uint64_t last) { return first << 32 | last; }

  const std::function<void(std::uint64_t, std::uint64_t)>& f;
  const std::uint64_t items, begin, grain;
  const unsigned runs;
  const int core = os::current_core();  // core of the waiting thread
  std::atomic<unsigned> helpers = 0;    // incremented while holding the executor's jobs_lock_
  std::mutex lock;
  std::exception_ptr error;
  Run run[most_runs];  // only the first `runs` are initialised

  /// Returns whether pieces are left. Checks this thread's own run first.
  bool left(unsigned number) const {
    for (unsigned i = 0; i < runs; ++i)
      if (any(run[(number + i) % runs].atomic().load(std::memory_order_relaxed))) return true;
    return false;
  }
  static bool any(std::uint64_t v) { return (v >> 32) < (v & 0xffffffff); }
  /// Takes the first piece of the thread's own run or the last piece of another run. Returns false if the run is empty.
  bool take(unsigned of, bool own, std::uint64_t& piece) {
    const std::atomic_ref<std::uint64_t> left = run[of].atomic();
    std::uint64_t v = left.load(std::memory_order_relaxed);
    while (any(v)) {
      if (!left.compare_exchange_weak(v, own ? v + (std::uint64_t{1} << 32) : v - 1, std::memory_order_relaxed))
        continue;
      piece = own ? v >> 32 : (v & 0xffffffff) - 1;
      return true;
    }
    return false;
  }
  void work(unsigned number) noexcept {
    std::uint64_t piece = 0;
    for (unsigned i = 0; i < runs; ++i) {
      while (take((number + i) % runs, i == 0, piece)) {
        const std::uint64_t from = begin + piece * grain;
        try {
          f(from, std::min(items, from + grain));
        } catch (...) {
          const std::scoped_lock hold(lock);
          if (!error) error = std::current_exception();
          for (unsigned k = 0; k < runs; ++k) run[k].atomic().store(0, std::memory_order_relaxed);
        }
      }
    }
  }
};

void Executor::parallel_for(std::uint64_t items, std::uint64_t grain,
                            const std::function<void(std::uint64_t, std::uint64_t)>& f) {
  if (items == 0) return;
  grain = std::max<std::uint64_t>(grain, items >> 31 | 1);  // piece indices must fit in 32 bits
  std::uint64_t begin = 0;
  const auto here = [&](std::uint64_t end) {
    for (; begin < end; begin += std::min(grain, end - begin)) f(begin, begin + std::min(grain, end - begin));
  };
  if (threads_ == 1 || items <= grain) return here(items);
  // Inside a task, run the pieces here as long as all threads are busy, because posting and removing a job requires
  // locking.
  if (thread_state_.executor == this && thread_state_.node != nullptr) {
    while (begin < items && !has_idle_thread()) here(std::min(items, begin + grain));
    if (items - begin <= grain) return here(items);
  }
  Job job(f, begin, items, grain, threads_);
  unsigned called = 0;
  {
    const std::scoped_lock hold(jobs_lock_);
    jobs_.push_back(&job);
    open_jobs_.store(static_cast<unsigned>(jobs_.size()), std::memory_order_relaxed);
  }
  posted_.fetch_add(1, std::memory_order_relaxed);
  // A thread that goes to sleep first registers in free_slots_ and then checks the jobs under their lock. Either it
  // sees this job, or this thread sees it in free_slots_.
  if (free_slots_.load(std::memory_order_relaxed) > 0) {
    const std::scoped_lock hold(lock_);
    called = call(static_cast<unsigned>(std::min<std::uint64_t>((items - begin - 1) / grain, threads_ - 1)), job.core);
  }
  if (called > 1)
    wake_.notify_all();
  else if (called == 1)
    wake_.notify_one();
  job.work(worker_number_);
  {
    const std::scoped_lock hold(jobs_lock_);  // no other thread can join after this
    jobs_.erase(std::ranges::find(jobs_, &job));
    open_jobs_.store(static_cast<unsigned>(jobs_.size()), std::memory_order_relaxed);
  }
  for (int i = 0; job.helpers.load(std::memory_order_acquire) != 0; ++i)
    if (i > spins) std::this_thread::yield();
  if (job.error) std::rethrow_exception(job.error);
}

bool Executor::run_job_chunk() {
  Job* job = nullptr;
  {
    const std::scoped_lock hold(jobs_lock_);
    const auto found = std::ranges::find_if(jobs_, [](const Job* j) { return j->left(worker_number_); });
    if (found == jobs_.end()) return false;
    job = *found;
    job->helpers.fetch_add(1, std::memory_order_relaxed);
  }
  if (cores_suffice_) leave_to_others(job_core = job->core);
  job->work(worker_number_);
  job->helpers.fetch_sub(1, std::memory_order_release);
  return true;
}

void Executor::push(Node* node) noexcept {
  const ThreadState& here = thread_state_;
  if (here.executor == this && here.worker != nullptr) {
    if (here.follower != nullptr && *here.follower == nullptr) {
      *here.follower = node;
      return;
    }
    here.worker->queue.push(node);
  } else {
    inbox_.push(node);
  }
  // A thread that goes to sleep or stops searching first announces this and then checks all queues under their locks.
  // At least one of the two threads therefore sees the other.
  if (free_slots_.load(std::memory_order_relaxed) > 0 && searching_.load(std::memory_order_relaxed) == 0) wake();
}

void Executor::run(Node& claimed) noexcept {
  ThreadState& here = thread_state_;
  Node* const outer = here.node;
  here.node = &claimed;
  ++here.depth;
  claimed.execute();
  --here.depth;
  here.node = outer;
}

Node* Executor::steal(TaskQueue& from) noexcept {
  std::array<Node*, TaskQueue::batch> taken;
  unsigned count = from.steal(taken);
  if (count == 0) return nullptr;
  for (unsigned i = 0; i < count; ++i) slab::prefetch(taken[i], 320);
  while (count > 1) thread_state_.worker->queue.push(taken[--count]);  // in this order, the oldest node is popped next
  return taken[0];
}

Node* Executor::take() noexcept {
  if (Node* const node = thread_state_.worker->queue.pop()) return node;
  if (Node* const node = steal(inbox_)) return node;
  const unsigned count = worker_count_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    Worker* const other = workers_[i].load(std::memory_order_acquire);
    if (other == thread_state_.worker) continue;
    if (Node* const node = steal(other->queue)) return node;
  }
  // Pieces of other threads' kernels have lower priority than nodes. The thread that posted a kernel also runs its
  // pieces.
  if (open_jobs_.load(std::memory_order_relaxed) != 0)
    while (run_job_chunk() && !work_seems_left()) {}
  return nullptr;
}

bool Executor::work_seems_left() const noexcept {
  if (!inbox_.looks_empty()) return true;
  const unsigned count = worker_count_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i)
    if (!workers_[i].load(std::memory_order_acquire)->queue.looks_empty()) return true;
  return false;
}

bool Executor::work_is_left() noexcept {
  {
    const std::scoped_lock hold(jobs_lock_);
    if (std::ranges::any_of(jobs_, [](const Job* j) { return j->left(worker_number_); })) return true;
  }
  if (!inbox_.is_empty_exact()) return true;
  const unsigned count = worker_count_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i)
    if (!workers_[i].load(std::memory_order_acquire)->queue.is_empty_exact()) return true;
  return false;
}

// A thread has a slot while it runs or searches for work. It gets the slot when it is woken and releases it when it
// sleeps, either because it is idle or because it waits. Unused slots are counted in `free_slots_`.
void Executor::work() {
  for (;;) {
    const std::uint64_t seen = posted_.load(std::memory_order_relaxed);
    Node* node = take();
    if (node == nullptr) {
      searching_.fetch_add(1);
      for (int i = 0; i < spins && posted_.load(std::memory_order_relaxed) == seen; ++i)
        if (i % 128 == 0 && work_seems_left()) break;
      node = take();
      const bool last = searching_.fetch_sub(1) == 1;
      if (node == nullptr && posted_.load(std::memory_order_relaxed) == seen) {
        if (!sleep()) return;
        continue;
      }
      // Other threads relied on this thread's search, which ends now.
      if (last && free_slots_.load(std::memory_order_relaxed) > 0) {
        std::unique_lock hold(lock_);
        if (work_is_left() && call(1, os::current_core()) != 0) {
          hold.unlock();
          wake_.notify_one();
        }
      }
    }
    while (node != nullptr) {
      Node* follower = nullptr;
      if (node->claim()) {
        thread_state_.follower = &follower;
        run(*node);
        thread_state_.follower = nullptr;
      }
      node->drop();
      node = follower;
      if (must_yield()) {
        if (node != nullptr) thread_state_.worker->queue.push(node);
        if (!sleep()) return;
        break;
      }
    }
  }
}

bool Executor::sleep() {
  int core = -1;
  if (!sleep_until_woken(core)) return false;
  leave_to_others(core);
  return true;
}

bool Executor::sleep_until_woken(int& from) {
  const os::AvoidCore elsewhere(job_core);  // prevents waking up on the waker's core
  std::unique_lock hold(lock_);
  if (stopping_) return false;
  free_slots_.fetch_add(1, std::memory_order_relaxed);
  if (free_slots_.load(std::memory_order_relaxed) > static_cast<int>(returning_) && work_is_left()) {
    free_slots_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  if (returning_ != 0) returned_.notify_one();
  ++sleepers_;
  wake_.wait(hold, [&] { return tokens_ > 0 || stopping_; });
  --sleepers_;
  if (stopping_) return false;
  --tokens_;
  from = caller_core_;
  return true;
}

unsigned Executor::call(unsigned threads, int core) noexcept {
  if (stopping_) return 0;  // `started_` is being iterated, and other threads have emptied the queues
  caller_core_ = cores_suffice_ ? core : -1;
  unsigned asleep = 0;
  for (; threads > 0 && free_slots_.load(std::memory_order_relaxed) > static_cast<int>(returning_); --threads) {
    if (tokens_ < sleepers_) {
      ++tokens_;
      ++asleep;
    } else {
      try {
        Worker* const worker = lease();
        if (worker == nullptr) break;
        try {
          started_.emplace_back([this, worker, number = static_cast<unsigned>(started_.size() + 1)] {
            worker_number_ = number;
            thread_state_ = {this, worker, nullptr, nullptr, 0};
            work();
          });
        } catch (...) {
          worker->used.store(false, std::memory_order_release);
          throw;
        }
      } catch (const std::system_error&) {
        break;  // the system has no more threads; existing threads and waiting callers do the work
      } catch (const std::bad_alloc&) {
        break;
      }
    }
    free_slots_.fetch_sub(1, std::memory_order_relaxed);
  }
  return asleep;
}

void Executor::wake() noexcept {
  unsigned called = 0;
  {
    const std::scoped_lock hold(lock_);
    called = call(1, os::current_core());
  }
  if (called != 0) wake_.notify_one();
}

Executor::Worker* Executor::lease() {
  const unsigned count = worker_count_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < count; ++i) {
    Worker* const worker = workers_[i].load(std::memory_order_relaxed);
    if (!worker->used.load(std::memory_order_relaxed) && !worker->used.exchange(true, std::memory_order_acquire))
      return worker;
  }
  if (count == most_workers_) return nullptr;
  auto* const fresh = new Worker;
  fresh->used.store(true, std::memory_order_relaxed);
  workers_[count].store(fresh, std::memory_order_release);
  worker_count_.store(count + 1, std::memory_order_release);
  return fresh;
}

void Executor::release_slot() noexcept {
  unsigned called = 0;
  {
    const std::scoped_lock hold(lock_);
    free_slots_.fetch_add(1, std::memory_order_relaxed);
    if (returning_ != 0) returned_.notify_one();
    if (work_is_left()) called = call(1, -1);
  }
  if (called != 0) wake_.notify_one();
}

void Executor::reacquire_slot(bool in_time) noexcept {
  std::unique_lock hold(lock_);
  if (in_time && free_slots_.load(std::memory_order_relaxed) <= 0) {
    asking_.store(++returning_, std::memory_order_relaxed);
    returned_.wait_for(hold, longest_ask, [&] { return free_slots_.load(std::memory_order_relaxed) > 0; });
    asking_.store(--returning_, std::memory_order_relaxed);
  }
  free_slots_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tessera::executor
