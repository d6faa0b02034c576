// SPDX-License-Identifier: Apache-2.0
#include "tessera/executor/node.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/executor/commute_lock.h"
#include "tessera/executor/executor.h"

namespace tessera::executor {

namespace {
constinit Continuation closed;  // marks the list of successors of a node that has ended

/// The failure that is used if there is no memory to create one. Allocated in advance and never destroyed.
const FailureRef& no_memory() {
  static const FailureRef& one = *new FailureRef([] {
    auto origin = std::make_shared<FailureOrigin>();
    origin->error = std::make_exception_ptr(std::bad_alloc());
    origin->name = "task";
    auto failure = std::make_shared<Failure>();
    failure->origin = std::move(origin);
    return failure;
  }());
  return one;
}
[[maybe_unused]] const FailureRef& made_in_time = no_memory();
}  // namespace

Node::~Node() {
  forget_predecessors();
  while (more_edges_ != nullptr) {
    MoreEdges* const next = more_edges_->next;
    delete more_edges_;
    more_edges_ = next;
  }
}

void Node::after(Node& predecessor, Dependency kind, Maker maker) {
  if (maker == Maker::this_thread && predecessor.state() == State::made)
    fail<ArgumentError>({.operation = "node " + name(),
                         .with = {{"predecessor", predecessor.name()}},
                         .wrong = "a predecessor is not submitted",
                         .remedy = "Submit predecessors first"});
  Continuation* head = predecessor.successors_.load(std::memory_order_acquire);
  if (head != &closed) {
    const std::uint32_t edges = edges_.load(std::memory_order_relaxed);
    const bool inside = edges < std::size(some_edges_);
    if (!inside && (more_edges_ == nullptr || more_edges_->used == MoreEdges::size)) {
      auto* const more = new MoreEdges{more_edges_, 0, {}};
      const std::scoped_lock hold(lock_);
      more_edges_ = more;
    }
    Edge* const edge = inside ? &some_edges_[edges] : &more_edges_->edges[more_edges_->used];
    edge->to = this;
    edge->from = &predecessor, edge->kind = kind;
    do edge->next = head;
    while (head != &closed && !predecessor.successors_.compare_exchange_weak(head, edge, std::memory_order_acq_rel));
    if (head != &closed) {
      predecessor.keep();
      if (inside) return edges_.store(edges + 1, std::memory_order_release);
      const std::scoped_lock hold(lock_);
      edges_.store(edges + 1, std::memory_order_relaxed);
      ++more_edges_->used;
      return;
    }
  }
  if (predecessor.failure_ && kind == Dependency::result) poison(predecessor);
}

void Node::set_priority(int priority) noexcept {
  priority_ = static_cast<std::int8_t>(std::clamp(priority, least_priority, most_priority));
}

void Node::submit_and_release() noexcept {
  group_->submitted_.fetch_add(1, std::memory_order_relaxed);
  state_.store(State::waiting, std::memory_order_release);
  const std::uint32_t counted = edges_.load(std::memory_order_relaxed) - unsubmitted;
  if (pending_.fetch_add(counted, std::memory_order_acq_rel) + counted == 0) now_ready();
}

void Node::submit_here() {
  std::vector<NodeRef> before;
  for_each_predecessor([&](Edge& edge) { before.emplace_back(*edge.from); });
  for (const NodeRef& b : before) executor::wait(*b);
  Executor& executor = group_->executor_;
  group_->submitted_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t last = unsubmitted - edges_.load(std::memory_order_relaxed);
  while (pending_.load(std::memory_order_acquire) != last)
    std::this_thread::yield();  // the predecessors will end within a short time
  if (gated_) {                 // a gated node may be in the queue of a CommuteLock
    keep();                     // for the queue
    pending_.store(0, std::memory_order_relaxed);
    state_.store(State::waiting, std::memory_order_release);
    now_ready();
    return executor.wait(*this);
  }
  pending_.store(0, std::memory_order_relaxed);
  state_.store(State::ready, std::memory_order_seq_cst);
  if (claim()) executor.run(*this);
  executor.wait(*this);
}

void Node::predecessor_ended() noexcept {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) now_ready();
}

