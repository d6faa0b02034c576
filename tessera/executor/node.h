// SPDX-License-Identifier: Apache-2.0
// A function that runs once, after its predecessors have ended. Internal; the public interface is in tessera/task/.
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

/// An error, the node that caused it, and whether it was reported. All nodes to which the error propagates share this
/// object.
struct FailureOrigin {
  std::exception_ptr error;
  std::string name;                            ///< name of the node that failed
  std::uint32_t submission = 0;                ///< its Node::submission
  mutable std::atomic<bool> observed = false;  ///< true if a waiting thread has received the error
};
/// Why a node has no result: its own error or an error of a predecessor.
struct Failure {
  static constexpr std::size_t most_names = 8;
  std::shared_ptr<const FailureOrigin> origin;
  /// Names of the last 8 nodes that were skipped because of the error, ending with this node.
  std::vector<std::string> through;
  std::size_t left_out = 0;  ///< number of skipped nodes before those in `through`
  bool cancelled = false;    ///< true if a cancellation is the cause and not an error
};
using FailureRef = std::shared_ptr<const Failure>;

/// Called after a node has ended. `fire` runs once, on the thread that ended the node, and may destroy this object.
struct Continuation {
  Continuation* next = nullptr;
  void (*fire)(Continuation& self) noexcept = nullptr;  ///< null if this is the Edge of a node
};

/// An intrusive reference-counting pointer.
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  explicit Ref(T& node) noexcept : node_(&node) { node.keep(); }
  /// Takes over a reference that is already counted.
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

/// Life cycle of a node: it is created, `after` adds predecessors, and `submit` releases it. It becomes ready when its
/// predecessors have ended. A thread then runs it once, after which it has ended. A node ends without running if a
/// predecessor failed or if it is cancelled before it runs.
class Node {
 public:
  enum class State : std::uint8_t { made, waiting, ready, running, ended };
  /// Whether the node ends when `run` returns, or later through a call of `end`.
  enum class Completion : bool { now, later };
  /// Priorities range from `least_priority` to `most_priority`. Among ready nodes, a thread runs those with the highest
  /// priority first. This is only a preference, because threads search their own queue before the queues of other
  /// threads.
  static constexpr int least_priority = -4, most_priority = 3;

  /// `references` is the initial reference count. By default it is one reference, owned by the creator.
  explicit Node(Group& group, std::uint32_t references = 1) noexcept : references_(references), group_(&group) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Called by the creating thread before `submit`:
  /// `result`: this node fails if the predecessor fails. `order`: this node only has to run after the predecessor.
  enum class Dependency : bool { result, order };
  /// `any` means that another thread may be about to submit the predecessor. The caller guarantees that the predecessor
  /// will be submitted and that there is no cycle.
  enum class Maker : bool { this_thread, any };
  /// Makes this node run after `predecessor`. If the predecessor has already failed and this node needs its result,
  /// this node fails too. Throws ArgumentError if the predecessor is not submitted yet, unless `maker` is `any`; this
  /// prevents cycles.
  void after(Node& predecessor, Dependency kind = Dependency::result, Maker maker = Maker::this_thread);
  void set_priority(int priority) noexcept;
  /// A number by which errors of a group are ordered.
  void set_submission(std::uint32_t number) noexcept { submission_ = number; }
  std::uint32_t submission() const noexcept { return submission_; }
  /// The node must call `try_acquire_resources` successfully before it becomes ready.
  void gate() noexcept { gated_ = true; }
  /// The node runs even if its group is cancelled, because skipping it would discard work of other nodes.
  void ignore_cancellation() noexcept { ignores_cancellation_ = true; }
  /// Submits the node. Its group counts it until it has ended. The node must not be modified after this call.
  void submit() noexcept {
    keep();
    submit_and_release();
  }
  /// Like submit(), but consumes a reference of the caller. The node may be destroyed when this returns.
  void submit_and_release() noexcept;
  /// Like submit(), but runs the node and its predecessors on the calling thread. The node has ended when this returns.
  void submit_here();

  // The functions below are thread-safe and may be called at any time:
  /// Cancels the node if it has not started. It then ends as cancelled, either immediately or when its predecessors
  /// have ended. Returns false if it is running or has ended. A running node can check `stop_requested`.
  bool cancel() noexcept;
  bool stop_requested() const noexcept;
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  bool ended() const noexcept { return state() == State::ended; }
  /// Returns the predecessors that have not ended. Empty once the node is running.
  std::vector<Ref<Node>> predecessors();
  /// Registers `continuation` to be called when this node has ended. If the node has already ended, calls
  /// `continuation` immediately.
  void then(Continuation& continuation) noexcept;
  /// Returns why a node that has ended has no result, or null if it has one.
  const FailureRef& failure() const noexcept { return failure_; }

