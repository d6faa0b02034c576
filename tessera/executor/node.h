// SPDX-License-Identifier: Apache-2.0
// A function that runs once, when the nodes it comes after have ended. Internal: users have tasks (tessera/task/).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/executor/slab.h"

namespace tessera::executor {

class Executor;
class Group;
class Node;

/// An error, where it happened, and whether anybody was told. One for all nodes that it reaches.
struct FailureOrigin {
  std::exception_ptr error;
  std::string name;                            ///< of the node in which it happened
  mutable std::atomic<bool> observed = false;  ///< somebody has seen it
};
/// Why a node has no result: an error of its own, or of a node that it came after.
struct Failure {
  static constexpr std::size_t most_names = 8;
  std::shared_ptr<const FailureOrigin> origin;
  std::vector<std::string>
      through;               ///< the nodes skipped because of it, from the origin's successor to this; the last 8
  std::size_t left_out = 0;  ///< of them, those before `through`
  bool cancelled = false;    ///< it began with a cancellation, not with an error
};
using FailureRef = std::shared_ptr<const Failure>;

/// What happens when a node has ended: `fire` is called once, by the thread that ended it, and may destroy this.
struct Continuation {
  Continuation* next = nullptr;
  void (*fire)(Continuation& self) noexcept = nullptr;  ///< nothing: it is a node's Edge
};

/// A counted reference.
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  explicit Ref(T& node) noexcept : node_(&node) { node.keep(); }
  /// Takes over a reference that somebody has counted.
  static Ref adopt(T* node) noexcept {
    Ref ref;
    ref.node_ = node;
    return ref;
  }
  Ref(const Ref& other) noexcept : node_(other.node_) {
    if (node_ != nullptr) node_->keep();
  }
  Ref(Ref&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  Ref(Ref<U> other) noexcept : node_(other.release()) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~Ref() {
    if (node_ != nullptr) node_->drop();
  }
  T* release() noexcept { return std::exchange(node_, nullptr); }
  T* get() const noexcept { return node_; }
  T& operator*() const noexcept { return *node_; }
  T* operator->() const noexcept { return node_; }
  explicit operator bool() const noexcept { return node_ != nullptr; }

 private:
  T* node_ = nullptr;
};
using NodeRef = Ref<Node>;

/// The life of a node: it is made; `after` names its predecessors; `submit` lets it go; when its predecessors have
/// ended it is ready, and some thread runs it once; then it has ended. One whose predecessor failed, or that is
/// cancelled before it runs, ends without running.
class Node {
 public:
  enum class State : std::uint8_t { made, waiting, ready, running, ended };
  /// What `run` has done: all, or begun what somebody will `end`.
  enum class Completion : bool { now, later };
  /// From `least` to `most`; ready nodes of a higher priority are taken first by the thread that looks for work. A
  /// preference: threads look into their own queue before those of others.
  static constexpr int least_priority = -4, most_priority = 3;

  /// `references`: as many of them are counted from the beginning; by default one, that of who makes it.
  explicit Node(Group& group, std::uint32_t references = 1) noexcept : references_(references), group_(&group) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // By the thread that makes it, until `submit`:
  /// What a predecessor's failure means: this fails too, or nothing.
  enum class Dependency : bool { result, order };
  /// Whether a predecessor may be on its way to `submit` on another thread: for who knows that no two nodes can come
  /// after each other, and that it will be submitted.
  enum class Maker : bool { this_thread, any };
  /// It runs after `predecessor`, which may be at any point of its life but not unsubmitted (ArgumentError), unless it
  /// is said to be another thread's: nodes that come after each other cannot be made. An ended one that failed fails
  /// this one, if it needs its result.
  void after(Node& predecessor, Dependency kind = Dependency::result, Maker maker = Maker::this_thread);
  void set_priority(int priority) noexcept;
  /// It asks `try_acquire_resources` before it is ready.
  void gate() noexcept { gated_ = true; }
  /// Its group's cancellation does not reach it: what others have done would be lost.
  void ignore_cancellation() noexcept { ignores_cancellation_ = true; }
  /// Lets it go. Its group counts it until it has ended. Nothing of it may be set any more.
  void submit() noexcept {
    keep();
    submit_and_release();
  }
  /// The same, and takes over a reference of the caller's, for whom the node may be gone when this returns.
  void submit_and_release() noexcept;
  /// The same, and has the calling thread run it at once, after what it comes after; it has ended when this returns.
  void submit_here();

  // By anybody, at any time:
  /// A node that has not begun will not run: it ends as cancelled, at once or when its predecessors have ended. False
  /// if it runs or has ended. Of what runs, `stop_requested` tells it.
  bool cancel() noexcept;
  bool stop_requested() const noexcept;
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  bool ended() const noexcept { return state() == State::ended; }
  /// What it comes after that has not ended; nothing once it runs.
  std::vector<Ref<Node>> predecessors();
  /// `continuation` fires when this has ended, at once if it has.
  void then(Continuation& continuation) noexcept;
  /// Of a node that has ended: why it has no result, or nothing.
  const FailureRef& failure() const noexcept { return failure_; }

  /// Of a node whose `run` gave Ends::later, by any thread, once: it has ended, and failed if there is an error. Who
  /// calls this holds a reference.
  void end(std::exception_ptr error = nullptr) noexcept;
  /// The same: it has no result, since `predecessor` has none.
  void end_without(const Node& predecessor) noexcept;
  /// Successors of which `early` says so need not wait for its end: the same as if it had ended, for these alone.
  /// `early` is asked of nodes that are submitted and have not begun, and sees to what becomes of its failure.
  void release_successors(bool (*early)(Node& self, Node& successor, Dependency kind)) noexcept;