void Node::now_ready() noexcept {
  if (gated_ && !try_acquire_resources()) return;
  state_.store(State::ready, std::memory_order_release);
  group_->executor_.push(this);
}

bool CommuteLock::take(Node& node) noexcept {
  const std::scoped_lock hold(lock_);
  if (!taken_) return taken_ = true;
  node.pending_.store(1, std::memory_order_relaxed);  // stays 1 until the node is submitted
  node.overflow_ = nullptr;
  (last_ != nullptr ? last_->overflow_ : first_) = &node;
  last_ = &node;
  return false;
}

void CommuteLock::give() noexcept {
  Node* next = nullptr;
  {
    const std::scoped_lock hold(lock_);
    taken_ = false;
    if ((next = first_) == nullptr) return;
    first_ = next->overflow_;
    if (first_ == nullptr) last_ = nullptr;
    next->overflow_ = nullptr;
  }
  next->predecessor_ended();
}

bool Node::cancel() noexcept {
  cancel_.exchange(true, std::memory_order_seq_cst);
  const State now = state_.load(std::memory_order_seq_cst);
  if (now == State::ready) {
    if (!claim()) return false;
    execute();  // skips the node's function
    return true;
  }
  return now < State::ready;
}

bool Node::stop_requested() const noexcept {
  return cancel_.load(std::memory_order_relaxed) || (group_->cancelled() && !ignores_cancellation_);
}

void Node::then(Continuation& continuation) noexcept {
  if (!add_successor(continuation)) continuation.fire(continuation);
}

bool Node::add_successor(Continuation& successor) noexcept {
  Continuation* head = successors_.load(std::memory_order_acquire);
  do successor.next = head;
  while (head != &closed && !successors_.compare_exchange_weak(head, &successor, std::memory_order_acq_rel));
  return head != &closed;
}

void Node::execute() noexcept {
  forget_predecessors();
  // Prefetches the newest successor while the function runs, because it is unlikely to be in this core's cache. The
  // edge is a member of its node, so the node starts `before` bytes earlier. The prefetched range also covers the task.
  constexpr std::size_t before = sizeof(Node) - sizeof(Edge), task = 576;
  if (const Continuation* const newest = successors_.load(std::memory_order_acquire); newest != nullptr)
    slab::prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(newest) - before), task);
  Completion ends = Completion::now;
  if (!failure_) {
    if (cancel_.load(std::memory_order_seq_cst) || (group_->cancelled() && !ignores_cancellation_)) {
      fail_with(nullptr, true);
    } else {
      // Nodes that become ready inside the function are offered to all threads. Nodes that become ready when it ends
      // may run on this thread next.
      Node** const follower = std::exchange(Executor::thread_state_.follower, nullptr);
      try {
        ends = run();
      } catch (...) {
        fail_with(std::current_exception(), false);
      }
      Executor::thread_state_.follower = follower;
    }
  }
  if (ends == Completion::now) finish();
}

void Node::end(std::exception_ptr error) noexcept {
  if (error) fail_with(std::move(error), false);
  finish();
}

void Node::end_without(const Node& predecessor) noexcept {
  poison(predecessor);
  finish();
}

void Node::release_successors(bool (*early)(Node& self, Node& successor, Dependency kind)) noexcept {
  Continuation* newest = successors_.load(std::memory_order_acquire);
  do {
    if (newest == nullptr || newest == &closed) return;
  } while (!successors_.compare_exchange_weak(newest, nullptr, std::memory_order_acq_rel));
  Continuation* list = nullptr;
  while (newest != nullptr) {
    Continuation* const next = newest->next;
    newest->next = list;
    list = newest;
    newest = next;
  }
  while (list != nullptr) {
    Continuation* const next = list->next;
    if (list->fire != nullptr) {
      then(*list);
    } else {
      Edge& edge = static_cast<Edge&>(*list);
      Node& successor = *edge.to;
      if (successor.state() == State::waiting && early(*this, successor, edge.kind)) {
        successor.predecessor_ended();
      } else if (!add_successor(edge)) {  // the predecessor has ended in the meantime
        if (failure_ && edge.kind == Dependency::result) successor.poison(*this);
        successor.predecessor_ended();
      }
    }
    list = next;
  }
}

