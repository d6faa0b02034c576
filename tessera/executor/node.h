// SPDX-License-Identifier: Apache-2.0
// A function that runs once, when its predecessors have ended. Internal: the public interface is tasks (tessera/task/).
#pragma once

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

/// An error, its origin, and whether it was observed. Shared by all nodes to which it propagates.
struct FailureOrigin {
  std::exception_ptr error;
  std::string name;                            ///< of the node that failed
  mutable std::atomic<bool> observed = false;  ///< the error has been reported to a waiter
};
/// Why a node has no result: an error of its own or of a predecessor.
struct Failure {
  static constexpr std::size_t most_names = 8;
  std::shared_ptr<const FailureOrigin> origin;
  std::vector<std::string>
      through;               ///< the nodes skipped because of it, from the origin's successor to this; the last 8
  std::size_t left_out = 0;  ///< number of skipped nodes that precede `through`
  bool cancelled = false;    ///< caused by a cancellation, not by an error
};
using FailureRef = std::shared_ptr<const Failure>;

/// Called when a node has ended: `fire` runs once, on the thread that ended it, and may destroy this object.
struct Continuation {
  Continuation* next = nullptr;
  void (*fire)(Continuation& self) noexcept = nullptr;  ///< null: this is the Edge of a node
};

/// An intrusive reference-counting pointer.
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  explicit Ref(T& node) noexcept : node_(&node) { node.keep(); }
  /// Takes ownership of a reference that is already counted.
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

/// Life cycle of a node: it is made; `after` adds predecessors; `submit` releases it; it is ready when its predecessors
/// have ended; a thread runs it once; it has ended. A node whose predecessor failed, or that is cancelled before it
/// runs, ends without running.
class Node {
 public:
  enum class State : std::uint8_t { made, waiting, ready, running, ended };
  /// Whether the node ends when `run` returns, or later by a call of `end`.
  enum class Completion : bool { now, later };
  /// Priorities range from `least_priority` to `most_priority`. Among ready nodes a thread takes the highest priority
  /// first. This is a preference: threads search their own queue before those of others.
  static constexpr int least_priority = -4, most_priority = 3;

  /// `references`: the initial reference count; by default one, owned by the creator.
  explicit Node(Group& group, std::uint32_t references = 1) noexcept : references_(references), group_(&group) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // To be called by the creating thread, before `submit`:
  /// Whether a predecessor's failure also fails this node, or only its end matters.
  enum class Dependency : bool { result, order };
  /// `any`: the predecessor may be about to be submitted by another thread. The caller guarantees that it will be
  /// submitted and that no cycle arises.
  enum class Maker : bool { this_thread, any };
  /// Makes this node run after `predecessor`. Throws ArgumentError if the predecessor is not submitted, unless `maker`
  /// is `any`; therefore cycles cannot be built. If the predecessor has already failed, this node fails too if it needs
  /// its result.
  void after(Node& predecessor, Dependency kind = Dependency::result, Maker maker = Maker::this_thread);
  void set_priority(int priority) noexcept;
  /// Makes it call `try_acquire_resources` before it becomes ready.
  void gate() noexcept { gated_ = true; }
  /// Exempts it from its group's cancellation, which would discard work that others have done.
  void ignore_cancellation() noexcept { ignores_cancellation_ = true; }
  /// Releases the node. Its group counts it until it has ended. It must not be modified afterwards.
  void submit() noexcept {
    keep();
    submit_and_release();
  }
  /// Same, and consumes a reference of the caller: the node may be destroyed when this returns.
  void submit_and_release() noexcept;
  /// Same, and runs the node and its predecessors on the calling thread; it has ended when this returns.
  void submit_here();

  // Thread-safe, at any time:
  /// Cancels the node if it has not started: it ends as cancelled, immediately or when its predecessors have ended.
  /// Returns false if it runs or has ended; a running node can check `stop_requested`.
  bool cancel() noexcept;
  bool stop_requested() const noexcept;
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  bool ended() const noexcept { return state() == State::ended; }
  /// The predecessors that have not ended; empty once it runs.
  std::vector<Ref<Node>> predecessors();
  /// Registers `continuation` to fire when this node has ended; fires it immediately if it already has.
  void then(Continuation& continuation) noexcept;
  /// For a node that has ended: why it has no result, or null.
  const FailureRef& failure() const noexcept { return failure_; }

  /// Ends a node whose `run` returned Completion::later, with a failure if `error` is not null. Called once, from any
  /// thread; the caller must own a reference.
  void end(std::exception_ptr error = nullptr) noexcept;
  /// Same, but fails the node because `predecessor` failed.
  void end_without(const Node& predecessor) noexcept;
  /// Notifies the successors for which `early` returns true as if this node had ended. `early` is called only for nodes
  /// that are submitted and have not started, and is responsible for propagating failures.
  void release_successors(bool (*early)(Node& self, Node& successor, Dependency kind)) noexcept;

