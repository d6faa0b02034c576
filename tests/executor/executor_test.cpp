// SPDX-License-Identifier: Apache-2.0
// The executor with different numbers of threads: pieces of kernels, ordering, memory and fork. Waits, failures and
// cancellation are tested in executor_waits_test.cpp.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tessera/base/os/fork.h"
#include "tessera/base/test_seed.h"
#include "tessera/executor/executor.h"
#include "tests/executor/nodes.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace tessera::executor {
namespace {

using namespace std::chrono_literals;
using test::expect_contains;
using test::spin_until;
using test::submit;
using test::text_of;

TEST(Pieces, RunEveryItemOnce) {
  Executor threads(4);
  for (std::uint64_t items : {1u, 2u, 63u, 1000u, 100'003u})
    for (std::uint64_t grain : {1u, 7u, 64u, 5000u}) {
      std::vector<std::atomic<int>> done(items);
      threads.parallel_for(items, grain, [&](std::uint64_t begin, std::uint64_t end) {
        EXPECT_LE(end - begin, grain);
        for (auto i = begin; i < end; ++i) ++done[i];
      });
      for (auto& d : done) ASSERT_EQ(d, 1);
    }
  threads.parallel_for(0, 1, [](std::uint64_t, std::uint64_t) { FAIL(); });
}

/// Returns only when `count` threads run this function at the same time.
void meet(Executor& threads, int count) {
  std::mutex lock;
  std::set<std::thread::id> seen;
  std::atomic<int> waiting = 0;
  threads.parallel_for(static_cast<std::uint64_t>(count), 1, [&](std::uint64_t, std::uint64_t) {
    ++waiting;
    while (waiting < count) std::this_thread::yield();
    const std::scoped_lock hold(lock);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
}

TEST(Pieces, UseAllThreadsFromANode) {
  Executor threads(3);
  meet(threads, 3);
  Group group(threads);
  submit(group, [&] { meet(threads, 2); });  // the main thread may or may not be waiting at this time
  group.wait();
}

TEST(Pieces, SupportConcurrentAndNestedCalls) {
  Executor threads(3);
  std::atomic<std::uint64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        threads.parallel_for(20, 1, [&](std::uint64_t begin, std::uint64_t) {
          threads.parallel_for(10, 2, [&](std::uint64_t b, std::uint64_t e) { sum += (e - b) * (begin + 1); });
        });
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(sum, 4u * 50 * 10 * 210);
}

TEST(Pieces, RethrowErrorsToTheCaller) {
  Executor threads(3);
  EXPECT_THROW(threads.parallel_for(1000, 1,
                                    [](std::uint64_t b, std::uint64_t) {
                                      if (b == 500) throw std::runtime_error("x");
                                    }),
               std::runtime_error);
  std::atomic<int> after = 0;
  threads.parallel_for(100, 1, [&](std::uint64_t, std::uint64_t) { ++after; });
  EXPECT_EQ(after, 100);
}

constinit thread_local int in_pieces = 0;

TEST(Pieces, CallerRunsNoNodesWhileWaitingForPieces) {
  Executor threads(2);
  Group group(threads);
  std::atomic<int> ran = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 20; ++i)
      submit(group, [&] {
        EXPECT_EQ(in_pieces, 0);
        ++ran;
        ++in_pieces;
        threads.parallel_for(8, 1, [](std::uint64_t, std::uint64_t) { std::this_thread::yield(); });
        --in_pieces;
      });
    ++in_pieces;
    threads.parallel_for(16, 1, [](std::uint64_t, std::uint64_t) { std::this_thread::yield(); });
    --in_pieces;
  }
  group.wait();
  EXPECT_EQ(ran, 1000);
}

/// Runs a random graph. Each node combines the results of its predecessors. Some nodes also create nodes and wait for
/// them, wait for earlier nodes, launch pieces, or are ended by another thread.
void random_graph(unsigned threads, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << threads << " threads, graph " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  struct Step {
    std::vector<int> before;
    int kind = 0, waits_for = -1, delay = 0;
    std::uint64_t expected = 0;
    std::atomic<std::uint64_t> value = 0;
  };
  const int count = static_cast<int>(2 + below(60));
  std::vector<Step> steps(static_cast<std::size_t>(count));
  const auto mix = [](std::uint64_t a, std::uint64_t b) { return (a ^ b) * 0x9E3779B97F4A7C15u + (a >> 31); };
  for (int i = 0; i < count; ++i) {
    Step& s = steps[static_cast<std::size_t>(i)];
    for (std::uint64_t n = i == 0 ? 0 : below(std::min(i, 12)); n > 0; --n)
      s.before.push_back(static_cast<int>(below(static_cast<std::uint64_t>(i))));  // may add the same predecessor twice
    s.kind = static_cast<int>(below(10));
    s.delay = static_cast<int>(below(40)) - 20;
    s.waits_for = i > 0 && s.kind == 1 ? static_cast<int>(below(static_cast<std::uint64_t>(i))) : -1;
    s.expected = static_cast<std::uint64_t>(i) + 1;
    for (const int b : s.before) s.expected = mix(s.expected, steps[static_cast<std::size_t>(b)].expected);
    if (s.waits_for >= 0) s.expected = mix(s.expected, steps[static_cast<std::size_t>(s.waits_for)].expected);
  }
  Executor executor(threads);
  Group group(executor, nullptr, below(2) ? 16 : 0);
  std::vector<NodeRef> nodes(steps.size());
  std::mutex lock;
  std::vector<NodeRef> elsewhere;
  std::atomic<bool> over = false;
  std::thread poller([&] {
    while (!over) {
      std::vector<NodeRef> now;
      {
        const std::scoped_lock hold(lock);
        now.swap(elsewhere);
      }
      std::this_thread::sleep_for(20us);
      for (const NodeRef& n : now) n->end();
    }
  });
  const auto work = [&](int i) {
    Step& s = steps[static_cast<std::size_t>(i)];
    if (s.delay > 15) std::this_thread::sleep_for(std::chrono::microseconds(10 * s.delay));
    for (int d = 0; d < s.delay; ++d) std::this_thread::yield();
    std::uint64_t value = static_cast<std::uint64_t>(i) + 1;
    for (const int b : s.before) value = mix(value, steps[static_cast<std::size_t>(b)].value);
    if (s.kind == 1 && s.waits_for >= 0) {
      wait(*nodes[static_cast<std::size_t>(s.waits_for)]);
      value = mix(value, steps[static_cast<std::size_t>(s.waits_for)].value);
    } else if (s.kind == 2) {
      Group inner(executor, &Executor::current()->group());
      std::atomic<int> ran = 0;
      const NodeRef first = submit(inner, [&] { ++ran; });
      for (int c = 0; c < 5; ++c) submit(inner, [&] { ++ran; }, {first});
      inner.wait();
      EXPECT_EQ(ran, 6);
    } else if (s.kind == 3) {
      std::atomic<int> ran = 0;
      executor.parallel_for(10, 1, [&](std::uint64_t, std::uint64_t) { ++ran; });
      EXPECT_EQ(ran, 10);
    }
    s.value = value;
    if (s.kind != 4) return Node::Completion::now;
    const std::scoped_lock hold(lock);
    elsewhere.push_back(NodeRef(*Executor::current()));
    return Node::Completion::later;
  };
  for (int i = 0; i < count; ++i) {
    const Step& s = steps[static_cast<std::size_t>(i)];
    std::vector<NodeRef> before;
    for (const int b : s.before) before.push_back(nodes[static_cast<std::size_t>(b)]);
    Submission node(make_node(group, [&work, i] { return work(i); }));
    for (const NodeRef& b : before) node->after(*b);
    node->set_priority(static_cast<int>(below(12)) - 6);
    nodes[static_cast<std::size_t>(i)] = NodeRef(*node);  // nodes that wait for this one are created later
    node.submit();
    group.throttle();
    if (below(20) == 0) {
      const auto other = below(static_cast<std::uint64_t>(i) + 1);
      wait(*nodes[other]);
      EXPECT_EQ(steps[other].value, steps[other].expected);
    }
  }
  if (below(2))
    for (const NodeRef& n : nodes) wait(*n);
  group.wait();
  for (const Step& s : steps) ASSERT_EQ(s.value, s.expected);
  over = true;
  poller.join();
}

TEST(Order, RandomGraphsMatchSequentialExecution) {
  std::mt19937_64 random(test_seed());
  const int graphs = std::getenv("TESSERA_TEST_LONG") ? 10000 : 200;
  for (int i = 0; i < graphs && !::testing::Test::HasFailure(); ++i)
    random_graph(static_cast<unsigned>(1 + random() % 4), random());
}

TEST(Order, RespectsDependenciesInChainsWideGraphsAndDiamonds) {  // behaviour 38 in docs/guarantees.md
  for (const unsigned threads : {1u, 2u, 4u}) {
    Executor executor(threads);
    Group group(executor);
    std::atomic<bool> go = false;
    int in_order = 0;
    NodeRef last = submit(group, [&] { spin_until(go); });
    for (int i = 0; i < 100'000; ++i) last = submit(group, [&in_order, i] { in_order += in_order == i; }, {last});
    go = true;
    wait(*last);
    EXPECT_EQ(in_order, 100'000);

    std::atomic<int> ran = 0;
    go = false;
    const NodeRef source = submit(group, [&] { spin_until(go); });
    Submission sink(make_node(group, [&] { EXPECT_EQ(ran, 20'000); }));
    for (int i = 0; i < 20'000; ++i) sink->after(*submit(group, [&] { ++ran; }, {source}));
    const NodeRef end = sink.submit();
    go = true;
    wait(*end);
    EXPECT_EQ(end->failure(), nullptr);

    std::vector<std::thread> makers;
    for (int m = 0; m < 4; ++m)
      makers.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          std::atomic<int> seen = 0;
          Group mine(executor);
          const NodeRef top = submit(mine, [&] { seen = 1; });
          const NodeRef left = submit(mine, [&] { ++seen; }, {top}), right = submit(mine, [&] { ++seen; }, {top});
          const NodeRef bottom = submit(mine, [&] { seen = seen * 10; }, {left, right});
          wait(*bottom);
          EXPECT_EQ(seen, 30);
        }
      });
    for (auto& m : makers) m.join();
  }
}

TEST(Order, NodesRunEvenIfNoThreadWaits) {
  for (const unsigned threads : {1u, 2u, 3u}) {
    Executor executor(threads);
    Group group(executor);
    std::atomic<int> ran = 0;
    for (int i = 0; i < 100; ++i) submit(group, [&] { ++ran; });
    while (ran != 100) std::this_thread::sleep_for(1ms);
  }
}

TEST(Order, HigherPrioritiesRunFirst) {
  Executor executor(1);
  Group group(executor);
  std::atomic<bool> begun = false, go = false;
  submit(group, [&] { begun = true, spin_until(go); });
  spin_until(begun);
  std::vector<int> order;
  for (int i = 0; i < 60; ++i) {
    Submission node(make_node(group, [&order, i] { order.push_back(i); }));
    node->set_priority(i % 3 - 1);
    node.submit();
  }
  go = true;
  group.wait();
  ASSERT_EQ(order.size(), 60u);
  for (std::size_t i = 1; i < order.size(); ++i) {
    EXPECT_GE(order[i - 1] % 3, order[i] % 3);
    if (order[i - 1] % 3 == order[i] % 3) {
      EXPECT_LT(order[i - 1], order[i]) << "equal priorities run in submission order";
    }
  }
}

TEST(Order, RejectsUnsubmittedPredecessors) {
  Executor executor(1);
  Group group(executor);
  Submission a(make_node(
      group, [] {}, "first")),
      b(make_node(
          group, [] {}, "second"));
  expect_contains(text_of<ArgumentError>([&] { b->after(*a); }), {"second", "first", "not submitted"});
}

TEST(Order, WindowLimitsUnfinishedNodes) {
  Executor executor(2);
  Group group(executor, nullptr, 100);
  std::atomic<int> ran = 0;
  for (int i = 0; i < 20'000; ++i) {
    submit(group, [&] { ++ran; });
    group.throttle();
    EXPECT_LE(group.in_flight(), 101u);
  }
  group.wait();
  EXPECT_EQ(ran, 20'000);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Order, MillionNodesUseBoundedMemory) {
  Executor executor(2);
  Group group(executor, nullptr, 4096);
  const auto resident = [] {
    std::size_t all = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> all >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  };
  std::size_t early = 0;
  NodeRef last;
  for (int i = 0; i < 1'000'000; ++i) {
    if (i == 100'000) early = resident();
    last = i % 2 == 0 || !last ? submit(group, [] {}) : submit(group, [] {}, {last});
    group.throttle();
  }
  EXPECT_LE(resident(), early + 5 * 1024 * 1024);
}
#endif

TEST(Fork, NodesRunInAChildForkedAtAnyTime) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 30; ++round) {
    ::fflush(nullptr);
    const pid_t process = ::fork();
    if (process == 0) {
      ::setenv("TESSERA_THREADS", std::to_string(1 + round % 3).c_str(), 1);
      // Turns a hang into a failure; measures wall-clock time, so the limit is generous for a busy machine.
      ::alarm(200);
      Group group(Executor::instance());
      std::atomic<bool> over = false;
      // In builds with the thread sanitizer, the child hangs if a thread holds the lock of the sanitizer's allocator
      // during the fork. In these builds, no thread allocates during the fork.
      std::thread maker([&] {
        while (!over && !test::thread_sanitized) {
          submit(group, [] {});
          group.throttle();
          std::this_thread::sleep_for(
              std::chrono::microseconds(20));  // the address sanitizer uses memory for each allocation
        }
      });
      if (test::thread_sanitized) maker.join();
      std::atomic<bool> let_go = false, runs = false;
      const NodeRef parents = submit(group, [&] { runs = true, spin_until(let_go); });
      if (test::thread_sanitized) spin_until(runs);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(150);
        int ran = 0;
        Group mine(Executor::instance());
        NodeRef last = submit(mine, [&] { ++ran; });
        for (int i = 0; i < 100; ++i) last = submit(mine, [&] { ++ran; }, {last});
        wait(*last);
        bool refused = false;
        try {
          wait(*parents);
        } catch (const Error& e) {
          refused = std::string(e.what()).find("forked") != std::string::npos;
        }
        ::_exit(ran == 101 && refused ? 0 : 1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      let_go = over = true;
      if (maker.joinable()) maker.join();
      group.wait();
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(process, &status, 0), process);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
}

}  // namespace
}  // namespace tessera::executor

/// The fork tests fork while other threads are running.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