  /// For people; by default "task".
  virtual std::string name() const { return "task"; }
  /// Who made its class, if that says so: to know it again without asking the compiler's tables.
  virtual const void* kind() const noexcept { return nullptr; }
  /// What it is part of; gone, it may be, once it has ended.
  Group& group() const noexcept { return *group_; }

  void keep(std::uint32_t times = 1) noexcept { references_.fetch_add(times, std::memory_order_relaxed); }
  void drop() noexcept {
    // The last one that there is needs no exchange.
    if (references_.load(std::memory_order_acquire) == 1 || references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      slab::prefetch(reinterpret_cast<const char*>(this) + 64, 256);
      delete this;
    }
  }
  static void* operator new(std::size_t bytes) { return slab::allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { slab::deallocate(memory, bytes); }

 protected:
  virtual ~Node();
  /// What it is for. What it throws fails it.
  virtual Completion run() = 0;
  /// Of a gated node whose predecessors have ended: whether it may run now. False: somebody else (Turn) lets it ask
  /// again, and may have done so already.
  virtual bool try_acquire_resources() noexcept { return true; }
  /// Within `try_acquire_resources` before that gives false: `retry`, which anybody may call once from now on, does so.
  void defer() noexcept { pending_.store(1, std::memory_order_relaxed); }
  void retry() noexcept { predecessor_ended(); }
  /// By a thread that runs it and is about to wait for others.
  virtual void waits() noexcept {}
  /// It has run, or was skipped: before anybody is told. Accesses end here, and what a function captured goes.
  virtual void done() noexcept {}

 private:
  friend class Executor;
  friend class Group;
  friend class TaskQueue;
  friend class Needs;
  friend class CommuteLock;

  struct Edge : Continuation {
    Node* to = nullptr;
    Node* from = nullptr;  // with a reference, until `to` runs
    Dependency kind = Dependency::result;
  };
  struct MoreEdges {
    static constexpr unsigned size = 7;
    MoreEdges* next;
    unsigned used;
    Edge edges[size];
  };
  template <class F>
  void for_each_predecessor(F&& f) {  // with the lock held
    const std::uint32_t inside =
        std::min(edges_.load(std::memory_order_acquire), static_cast<std::uint32_t>(std::size(some_edges_)));
    for (std::uint32_t i = 0; i < inside; ++i) f(some_edges_[i]);
    for (MoreEdges* more = more_edges_; more != nullptr; more = more->next)
      for (unsigned i = 0; i < more->used; ++i) f(more->edges[i]);
  }

  bool claim() noexcept {  // the right to run it
    State ready = State::ready;
    // In one order with what `cancel` does: it sees that this is ready, or is seen.
    return state_.load(std::memory_order_relaxed) == State::ready &&
           state_.compare_exchange_strong(ready, State::running, std::memory_order_seq_cst);
  }
  void execute() noexcept;  // of one that is claimed
  void finish() noexcept;
  void predecessor_ended() noexcept;
  void now_ready() noexcept;
  void poison(const Node& predecessor) noexcept;
  void fail_with(std::exception_ptr error, bool cancelled) noexcept;
  void forget_predecessors() noexcept;
  bool add_successor(Continuation& successor) noexcept;  // false: it has ended

  static constexpr std::uint32_t unsubmitted = std::uint32_t{1} << 30;

  // On one line what every thread writes that has to do with it.
  std::atomic<std::uint32_t> references_;
  // Predecessors that have not ended; until it is submitted `unsubmitted`, less those that have.
  std::atomic<std::uint32_t> pending_ = unsubmitted;
  std::atomic<State> state_ = State::made;
  std::int8_t priority_ = 0;
  std::atomic<bool> cancel_ = false;
  bool gated_ = false, ignores_cancellation_ = false;
  SpinLock lock_;  // of predecessors and `failure_`, until it runs; the maker adds those inside without
  std::atomic<std::uint32_t> edges_ = 0;
  Group* group_;
  std::atomic<Continuation*> successors_ = nullptr;  // or `closed`
  FailureRef failure_;
  Node* overflow_ = nullptr;  // in a queue that found no memory, or of those that wait for a turn
  MoreEdges* more_edges_ = nullptr;
  Edge some_edges_[3];
};

/// A node that runs `f`, which returns nothing or Ends.
template <class F>
class FunctionNode final : public Node {
 public:
  template <class G>
  FunctionNode(Group& group, G&& f, const char* name) : Node(group), f_(std::forward<G>(f)), name_(name) {}
  std::string name() const override { return name_; }

 protected:
  Completion run() override {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>)
      return (*f_)(), Completion::now;
    else
      return (*f_)();
  }
  void done() noexcept override { f_.reset(); }

 private:
  std::optional<F> f_;
  const char* const name_;  // outlives the node
};
/// `name` is a literal.
template <class F>
NodeRef make_node(Group& group, F&& f, const char* name = "task") {
  return NodeRef::adopt(new FunctionNode<std::decay_t<F>>(group, std::forward<F>(f), name));
}

/// A node that was made and is let go in any case: cancelled, if its maker did not come so far.
class Submission {
 public:
  explicit Submission(NodeRef node) noexcept : node_(std::move(node)) {}
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;
  ~Submission() {
    if (!node_) return;
    node_->cancel();
    node_->submit();
  }
  Node& operator*() const noexcept { return *node_; }
  Node* operator->() const noexcept { return node_.get(); }
  NodeRef submit() noexcept {
    node_->submit();
    return std::move(node_);
  }

 private:
  NodeRef node_;
};

}  // namespace tessera::executor