  /// Ends a node whose `run` returned Completion::later. The node fails if `error` is not null. Called once, from any
  /// thread. The caller must own a reference.
  void end(std::exception_ptr error = nullptr) noexcept;
  /// Like end(), but the node fails because `predecessor` failed.
  void end_without(const Node& predecessor) noexcept;
  /// Notifies the successors for which `early` returns true as if this node had already ended. `early` is called only
  /// for nodes that are submitted and have not started. `early` must propagate failures to these nodes.
  void release_successors(bool (*early)(Node& self, Node& successor, Dependency kind)) noexcept;

  /// Name for error messages; "task" by default.
  virtual std::string name() const { return "task"; }
  /// Identifies the class of the node if it overrides this function. Faster than dynamic_cast.
  virtual const void* kind() const noexcept { return nullptr; }
  /// The node's group. The group may be destroyed after the node has ended.
  Group& group() const noexcept { return *group_; }

  void keep(std::uint32_t times = 1) noexcept { references_.fetch_add(times, std::memory_order_relaxed); }
  void drop() noexcept {
    // if this is the only reference, no atomic decrement is needed
    if (references_.load(std::memory_order_acquire) == 1 || references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      slab::prefetch(reinterpret_cast<const char*>(this) + 64, 256);
      delete this;
    }
  }
  static void* operator new(std::size_t bytes) { return slab::allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { slab::deallocate(memory, bytes); }

 protected:
  virtual ~Node();
  /// The work of the node. If it throws, the node fails.
  virtual Completion run() = 0;
  /// Called for a gated node after its predecessors have ended. Returns whether the node may run now. If it returns
  /// false, the CommuteLock retries the node later, or may already have done so.
  virtual bool try_acquire_resources() noexcept { return true; }
  /// A mark for the derived class. It needs no memory here.
  void set_ends_later() noexcept { ends_later_ = true; }
  bool ends_later() const noexcept { return ends_later_; }
  /// Must be called by `try_acquire_resources` before it returns false. From then on, any thread may call `retry`, but
  /// only once.
  void defer() noexcept { pending_.store(1, std::memory_order_relaxed); }
  void retry() noexcept { predecessor_ended(); }
  /// Called before the thread that runs the node waits.
  virtual void waits() noexcept {}
  /// Called after the node has run or was skipped, before its successors are notified. Ends accesses and destroys
  /// captured objects.
  virtual void done() noexcept {}

 private:
  friend class Executor;
  friend class Group;
  friend class TaskQueue;
  friend class Needs;
  friend class CommuteLock;

  struct Edge : Continuation {
    Node* to = nullptr;
    Node* from = nullptr;  // owns a reference until `to` runs
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

  bool claim() noexcept {  // acquires the right to run the node
    State ready = State::ready;
    // Sequentially consistent with `cancel`: either `cancel` sees that the node is ready, or this function sees the
    // cancellation.
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
  bool add_successor(Continuation& successor) noexcept;  // returns false if the node has ended

  static constexpr std::uint32_t unsubmitted = std::uint32_t{1} << 30;

  // Fields that many threads write share a cache line.
  std::atomic<std::uint32_t> references_;
  // Number of predecessors that have not ended. Before submission, `unsubmitted` minus the number of predecessors that
  // have ended.
  std::atomic<std::uint32_t> pending_ = unsubmitted;
  std::atomic<State> state_ = State::made;
  std::int8_t priority_ = 0;
  std::atomic<bool> cancel_ = false;
  bool gated_ = false, ignores_cancellation_ = false, ends_later_ = false;
  // Guards the predecessors and `failure_` until the node runs. The creating thread adds inline edges without locking.
  SpinLock lock_;
  std::atomic<std::uint32_t> edges_ = 0;
  std::uint32_t submission_ = 0;
  Group* group_;
  std::atomic<Continuation*> successors_ = nullptr;  // list of successors; `closed` after the node has ended
  FailureRef failure_;
  Node* overflow_ = nullptr;  // link in the overflow list of a TaskQueue or in the queue of a CommuteLock
  MoreEdges* more_edges_ = nullptr;
  Edge some_edges_[3];
};

/// A node that runs `f`. `f` returns void or a Completion.
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
  const char* const name_;  // must stay valid until the node is destroyed
};
/// Creates a node that runs `f`. `name` must be a string literal.
template <class F>
NodeRef make_node(Group& group, F&& f, const char* name = "task") {
  return NodeRef::adopt(new FunctionNode<std::decay_t<F>>(group, std::forward<F>(f), name));
}

/// Owns a new node and ensures that it is submitted. If `submit` was not called, the destructor cancels the node and
/// submits it.
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
