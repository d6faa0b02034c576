// SPDX-License-Identifier: Apache-2.0
// The pool of threads: everything is done once, several callers, nested work, errors, forked children; and the backend
// without the module.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "tessera/backend/cpu/pool.h"
#include "tests/support/cpu_compare.h"

namespace tessera::testing {
namespace {

using cpu::ThreadPool;

TEST(CpuPool, DoesEverythingOnce) {
  ThreadPool pool(4);
  for (std::uint64_t items : {1u, 2u, 63u, 1000u, 100'003u})
    for (std::uint64_t grain : {1u, 7u, 64u, 5000u}) {
      std::vector<std::atomic<int>> done(items);
      pool.run(items, grain, [&](std::uint64_t begin, std::uint64_t end) {
        EXPECT_LE(end - begin, grain);
        for (auto i = begin; i < end; ++i) ++done[i];
      });
      for (auto& d : done) ASSERT_EQ(d, 1);
    }
  pool.run(0, 1, [](std::uint64_t, std::uint64_t) { FAIL(); });
}

TEST(CpuPool, UsesItsThreads) {
  ThreadPool pool(3);
  std::mutex lock;
  std::set<std::thread::id> seen;
  std::atomic<int> waiting = 0;
  pool.run(3, 1, [&](std::uint64_t, std::uint64_t) {
    ++waiting;
    while (waiting < 3) std::this_thread::yield();  // ends only if three threads are here at once
    const std::scoped_lock hold(lock);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_TRUE(seen.contains(std::this_thread::get_id()));
}

TEST(CpuPool, SeveralCallersAndNestedWork) {
  ThreadPool pool(3);
  std::atomic<std::uint64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        pool.run(20, 1, [&](std::uint64_t begin, std::uint64_t) {
          pool.run(10, 2, [&](std::uint64_t b, std::uint64_t e) { sum += (e - b) * (begin + 1); });
        });
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(sum, 4u * 50 * 10 * 210);
}

TEST(CpuPool, ErrorsComeBack) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(1000, 1,
                        [](std::uint64_t b, std::uint64_t) {
                          if (b == 500) throw std::runtime_error("x");
                        }),
               std::runtime_error);
  std::atomic<int> after = 0;
  pool.run(100, 1, [&](std::uint64_t, std::uint64_t) { ++after; });
  EXPECT_EQ(after, 100);
}

ir::Function add_one() {
  return map_kernel("add_one", [] {
    auto x = ir::buffer_param("x", DType::i32, ir::Access::read_write);
    x.store(ir::global_id(), x.load(ir::global_id()) + 1);
  });
}

TEST(CpuPool, AForkedChildComputes) {
  Cpu cpu;
  std::vector<std::int32_t> x(2'000'000, 5);
  cpu.call().buffer(x).run(add_one(), {x.size(), 1, 1});
  ASSERT_EQ(x[1'999'999], 6);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs is killed, and the test fails
    try {
      cpu.call().buffer(x).run(add_one(), {x.size(), 1, 1});
      _exit(x[0] == 7 && x[1'999'999] == 7 ? 0 : 1);
    } catch (const DeviceError&) {
      _exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CpuPool, LaunchesFromSeveralThreads) {
  Cpu cpu;
  auto kernel = cpu.compile(add_one());
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      std::vector<std::int32_t> x(300'000, 1);
      for (int i = 0; i < 5; ++i) cpu.call().buffer(x).run(*kernel, {x.size(), 1, 1});
      for (auto v : x) ASSERT_EQ(v, 6);
    });
  for (auto& c : callers) c.join();
}

TEST(CpuWithoutModule, RunsOnTheInterpreterAndSaysSo) {
  ::setenv("TESSERA_CODEGEN_LIBRARY", "/nowhere/libtessera-codegen.so", 1);
  Cpu cpu;
  ::unsetenv("TESSERA_CODEGEN_LIBRARY");
  EXPECT_NE(cpu.info().reason.find("/nowhere/libtessera-codegen.so"), std::string::npos) << cpu.info().reason;
  EXPECT_NE(cpu.info().reason.find("interpreter"), std::string::npos) << cpu.info().reason;
  EXPECT_NE(cpu.info().remedy.find("TESSERA_CODEGEN_LIBRARY"), std::string::npos) << cpu.info().remedy;
  std::vector<std::int32_t> x(1000, 1);
  cpu.call().buffer(x).run(add_one(), {x.size(), 1, 1});
  for (auto v : x) ASSERT_EQ(v, 2);
  EXPECT_NE(cpu.compile(add_one())->source().find("kernel add_one"), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
