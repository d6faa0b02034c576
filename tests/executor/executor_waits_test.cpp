// SPDX-License-Identifier: Apache-2.0
// The executor: what a thread runs while it waits, detection of deadlocks, failures and cancellation.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/executor/executor.h"
#include "tests/executor/nodes.h"
#include "tests/support/errors.h"

namespace tessera::executor {
namespace {

using test::expect_contains;
using test::spin_until;
using test::submit;
using test::text_of;

TEST(Waiting, NestedWaitsOnAChainReturn) {
  for (const unsigned threads : {1u, 2u, 3u, 4u})
    for (int round = 0; round < 100; ++round) {
      Executor executor(threads);
      Group group(executor);
      std::atomic<int> ended = 0;
      NodeRef a, b;
      a = submit(group, [&] { ++ended; });
      b = submit(group, [&] { wait(*a), ++ended; });
      const NodeRef c = submit(group, [&] { wait(*b), ++ended; });
      if (round % 2 == 0) wait(*c);
      group.wait();
      EXPECT_EQ(ended, 3);
    }
}

constinit thread_local int waiting_here = 0;

TEST(Waiting, ThreadRunsOnlyNodesThatItWaitsFor) {
  for (const unsigned threads : {1u, 2u, 4u})
    for (int round = 0; round < 30; ++round) {
      Executor executor(threads);
      Group group(executor);
      std::atomic<int> unrelated = 0, needed = 0, wrong = 0;
      std::atomic<bool> go = false;
      const NodeRef gate = submit(group, [&] { spin_until(go); });
      const NodeRef first = submit(group, [&] { ++needed; }, {gate});
      const NodeRef second = submit(group, [&] { ++needed; }, {first});
      for (int w = 0; w < 3; ++w)
        submit(group, [&] {
          ++waiting_here;
          wait(*second);
          --waiting_here;
        });
      for (int i = 0; i < 100; ++i) submit(group, [&] { ++unrelated, wrong += waiting_here; });
      go = true;
      ++waiting_here;
      wait(*second);
      --waiting_here;
      EXPECT_EQ(needed, 2);
      group.wait();
      EXPECT_EQ(unrelated, 100);
      EXPECT_EQ(wrong, 0);
    }
}

TEST(Waiting, OtherThreadsReplaceSleepingThreads) {
  for (const unsigned threads : {1u, 2u, 3u}) {
    Executor executor(threads);
    Group group(executor);
    std::atomic<bool> let_go = false;
    NodeRef held;
    const NodeRef event = submit(group, [&] {
      held = NodeRef(*Executor::current());
      let_go = true;
      return Node::Completion::later;
    });
    spin_until(let_go);
    std::atomic<int> waiting = 0, back = 0;
    for (int i = 0; i < 20; ++i)
      submit(group, [&] {
        ++waiting;
        wait(*event);
        ++back;
      });
    while (waiting != 20) std::this_thread::yield();  // until all of them wait, each on its own thread
    std::atomic<unsigned> at_once = 0, most = 0;
    Group others(executor);
    for (int i = 0; i < 200; ++i)
      submit(others, [&] {
        const unsigned now = ++at_once;
        for (unsigned m = most; now > m && !most.compare_exchange_weak(m, now);) {}
        for (int y = 0; y < 5; ++y) std::this_thread::yield();
        --at_once;
      });
    others.wait();
    EXPECT_LE(most, threads);
    EXPECT_EQ(back, 0);
    held->end();
    group.wait();
    EXPECT_EQ(back, 20);
  }
}

TEST(Waiting, DeadlockErrorListsTheCycle) {
  for (const unsigned threads : {1u, 2u, 4u})
    for (int round = 0; round < 20; ++round) {
      Executor executor(threads);
      Group group(executor);
      NodeRef a, b, c, d;
      std::atomic<bool> made = false;
      a = submit(
          group, [&] { spin_until(made), wait(*d); }, {}, "alpha");
      b = submit(
          group, [&] { spin_until(made), wait(*a); }, {}, "beta");
      c = submit(
          group, [] {}, {b}, "gamma");
      d = submit(
          group, [&] { spin_until(made), wait(*c); }, {}, "delta");
      made = true;
      group.wait();
      // Exactly one of the three waits threw, and its successors failed. The other waits returned.
      int refused = 0;
      for (const NodeRef& n : {a, b, c, d}) {
        if (!n->failure() || n.get() == c.get()) continue;
        ++refused;
        expect_contains(text_of<Error>([&] { std::rethrow_exception(n->failure()->origin->error); }),
                        {"waits for delta", "waits for gamma", "comes after beta", "waits for alpha", "deadlock"});
      }
      EXPECT_EQ(refused, 1);
    }
}

TEST(Waiting, RejectsWaitsForItselfItsSuccessorsOrItsGroup) {  // behaviour 37 in docs/guarantees.md
  for (const unsigned threads : {1u, 2u}) {
    Executor executor(threads);
    Group group(executor);
    std::atomic<bool> made = false;
    NodeRef self, before, after, member;
    self = submit(
        group, [&] { spin_until(made), wait(*self); }, {}, "self");
    before = submit(
        group, [&] { spin_until(made), wait(*after); }, {}, "before");
    after = submit(
        group, [] {}, {before}, "after");
    member = submit(
        group, [&] { group.wait(); }, {}, "member");
    made = true;
    group.wait();
    const auto text = [](const NodeRef& n) {
      EXPECT_NE(n->failure(), nullptr);
      return n->failure() ? text_of<Error>([&] { std::rethrow_exception(n->failure()->origin->error); }) : "";
    };
    expect_contains(text(self), {"self waits for self"});
    expect_contains(text(before), {"before waits for after, which comes after before"});
    expect_contains(text(member), {"member waits for the region of member"});
    EXPECT_EQ(after->failure()->origin, before->failure()->origin);
    // A nested node waits for a node that waits for the nested node's group.
    NodeRef outer;
    made = false;
    FailureRef inner_failed;
    outer = submit(
        group,
        [&] {
          spin_until(made);
          Group inner(executor, &Executor::current()->group());
          const NodeRef child = submit(
              inner, [&] { wait(*outer); }, {}, "child");
          inner.wait();
          inner_failed = child->failure();
        },
        {}, "outer");
    made = true;
    wait(*outer);
    ASSERT_NE(inner_failed, nullptr);
    expect_contains(text_of<Error>([&] { std::rethrow_exception(inner_failed->origin->error); }),
                    {"child waits for outer, which waits for the region of child"});
  }
}

TEST(Waiting, DeeplyNestedWaitsDoNotOverflowTheStack) {
  for (const unsigned threads : {1u, 2u}) {
    Executor executor(threads);
    Group group(executor);
    const std::function<int(int)> sum =
        [&](int n) -> int {  // each node waits for a child node, so the calls are nested on the stack
      if (n == 0) return 0;
      int below = 0;
      Group mine(executor, Executor::current() ? &Executor::current()->group() : nullptr);
      submit(mine, [&] { below = sum(n - 1); });
      mine.wait();
      return below + n;
    };
    EXPECT_EQ(sum(1000), 500'500);
  }
}

struct Counted : Group {
  using Group::Group;
  std::atomic<int> failures = 0;
  void failed(const Node&) noexcept override { ++failures; }
};
const auto wrong = [] { throw std::runtime_error("wrong"); };

TEST(Failures, SkipOnlySuccessorsOfTheFailedNode) {  // behaviour 35 in docs/guarantees.md
  for (const unsigned threads : {1u, 2u, 4u}) {
    Executor executor(threads);
    Counted group(executor);
    std::atomic<int> ran = 0;
    const auto count = [&] { ++ran; };
    const NodeRef bad = submit(group, wrong, {}, "bad"), good = submit(group, count, {}, "good");
    const NodeRef left = submit(group, count, {bad}, "left"), right = submit(group, count, {bad, good}, "right");
    const NodeRef bottom = submit(group, count, {left, right, good}, "bottom");
    const NodeRef unrelated = submit(group, count, {good}, "unrelated");
    group.wait();
    EXPECT_EQ(ran, 2);
    EXPECT_EQ(group.failures, 4);
    for (const NodeRef& n : {bad, left, right, bottom}) {
      ASSERT_NE(n->failure(), nullptr);
      EXPECT_EQ(n->failure()->origin->name, "bad");
      EXPECT_THROW(std::rethrow_exception(n->failure()->origin->error), std::runtime_error);
    }
    EXPECT_EQ(bottom->failure()->through.size(), 2u);
    EXPECT_EQ(bottom->failure()->through.back(), "bottom");
    for (const NodeRef& n : {good, unrelated}) EXPECT_EQ(n->failure(), nullptr);
    // A successor that is added after the failure also fails. The executor can still be used.
    const NodeRef late = submit(group, count, {bottom}, "late");
    wait(*late);
    EXPECT_EQ(late->failure()->origin, bad->failure()->origin);
    NodeRef chain = bad;
    for (int i = 0; i < 1000; ++i) chain = submit(group, count, {chain});
    wait(*chain);
    EXPECT_EQ(chain->failure()->through.size() + chain->failure()->left_out, 1000u);
    EXPECT_EQ(ran, 2);
  }
}

TEST(Failures, PropagateFromNodesThatEndLater) {
  Executor executor(2);
  Group group(executor);
  std::atomic<bool> begun = false;
  NodeRef held;
  const NodeRef event = submit(group, [&] {
    held = NodeRef(*Executor::current());
    begun = true;
    return Node::Completion::later;
  });
  const NodeRef after = submit(group, [] {}, {event});
  spin_until(begun);
  EXPECT_FALSE(event->ended());
  held->end(std::make_exception_ptr(std::runtime_error("lost")));
  wait(*after);
  EXPECT_THROW(std::rethrow_exception(after->failure()->origin->error), std::runtime_error);
}

TEST(Cancellation, CancelsReadyWaitingAndRunningNodes) {  // behaviour 36 in docs/guarantees.md
  for (const unsigned threads : {1u, 2u}) {
    Executor executor(threads);
    Group group(executor);
    std::atomic<bool> begun = false, go = false, saw = false;
    std::atomic<int> ran = 0;
    const NodeRef runs = submit(group, [&] {
      begun = true;
      spin_until(go);
      saw = Executor::current()->stop_requested();
    });
    spin_until(begun);
    const NodeRef ready = submit(group, [&] { ++ran; }), waits = submit(group, [&] { ++ran; }, {runs});
    const NodeRef normal = submit(group, [&] { ++ran; }, {runs}), after = submit(group, [&] { ++ran; }, {ready});
    EXPECT_FALSE(runs->cancel());
    EXPECT_TRUE(waits->cancel());
    ready->cancel();  // with two threads, it may already have started
    go = true;
    group.wait();
    EXPECT_TRUE(saw);
    EXPECT_EQ(runs->failure(), nullptr);
    EXPECT_EQ(normal->failure(), nullptr);
    ASSERT_NE(waits->failure(), nullptr);
    EXPECT_TRUE(waits->failure()->cancelled);
    EXPECT_EQ(ready->failure() == nullptr, after->failure() == nullptr);
    EXPECT_EQ(ran, ready->failure() ? 1 : 3);
    EXPECT_FALSE(normal->cancel());

    begun = go = false;
    Group whole(executor);
    submit(whole, [&] { begun = true, spin_until(go); });
    spin_until(begun);
    Group inner(executor, &whole);
    ran = 0;
    for (int i = 0; i < 50; ++i) submit(i % 2 ? whole : inner, [&] { ++ran; });
    const int before = ran;
    whole.cancel();
    const NodeRef late = submit(whole, [&] { ADD_FAILURE(); });
    go = true;
    whole.wait();
    EXPECT_TRUE(late->failure()->cancelled);
    EXPECT_LE(ran, before + 4);
  }
}

TEST(Cancellation, CancelsNodesThatAreDestroyedBeforeSubmission) {
  Executor executor(2);
  Group group(executor);
  NodeRef left;
  {
    Submission given_up(make_node(group, [] { ADD_FAILURE(); }));
    given_up->after(*submit(group, [] {}));
    left = NodeRef(*given_up);
  }
  wait(*left);
  EXPECT_TRUE(left->failure()->cancelled);
}

}  // namespace
}  // namespace tessera::executor
