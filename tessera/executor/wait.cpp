// SPDX-License-Identifier: Apache-2.0
// Waiting: what a thread runs while it waits, how it sleeps, and the detection of deadlocks.
#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/executor/executor.h"

namespace tessera::executor {

namespace {

constexpr int waiting_spins = 2000;  // fewer than for an idle thread, because others can use this thread's slot
constexpr unsigned deepest = 256;    // maximum nesting depth of nodes on one thread, which limits the stack size
constexpr unsigned most_steps = 4096;

}  // namespace

// Blocks a thread until another thread signals it. There is one object per thread. It outlives each wait, so that the
// signalling thread can finish safely.
class Sleeper {
 public:
  static Sleeper& of_this_thread() { return os::PerThread<Sleeper, Sleeper>::get(); }
  void signal() noexcept {
    const std::scoped_lock hold(lock_);
    signalled_ = true;
    changed_.notify_one();
  }
  void sleep() {
    std::unique_lock hold(lock_);
    changed_.wait(hold, [&] { return signalled_; });
    signalled_ = false;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  bool signalled_ = false;
};

// Depth-first search for ready nodes among a node and its predecessors. Each step continues where the last one stopped.
// Waiting for the end of a long graph therefore visits each node only a few times.
class Needs {
 public:
  explicit Needs(Node& node) { frames_.push_back({NodeRef(node), false}); }

  /// Returns a ready node that is claimed for the caller; null if there is none.
  NodeRef next() {
    for (unsigned steps = 0; !frames_.empty() && steps < most_steps; ++steps) {
      Node& node = *frames_.back().node;
      switch (node.state()) {
        case Node::State::ready:
          if (node.claim()) return frames_.back().node;
          break;
        case Node::State::waiting:
          if (!frames_.back().seen) {
            frames_.back().seen = true;
            const std::scoped_lock hold(node.lock_);
            node.for_each_predecessor([&](Node::Edge& edge) {
              if (!edge.from->ended()) frames_.push_back({NodeRef(*edge.from), false});
            });
            continue;
          }
          break;
        default: break;  // it has ended or another thread runs it
      }
      if (frames_.size() == 1) break;  // keep the root of the search
      frames_.pop_back();
    }
    frames_.resize(1);
    frames_.front().seen = false;
    return {};
  }

 private:
  struct Frame {
    NodeRef node;
    bool seen;
  };
  std::vector<Frame> frames_;
};

// The slot of the calling thread while it waits. Workers have a slot. A thread from outside gets the last slot, the
// slot of a sleeping thread, or none.
class Executor::Visit {
 public:
  explicit Visit(Executor& executor) : executor_(executor), before_(thread_state_) {
    if (thread_state_.executor == &executor && thread_state_.worker != nullptr) return;
    const std::scoped_lock hold(executor.lock_);
    if (executor.threads_ > 1 && !executor.guest_)
      kind_ = Kind::guest;
    else if (executor.free_slots_.load(std::memory_order_relaxed) > static_cast<int>(executor.returning_))
      kind_ = Kind::in_room;
    Worker* const worker = kind_ == Kind::member ? nullptr : executor.lease();
    if (worker == nullptr) {
      kind_ = Kind::outside;
      return;
    }
    if (kind_ == Kind::guest)
      executor.guest_ = true;
    else
      executor.free_slots_.fetch_sub(1, std::memory_order_relaxed);
    thread_state_ = {&executor, worker, before_.node, nullptr, before_.depth};
  }
  ~Visit() {
    if (kind_ == Kind::member || kind_ == Kind::outside) return;
    thread_state_.worker->used.store(false, std::memory_order_release);
    thread_state_ = before_;
    if (kind_ == Kind::in_room) {
      executor_.release_slot();
      return;
    }
    const std::scoped_lock hold(executor_.lock_);
    executor_.guest_ = false;
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  /// True if this thread may run nodes.
  bool may_run() const noexcept { return kind_ != Kind::outside && thread_state_.depth < deepest; }

  /// Calls `f`, which sleeps, while another thread uses this thread's slot.
  template <class F>
  void away(F&& f) {
    if (kind_ == Kind::outside) return f();
    executor_.release_slot();
    f();
    // A thread from outside continues with its own work and needs no slot.
    executor_.reacquire_slot(kind_ == Kind::member);
  }

 private:
  enum class Kind { member, guest, in_room, outside };
  Executor& executor_;
  const ThreadState before_;
  Kind kind_ = Kind::member;
};

// Registers the calling thread's node as a waiting node during the lifetime of the object.
class Executor::Announced {
 public:
  Announced(Executor& executor, Node* target, const Group* group)
      : executor_(executor), self_(thread_state_.node), target_(target), group_(group) {
    if (self_ != nullptr) {
      self_->waits();
      const std::scoped_lock hold(executor_.waits_lock_);
      executor_.waits_.push_back({self_, target, group});
    }
    if (observer_ != nullptr) [[unlikely]]
      observer_->wait_begins(self_, target, group);
  }
  ~Announced() {
    if (observer_ != nullptr) [[unlikely]]
      observer_->wait_ends();
    if (self_ == nullptr) return;
    const std::scoped_lock hold(executor_.waits_lock_);
    auto& waits = executor_.waits_;
    std::erase_if(waits, [&](const Wait& w) { return w.self == self_ && w.target == target_ && w.group == group_; });
  }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;
  /// Called before sleeping. The last node of a cycle that calls this function sees the whole cycle.
  void refuse_cycle() {
    if (self_ != nullptr) executor_.refuse_cycle(*self_, target_, group_);
  }

