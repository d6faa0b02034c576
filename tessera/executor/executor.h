// SPDX-License-Identifier: Apache-2.0
// One set of threads for all that computes on the CPU: functions that run when others have ended (node.h), and the
// pieces of kernels. Knows nothing of data. Internal; what users have is in tessera/task/.
//
//   Group group(Executor::instance());
//   Submission a(make_node(group, [] { ... }, "a")), b(make_node(group, [] { ... }, "b"));
//   b->after(*a.submit());   // in this order: what a node comes after is submitted
//   NodeRef last = b.submit();
//   wait(*last);             // or group.wait()
//
// With n threads (TESSERA_THREADS) there are max(1, n - 1) workers, and whoever waits outside of them is the last one.
// A thread that waits runs what it waits for, where that can run, and nothing else; else it sleeps, and another thread
// works in its place, so that n are awake. A thread that comes back from a wait while all n are, waits a moment for one
// of them to end its node; then n + 1 are, until that happens: a node may be holding up another by a lock of the
// user's.
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
#include "tessera/executor/node.h"
#include "tessera/executor/task_queue.h"

namespace tessera::executor {

class Sleeper;

/// Told by each thread that begins to wait for a node or a group, and when it goes on. For traces.
class WaitTracer {
 public:
  /// `by`: the node that the thread runs, or null; of `target` and `group` one is null.
  virtual void wait_begins(const Node* by, Node* target, const Group* group) noexcept = 0;
  virtual void wait_ends() noexcept = 0;
  static constinit std::atomic<WaitTracer*> instance;  ///< null while nobody looks; never destroyed

 protected:
  ~WaitTracer() = default;
};

/// Nodes that are waited for together. It outlives them: its destructor waits.
class Group {
 public:
  /// `window`: how many may be under way before who submits has to help (`throttle`); 0: any number. A group in which a
  /// node of another puts its own nodes has that as its `parent`, which is cancelled with it and whose waits run its
  /// nodes.
  explicit Group(Executor& executor, Group* parent = nullptr, std::uint32_t window = 0);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group();

  /// Until all nodes submitted before have ended, running some of them. Error if the calling thread runs a node of the
  /// group or of one inside it, or if that closes a cycle of waits: it names the nodes.
  void wait();
  /// To be called before or after each submission: where more than the window are under way, the caller runs some until
  /// half of that are, unless it runs in one of the group's own nodes, which would wait for itself.
  void throttle();
  /// Nodes that have not begun will not run; `Node::stop_requested` of others tells them.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_release); }
  bool cancelled() const noexcept;
  std::uint32_t in_flight() const noexcept;

  Executor& executor() const noexcept { return executor_; }
  Group* parent() const noexcept { return parent_; }
  bool inside(const Group& outer) const noexcept;

 protected:
  /// A node of the group has failed, or was skipped or cancelled; by the thread that ends it, before others are told.
  virtual void failed(const Node&) noexcept {}

 private:
  friend class Node;
  friend class Executor;
  // What has ended, in the upper half; in the lower how many more shall until the one who waits is woken, or 0.
  // In one number, since who counts the last one may find the group gone after that.
  static constexpr std::uint64_t one_ended = std::uint64_t{1} << 32;
  void one_has_ended() noexcept;
  void sleep(std::uint32_t until_left);

  Executor& executor_;
  Group* const parent_;
  const std::uint32_t window_;
  std::atomic<bool> cancelled_ = false;
  std::mutex one_waits_;
  Sleeper* sleeper_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> submitted_ = 0;
  std::atomic<std::uint32_t> seen_ended_ = 0;  // by who submits: at least so many have
  alignas(64) std::atomic<std::uint64_t> ended_ = 0;
};

class Executor {
 public:
  /// The process's, of TESSERA_THREADS threads or as many as cores may be used; made on first use, never destroyed. A
  /// forked child gets one of its own: it inherited no threads, and nodes of the parent's never end there.
  static Executor& instance();
  explicit Executor(unsigned threads);
  ~Executor();  // nothing may be under way
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Threads that work at once, one that waits outside included.
  unsigned threads() const noexcept { return threads_; }
  /// The node that the calling thread runs, or null.
  static Node* current() noexcept;
  /// Which of the executor's threads the calling one is, from 1; 0 if it is none.
  static unsigned worker() noexcept { return worker_number_; }