void Node::finish() noexcept {
  done();
  if (failure_) group_->failed(*this);
  state_.store(State::ended, std::memory_order_release);
  Continuation* newest = successors_.exchange(&closed, std::memory_order_acq_rel);
  Continuation* list = nullptr;
  // Reverses the list, so that successors are notified in the order in which they were added.
  while (newest != nullptr) {
    Continuation* const next = newest->next;
    if (newest->fire == nullptr) slab::prefetch(static_cast<Edge*>(newest)->to, 64);
    newest->next = list;
    list = newest;
    newest = next;
  }
  while (list != nullptr) {
    Continuation* const next = list->next;  // a continuation may be destroyed when it is called
    if (list->fire != nullptr) {
      list->fire(*list);
    } else {
      const Edge& edge = static_cast<Edge&>(*list);
      Node& successor = *edge.to;
      if (failure_ && edge.kind == Dependency::result) [[unlikely]]
        successor.poison(*this);
      successor.predecessor_ended();
    }
    list = next;
  }
  group_->one_has_ended();  // the group may be destroyed from here on
}

void Node::fail_with(std::exception_ptr error, bool cancelled) noexcept {
  try {
    auto origin = std::make_shared<FailureOrigin>();
    origin->error = std::move(error);
    auto failure = std::make_shared<Failure>();
    failure->cancelled = cancelled;
    failure->origin = origin;
    failure_ = failure;
    origin->submission = submission_;
    origin->name = name();
  } catch (...) {
    if (!failure_) failure_ = no_memory();  // there is no memory for the node's name
  }
}

void Node::poison(const Node& predecessor) noexcept {
  const FailureRef& cause = predecessor.failure_;
  FailureRef mine = cause;
  try {
    auto failure = std::make_shared<Failure>(*cause);
    failure->through.push_back(name());
    if (failure->through.size() > Failure::most_names) {
      failure->through.erase(failure->through.begin());
      ++failure->left_out;
    }
    mine = std::move(failure);
  } catch (...) {  // no memory for the name
  }
  const std::scoped_lock hold(lock_);
  // The first failure is kept, except that an error replaces a cancellation.
  if (!failure_ || (failure_->cancelled && !mine->cancelled)) std::swap(failure_, mine);
}

std::vector<NodeRef> Node::predecessors() {
  std::vector<NodeRef> all;
  const std::scoped_lock hold(lock_);
  for_each_predecessor([&](Edge& edge) {
    if (!edge.from->ended()) all.emplace_back(*edge.from);
  });
  return all;
}

void Node::forget_predecessors() noexcept {
  if (edges_.load(std::memory_order_relaxed) == 0) return;
  Node* few[std::size(decltype(some_edges_){})];
  MoreEdges* more = nullptr;
  std::uint32_t inside = 0;
  {
    const std::scoped_lock hold(lock_);
    inside = std::min<std::uint32_t>(edges_.load(std::memory_order_relaxed), std::size(some_edges_));
    for (std::uint32_t i = 0; i < inside; ++i) few[i] = some_edges_[i].from;
    more = std::exchange(more_edges_, nullptr);
    edges_.store(0, std::memory_order_relaxed);
  }
  for (std::uint32_t i = 0; i < inside; ++i) few[i]->drop();
  while (more != nullptr) {
    for (unsigned i = 0; i < more->used; ++i) more->edges[i].from->drop();
    delete std::exchange(more, more->next);
  }
}

}  // namespace tessera::executor