 private:
  Executor& executor_;
  Node* const self_;
  Node* const target_;
  const Group* const group_;
  WaitTracer* const observer_ = WaitTracer::instance.load(std::memory_order_acquire);
};

void Executor::refuse_cycle(Node& self, Node* target, const Group* group) {
  struct Found {
    Node* by;  // the node that waits for this node or is its successor
    const char* how;
  };
  std::unordered_map<Node*, Found> found;
  std::vector<NodeRef> open;
  const auto reach = [&](Node* node, Node* by, const char* how) {
    if (!node->ended() && found.try_emplace(node, Found{by, how}).second) open.emplace_back(*node);
  };
  const std::scoped_lock hold(waits_lock_);
  const auto reach_group = [&](const Group& inner, Node* by) {
    if (self.group_->inside(inner)) reach(&self, by, "waits for the region of");
    for (const Wait& w : waits_)  // other nodes of the group end without help, or their threads detect the cycle
      if (w.self->group_->inside(inner)) reach(w.self, by, "waits for the region of");
  };
  if (target != nullptr)
    reach(target, &self, "waits for");
  else
    reach_group(*group, &self);
  for (std::size_t i = 0; i < open.size() && !found.contains(&self); ++i) {
    Node* const node = open[i].get();
    if (node->state() < Node::State::running)
      for (const NodeRef& p : node->predecessors()) reach(p.get(), node, "comes after");
    for (const Wait& w : waits_) {
      if (w.self != node) continue;
      if (w.target != nullptr)
        reach(w.target, node, "waits for");
      else
        reach_group(*w.group, node);
    }
  }
  if (!found.contains(&self)) return;
  // Remove this wait, so that other threads do not report the same cycle again.
  std::erase_if(waits_, [&](const Wait& w) { return w.self == &self && w.target == target && w.group == group; });
  std::vector<std::pair<std::string, const char*>> names;  // in reverse order of the cycle
  for (Node* at = &self;;) {
    const Found& step = found.at(at);
    names.emplace_back(at->name(), step.how);
    at = step.by;
    if (at == &self) break;
  }
  std::string text = self.name();
  for (std::size_t i = names.size(); i-- > 0;)
    text += fmt::format("{}{} {}", i + 1 == names.size() ? " " : ", which ", names[i].second, names[i].first);
  fail<Error>({.operation = "wait",
               .wrong = "deadlock: the tasks wait for each other: " + text,
               .remedy = "Declare a dependency on the other task instead of waiting for it inside a task"});
}

void Executor::refuse_forked() const {
  if (generation_ == os::fork_generation()) return;
  fail<Error>({.operation = "wait",
               .wrong = "the task was started before this process was forked and runs only in the parent",
               .remedy = "Wait for it before fork(), or start tasks in the child"});
}

void Executor::wait(Node& node) {
  if (node.ended()) return;
  refuse_forked();
  const NodeRef held(node);
  Visit visit(*this);
  Announced announced(*this, &node, nullptr);
  Needs needs(node);
  while (!node.ended() && visit.may_run()) {
    const NodeRef next = needs.next();
    if (!next) break;
    run(*next);
  }
  for (int i = 0; i < waiting_spins; ++i)
    if (node.ended()) return;
  announced.refuse_cycle();
  struct Waiter : Continuation {
    Sleeper& sleeper = Sleeper::of_this_thread();
  } waiter;
  waiter.fire = [](Continuation& self) noexcept { static_cast<Waiter&>(self).sleeper.signal(); };
  visit.away([&] {
    node.then(waiter);
    waiter.sleeper.sleep();
  });
}

NodeRef Executor::claim_in(const Group& group) noexcept {
  const auto wanted = [&](const Node& node) { return node.group_->inside(group); };
  TaskQueue& mine = thread_state_.worker->queue;
  if (NodeRef node = mine.claim(wanted)) return node;
  if (NodeRef node = inbox_.claim(wanted)) return node;
  const unsigned count = worker_count_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    TaskQueue& queue = workers_[i].load(std::memory_order_acquire)->queue;
    if (&queue == &mine) continue;
    if (NodeRef node = queue.claim(wanted)) return node;
  }
  return {};
}

void Executor::wait_for(Group& group, std::uint32_t until_left) {
  if (group.in_flight() <= until_left) return;
  refuse_forked();
  Visit visit(*this);
  Announced announced(*this, nullptr, &group);
  while (group.in_flight() > until_left) {
    if (visit.may_run()) {
      if (const NodeRef node = claim_in(group)) {
        run(*node);
        continue;
      }
    }
    NodeRef late;
    for (int i = 1; i < waiting_spins && !late; ++i) {
      if (group.in_flight() <= until_left) return;
      if (i % 256 == 0 && visit.may_run() && work_seems_left()) late = claim_in(group);
    }
    if (late) {
      run(*late);
      continue;
    }
    announced.refuse_cycle();
    visit.away([&] { group.sleep(until_left); });
  }
}

Group::Group(Executor& executor, Group* parent, std::uint32_t window)
    : executor_(executor), parent_(parent), window_(window) {}

Group::~Group() {
  if (executor_.generation_ != os::fork_generation()) return;  // its nodes end only in the parent
  while (in_flight() != 0) {
    try {
      executor_.wait_for(*this, 0);
    } catch (...) {
      std::this_thread::yield();  // out of memory, or a cycle that was already reported
    }
  }
}

void Group::wait() { executor_.wait_for(*this, 0); }

void Group::throttle() {
  // Other threads update `ended_` all the time, so read it only if the window may be exceeded.
  if (window_ == 0 ||
      submitted_.load(std::memory_order_relaxed) - seen_ended_.load(std::memory_order_relaxed) <= window_)
    return;
  const auto ended = static_cast<std::uint32_t>(ended_.load(std::memory_order_acquire) >> 32);
  seen_ended_.store(ended, std::memory_order_relaxed);
  if (submitted_.load(std::memory_order_relaxed) - ended <= window_) return;
  if (const Node* node = Executor::current(); node != nullptr && node->group().inside(*this)) return;
  executor_.wait_for(*this, window_ / 2);
}

bool Group::cancelled() const noexcept {
  for (const Group* g = this; g != nullptr; g = g->parent_)
    if (g->cancelled_.load(std::memory_order_acquire)) return true;
  return false;
}

bool Group::inside(const Group& outer) const noexcept {
  for (const Group* g = this; g != nullptr; g = g->parent_)
    if (g == &outer) return true;
  return false;
}

std::uint32_t Group::in_flight() const noexcept {
  // The order matters: a node that ends between the two loads is counted as unfinished. An unfinished node is never
  // counted as ended.
  const auto ended = static_cast<std::uint32_t>(ended_.load(std::memory_order_acquire) >> 32);
  return submitted_.load(std::memory_order_acquire) - ended;
}

void Group::one_has_ended() noexcept {
  std::uint64_t before = ended_.load(std::memory_order_relaxed);
  std::uint64_t after = 0;
  do after = before + one_ended - ((before & (one_ended - 1)) != 0 ? 1 : 0);
  while (!ended_.compare_exchange_weak(before, after, std::memory_order_acq_rel));
  if ((before & (one_ended - 1)) == 1) sleeper_->signal();
}

void Group::sleep(std::uint32_t until_left) {
  const std::scoped_lock hold(one_waits_);
  sleeper_ = &Sleeper::of_this_thread();
  std::uint64_t before = ended_.load(std::memory_order_acquire);
  do {
    const std::uint32_t left = submitted_.load(std::memory_order_acquire) - static_cast<std::uint32_t>(before >> 32);
    if (left <= until_left) return;
    const std::uint64_t after = before + (left - until_left);
    if (ended_.compare_exchange_weak(before, after, std::memory_order_acq_rel)) break;
  } while (true);
  sleeper_->sleep();
}

void wait(Node& node) {
  if (node.ended()) return;
  node.group().executor().wait(node);
}

}  // namespace tessera::executor