  /// Whether the calling thread runs a node while no thread is idle: pieces of a kernel would stay on it.
  static bool is_saturated() noexcept {
    return thread_state_.node != nullptr && thread_state_.executor != nullptr &&
           !thread_state_.executor->has_idle_thread();
  }

  /// Pieces of a kernel: calls f(begin, end) until [0, items) is covered, each call with at most `grain` items, from
  /// the calling thread and those that have nothing to do; returns when all have returned. The calling thread runs
  /// these pieces only, never a node. What a call throws is thrown here, once the others are done.
  void parallel_for(std::uint64_t items, std::uint64_t grain,
                    const std::function<void(std::uint64_t, std::uint64_t)>& f);

  /// Until `node` has ended, running it and what it comes after as far as nobody else does. The calling thread must not
  /// be running it, nor anything that it waits for: an Error that names the cycle. What it throws is not thrown here.
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
    Node* target;  // or
    const Group* group;
  };

  // What this thread is to its executor: trivially destructible, as all that threads keep.
  struct ThreadState {
    Executor* executor;
    Worker* worker;
    Node* node;       // that it runs
    Node** follower;  // where the node it ends may put one that this thread runs next
    unsigned depth;   // nodes that run on top of each other
  };
  static constinit thread_local ThreadState thread_state_;
  static constinit thread_local unsigned worker_number_;

  // Threads (executor.cpp).
  void work();
  void push(Node* node) noexcept;
  void run(Node& claimed) noexcept;
  Node* take() noexcept;
  Node* steal(TaskQueue& from) noexcept;
  bool run_job_chunk();
  bool work_seems_left() const noexcept;
  bool work_is_left() noexcept;  // with lock_ held
  bool has_idle_thread() const noexcept {
    return free_slots_.load(std::memory_order_relaxed) > 0 || searching_.load(std::memory_order_relaxed) != 0;
  }
  bool must_yield() const noexcept {
    return free_slots_.load(std::memory_order_relaxed) < 0 || asking_.load(std::memory_order_relaxed) != 0;
  }
  bool sleep();
  bool sleep_until_woken(int& from);  // the core of who called, or -1
  void wake() noexcept;
  /// With lock_ held: how many sleepers to notify. `core`: that of who calls and goes on; -1: it sleeps.
  unsigned call(unsigned threads, int core) noexcept;
  void release_slot() noexcept;
  void reacquire_slot(bool in_time) noexcept;
  Worker* lease();  // with lock_ held

  // Waiting (wait.cpp).
  void wait_for(Group& group, std::uint32_t until_left);
  NodeRef claim_in(const Group& group) noexcept;
  void refuse_cycle(Node& self, Node* target, const Group* group);
  void refuse_forked() const;

  const unsigned threads_;
  const std::uint32_t generation_;  // of the process
  const bool cores_suffice_;        // for each thread one
  const unsigned most_workers_;

  std::mutex lock_;
  std::condition_variable wake_, returned_;
  // Guarded by lock_.
  std::vector<std::thread> started_;
  unsigned sleepers_ = 0, tokens_ = 0, returning_ = 0;
  bool stopping_ = false;
  bool guest_ = false;    // somebody outside has the last place
  int caller_core_ = -1;  // of who called threads last, if it goes on there

  // Written with lock_ held.
  std::atomic<int> free_slots_;       // how many more threads may work
  std::atomic<unsigned> asking_ = 0;  // returning_

  // On one cache line, as who looks for work reads all of it.
  alignas(64) std::atomic<std::uint64_t> posted_ = 0;  // jobs so far: what idle threads watch
  std::atomic<unsigned> open_jobs_ = 0;
  alignas(64) SpinLock jobs_lock_;  // taken last
  std::vector<Job*> jobs_;          // guarded by it

  alignas(64) std::atomic<unsigned> searching_ = 0;  // threads that have nothing to do and look for something
  alignas(64) TaskQueue inbox_;                      // of threads that are none of the workers
  const std::unique_ptr<std::atomic<Worker*>[]> workers_;
  std::atomic<unsigned> worker_count_ = 0;  // of them, those that were ever used

  std::mutex waits_lock_;
  std::vector<Wait> waits_;  // guarded by waits_lock_: of nodes that run, what they wait for
};

/// Until `node` has ended; see Executor::wait. Error in a child of fork if the node was the parent's.
void wait(Node& node);

}  // namespace tessera::executor
