// SPDX-License-Identifier: Apache-2.0
// The thread pool for all CPU work. It runs nodes (node.h), which start when their predecessors have ended, and pieces
// of kernels. It does not know about data. Internal; the public interface is in tessera/task/.
//
// Group group(Executor::instance());
// Submission a(make_node(group, [] { ... }, "a")), b(make_node(group, [] { ... }, "b"));
// b->after(*a.submit());   // predecessors are submitted first
// NodeRef last = b.submit();
// wait(*last);             // or group.wait()
//
// With n threads (TESSERA_THREADS), there are max(1, n - 1) workers. A thread outside of the pool that waits for nodes
// is the n-th thread. A waiting thread runs only nodes that it waits for. If none of them is ready, it sleeps, and
// another thread takes its slot, so that n threads stay active.
//
// If all n slots are used when a thread returns from a wait, it waits briefly for a slot. If it does not get one, n + 1
// threads are active until a node ends. Waiting longer could deadlock, because a node may be waiting for a lock that
// this thread holds.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/spin_lock.h"
#include "tessera/executor/group.h"
#include "tessera/executor/task_queue.h"

namespace tessera::executor {

/// Observes waits for nodes and groups. Used for traces.
class WaitTracer {
 public:
  /// `by` is the node that the thread is running, or null. Either `target` or `group` is null.
  virtual void wait_begins(const Node* by, Node* target, const Group* group) noexcept = 0;
  virtual void wait_ends() noexcept = 0;
  static constinit std::atomic<WaitTracer*> instance;  ///< null if tracing is off; never destroyed

 protected:
  ~WaitTracer() = default;
};

class Executor {
 public:
  /// Returns the instance of this process. It has TESSERA_THREADS threads, by default one per usable core. It is
  /// created on first use and never destroyed. A forked child gets a new instance, because it inherits no threads, and
  /// the parent's nodes never end there.
  static Executor& instance();
  explicit Executor(unsigned threads);
  ~Executor();  // all nodes must have ended
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// The number of active threads, including a thread that waits from outside.
  unsigned threads() const noexcept { return threads_; }
  /// The node that the calling thread is running, or null.
  static Node* current() noexcept;
  /// The worker number of the calling thread, from 1; 0 if it is not a worker.
  static unsigned worker() noexcept { return worker_number_; }

  /// True if the calling thread runs a node and no other thread is idle. All pieces of a kernel would then run on this
  /// thread.
  static bool is_saturated() noexcept {
    return thread_state_.node != nullptr && thread_state_.executor != nullptr &&
           !thread_state_.executor->has_idle_thread();
  }

  /// Splits [0, items) into calls f(begin, end) with at most `grain` items. The calling thread and idle threads run
  /// them. Returns after all calls have returned. Meanwhile, the calling thread runs only these calls, never a node. If
  /// a call throws, its exception is rethrown after all other calls have returned.
  void parallel_for(std::uint64_t items, std::uint64_t grain,
                    const std::function<void(std::uint64_t, std::uint64_t)>& f);

  /// Waits until `node` has ended. Runs the node and its predecessors unless other threads run them. Throws Error with
  /// the nodes of the cycle if the calling thread runs `node` or a node that `node` waits for. Does not rethrow the
  /// node's exception.
  void wait(Node& node);

 private:
  friend class Node;
  friend class Group;
  struct Job;
  struct alignas(64) Worker {
    TaskQueue queue;
    std::atomic<bool> used = false;
  };
  class Visit;
  class Announced;
  struct Wait {
    Node* self;
    Node* target;  // the node that is waited for; null if it is `group`
    const Group* group;
  };

  // State of the calling thread in its executor. Trivially destructible, like all thread-local objects of Tessera.
  struct ThreadState {
    Executor* executor;
    Worker* worker;
    Node* node;       // the node that it runs
    Node** follower;  // where to store a successor that this thread should run next
    unsigned depth;   // number of nested nodes on this thread
  };
  static constinit thread_local ThreadState thread_state_;
  static constinit thread_local unsigned worker_number_;

  // Threads (executor.cpp):
  void work();
  void push(Node* node) noexcept;
  void run(Node& claimed) noexcept;
  Node* take() noexcept;
  Node* steal(TaskQueue& from) noexcept;
  bool run_job_chunk();
  bool work_seems_left() const noexcept;
  bool work_is_left() noexcept;  // requires lock_
  bool has_idle_thread() const noexcept {
    return free_slots_.load(std::memory_order_relaxed) > 0 || searching_.load(std::memory_order_relaxed) != 0;
  }
  bool must_yield() const noexcept {
    return free_slots_.load(std::memory_order_relaxed) < 0 || asking_.load(std::memory_order_relaxed) != 0;
  }
  bool sleep();
  bool sleep_until_woken(int& from);  // `from` receives the waker's core, or -1
  void wake() noexcept;
  /// Requires lock_. Returns how many sleeping threads to notify. `core` is the caller's core, or -1 if the caller is
  /// about to sleep.
  unsigned call(unsigned threads, int core) noexcept;
  void release_slot() noexcept;
  void reacquire_slot(bool in_time) noexcept;
  Worker* lease();  // requires lock_

  // Waiting (wait.cpp):
  void wait_for(Group& group, std::uint32_t until_left);
  NodeRef claim_in(const Group& group) noexcept;
  void refuse_cycle(Node& self, Node* target, const Group* group);
  void refuse_forked() const;

  const unsigned threads_;
  const std::uint32_t generation_;  // fork generation of the process that created it
  const bool cores_suffice_;        // true if there is a core for each thread
  const unsigned most_workers_;

  std::mutex lock_;
  std::condition_variable wake_, returned_;
  // Guarded by lock_:
  std::vector<std::thread> started_;
  unsigned sleepers_ = 0, tokens_ = 0, returning_ = 0;
  bool stopping_ = false;
  bool guest_ = false;    // true if a thread that waits from outside has the last slot
  int caller_core_ = -1;  // core of the last thread that woke other threads and still runs there

  // Written while holding lock_:
  std::atomic<int> free_slots_;       // how many more threads may become active
  std::atomic<unsigned> asking_ = 0;  // copy of returning_

  // On a separate cache line, because all searching threads read it.
  alignas(64) std::atomic<std::uint64_t> posted_ = 0;  // number of jobs posted so far; idle threads poll it
  std::atomic<unsigned> open_jobs_ = 0;
  alignas(64) SpinLock jobs_lock_;  // acquired last in the lock order
  std::vector<Job*> jobs_;          // guarded by jobs_lock_

  alignas(64) std::atomic<unsigned> searching_ = 0;  // number of idle threads that search for work
  alignas(64) TaskQueue inbox_;                      // nodes submitted by threads that are not workers
  const std::unique_ptr<std::atomic<Worker*>[]> workers_;
  std::atomic<unsigned> worker_count_ = 0;  // number of workers that were used so far

  std::mutex waits_lock_;
  std::vector<Wait> waits_;  // for each waiting node, what it waits for; guarded by waits_lock_
};

}  // namespace tessera::executor