  /// For messages; by default "task".
  virtual std::string name() const { return "task"; }
  /// Identifies the class of the node, if it overrides this: cheaper than dynamic_cast.
  virtual const void* kind() const noexcept { return nullptr; }
  /// The node's group, which may be destroyed once the node has ended.
  Group& group() const noexcept { return *group_; }

  void keep(std::uint32_t times = 1) noexcept { references_.fetch_add(times, std::memory_order_relaxed); }
  void drop() noexcept {
    // The last reference needs no atomic decrement.
    if (references_.load(std::memory_order_acquire) == 1 || references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      slab::prefetch(reinterpret_cast<const char*>(this) + 64, 256);
      delete this;
    }
  }
  static void* operator new(std::size_t bytes) { return slab::allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { slab::deallocate(memory, bytes); }

 protected:
  virtual ~Node();
  /// The node's work. An exception fails the node.
  virtual Completion run() = 0;
  /// For a gated node whose predecessors have ended: whether it may run now. If this returns false, the lock
  /// (CommuteLock) will retry it and may already have done so.
  virtual bool try_acquire_resources() noexcept { return true; }
  /// Called within `try_acquire_resources` before it returns false. From then on any thread may call `retry`, once.
  void defer() noexcept { pending_.store(1, std::memory_order_relaxed); }
  void retry() noexcept { predecessor_ended(); }
  /// Called by the thread that runs the node, before it waits.
  virtual void waits() noexcept {}
  /// Called after it has run or was skipped, before successors are notified. Ends accesses and destroys captured
  /// objects.
  virtual void done() noexcept {}

 private:
  friend class Executor;
  friend class Group;
  friend class TaskQueue;
  friend class Needs;
  friend class CommuteLock;

  struct Edge : Continuation {
    Node* to = nullptr;
    Node* from = nullptr;  // holds a reference until `to` runs
    Dependency kind = Dependency::result;
  };
  struct MoreEdges {
    static constexpr unsigned size = 7;
    MoreEdges* next;
    unsigned used;
    Edge edges[size];
  };
  template <class F>
  void for_each_predecessor(F&& f) {  // requires the lock
    const std::uint32_t edges = edges_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < edges && i < std::size(some_edges_); ++i) f(some_edges_[i]);
    for (MoreEdges* more = more_edges_; more != nullptr; more = more->next)
      for (unsigned i = 0; i < more->used; ++i) f(more->edges[i]);
  }

  bool claim() noexcept {  // acquires the right to run it
    State ready = State::ready;
    // Sequentially consistent with `cancel`: either cancel sees that this is ready, or this sees the cancellation.
    return state_.load(std::memory_order_relaxed) == State::ready &&
           state_.compare_exchange_strong(ready, State::running, std::memory_order_seq_cst);
  }
  void execute() noexcept;  // requires a claimed node
  void finish() noexcept;
  void predecessor_ended() noexcept;
  void now_ready() noexcept;
  void poison(const Node& predecessor) noexcept;
  void fail_with(std::exception_ptr error, bool cancelled) noexcept;
  void forget_predecessors() noexcept;
  bool add_successor(Continuation& successor) noexcept;  // returns false if it has ended

  static constexpr std::uint32_t unsubmitted = std::uint32_t{1} << 30;

  // Fields written by many threads share a cache line.
  std::atomic<std::uint32_t> references_;
  // Unended predecessors. Before submission: `unsubmitted` minus the predecessors that have ended.
  std::atomic<std::uint32_t> pending_ = unsubmitted;
  std::atomic<State> state_ = State::made;
  std::int8_t priority_ = 0;
  std::atomic<bool> cancel_ = false;
  bool gated_ = false, ignores_cancellation_ = false;
  SpinLock lock_;  // guards the predecessors and `failure_` until it runs; the creator sets inline ones without it
  std::atomic<std::uint32_t> edges_ = 0;
  Group* group_;
  std::atomic<Continuation*> successors_ = nullptr;  // or `closed`
  FailureRef failure_;
  Node* overflow_ = nullptr;  // link in a queue without memory, or in a CommuteLock's queue
  MoreEdges* more_edges_ = nullptr;
  Edge some_edges_[3];
};

/// A node that runs `f`, which returns nothing or a Completion.
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
  const char* const name_;  // must outlive the node
};
/// `name` must be a literal.
template <class F>
NodeRef make_node(Group& group, F&& f, const char* name = "task") {
  return NodeRef::adopt(new FunctionNode<std::decay_t<F>>(group, std::forward<F>(f), name));
}

/// Owns a new node and ensures that it is submitted: the destructor cancels and submits it if `submit` was not called.
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
