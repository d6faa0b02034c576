// SPDX-License-Identifier: Apache-2.0
// Collectives over fake GPUs with fakes of NCCL and RCCL, which check how they are called: when the library is used,
// what is reported when it is not, and what happens when it fails. collectives_test and ranks_training_test compare the
// results on the same fakes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <set>

#include "tessera/base/os/library.h"
#include "tessera/device/context.h"
#include "tessera/dist/world.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using dist::World;
using test::Variables;

struct Maker {
  const char* name;  ///< name of the fake library
  Backend backend;
  const char *variable, *version;
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), text.npos) << part << "\nis not in\n" << text;
}

class Nccl : public ::testing::TestWithParam<Maker> {
 protected:
  static const Maker& maker() { return GetParam(); }
  static Device gpu(int index) { return {maker().backend, index}; }
  static std::uint64_t count(const char* what) {
    return os::Library::open(test::fake_library(maker().name))
        .function<std::uint64_t(const char*)>("tessera_fake_nccl")(what);
  }
  /// Runs `work` in a child with 4 fake GPUs. Returns its output on standard error, with violations of the libraries'
  /// rules.
  static std::string run(const Variables& changed, const std::function<void()>& work) {
    const auto [text, code] = test::errors_at_exit([&] {
      for (const auto& [name, value] : test::with_fakes({{"TESSERA_FAKE_DEVICES", "4"},
                                                         {"TESSERA_NCCL_LIBRARY", "none"},
                                                         {"TESSERA_RCCL_LIBRARY", "none"},
                                                         {maker().variable, test::fake_library(maker().name)}}))
        setenv(name.c_str(), value.c_str(), 1);
      for (const auto& [name, value] : changed) setenv(name.c_str(), value.c_str(), 1);
      work();
      const std::string file = test::fake_library(test::fake_backend(maker().backend).driver);
      std::fputs(test::breach_lines(file).c_str(), stderr);
    });
    EXPECT_EQ(code, 0) << text;
    return text;
  }
  /// Adds up 1, 2, ... on ranks with an array on devices[rank], and prints the result and the library of each rank.
  static void add_up(const std::vector<Device>& devices) {
    dist::threads(static_cast<int>(devices.size()), [&](World& world) {
      const Array x =
          Array::full({1000}, world.rank() + 1, DType::f32, devices[static_cast<std::size_t>(world.rank())]);
      const std::vector<float> sum = all_reduce(world, x).to_vector<float>();
      const bool equal = std::set<float>(sum.begin(), sum.end()).size() == 1;
      std::fprintf(stderr, "rank %d: %g %s\n", world.rank(), equal ? static_cast<double>(sum[0]) : -1.0,
                   world.gpu_library().empty() ? "host" : world.gpu_library().c_str());
    });
  }
};

TEST_P(Nccl, IsUsedBetweenGpus) {
  const std::string text = run({}, [] {
    add_up({gpu(0), gpu(2), gpu(3)});
    std::fprintf(stderr, "%d messages, %d communicators\n", static_cast<int>(count("messages")),
                 static_cast<int>(count("communicators")));
  });
  for (const char* rank : {"rank 0: 6 ", "rank 1: 6 ", "rank 2: 6 "})
    expect_contains(text, std::string(rank) + maker().version);
  expect_contains(text, "6 messages, 0 communicators");  // each rank sends its 4 KB to two others
  EXPECT_EQ(text.find("BREACH"), text.npos) << text;
  EXPECT_EQ(text.find("warning"), text.npos) << text;
}

TEST_P(Nccl, IsOpenedForEachSetOfGpusOnce) {
  const std::string text = run({}, [] {
    dist::threads(2, [&](World& world) {
      for (const int first : {0, 2, 0, 2, 0}) {
        const Array x = Array::full({50'000}, first, DType::f32, gpu(first + world.rank()));
        EXPECT_EQ(all_reduce(world, x).slice(0, 49'999, 50'000).item<float>(), static_cast<float>(2 * first));
      }
      if (world.first()) std::fprintf(stderr, "%d communicators\n", static_cast<int>(count("communicators")));
      world.barrier();
    });
  });
  expect_contains(text, "4 communicators");
  EXPECT_EQ(text.find("BREACH"), text.npos) << text;
}

TEST_P(Nccl, WarnsOnceIfArraysGoThroughHostMemory) {
  const char* const why = maker().backend == Backend::cuda ? "through host memory, without NCCL: " : "without RCCL: ";
  const auto check = [&](const Variables& changed, std::vector<Device> devices, const std::string& reason) {
    SCOPED_TRACE(reason);
    const std::string text = run(changed, [&] { add_up(devices); });
    expect_contains(text, "rank 0: 3 host");
    expect_contains(text, "rank 1: 3 host");
    const std::size_t at = text.find(why + reason);
    ASSERT_NE(at, text.npos) << text;
    EXPECT_EQ(text.find("warning", at + 1), text.npos) << text;
    EXPECT_EQ(text.find("BREACH"), text.npos) << text;
  };
  check({}, {gpu(0), gpu(0)}, "ranks 0 and 1 use the same GPU");
  check({}, {gpu(0), Device{Backend::cpu}}, "the arrays of rank 1 are not on a GPU of NVIDIA or AMD");
  check({{maker().variable, "none"}}, {gpu(0), gpu(1)}, std::string(maker().variable) + " is 'none'");
  check({{maker().variable, "/nonexistent.so"}}, {gpu(0), gpu(1)}, "/nonexistent.so");
  check({{maker().variable, test::fake_library("nccl_incomplete")}}, {gpu(0), gpu(1)},
        test::fake_library("nccl_incomplete") + " has no ncclCommInitRankConfig");
}

TEST_P(Nccl, ErrorsEndTheCollectiveOnAllRanks) {
  for (const char* fault : {"nccl-init@1", "nccl=2@1", "nccl=1", "nccl-late=1@0", "nccl-late=3@1"}) {
    SCOPED_TRACE(fault);
    const auto begun = std::chrono::steady_clock::now();
    const std::string text = run({{"TESSERA_FAKE_FAULT", fault}}, [] {
      dist::threads(2, [&](World& world) {
        try {
          const Array x = Array::full({50'000}, 1, DType::f32, gpu(world.rank()));
          for (int i = 0; i < 3; ++i) all_reduce(world, x);
          std::fprintf(stderr, "rank %d: no error\n", world.rank());
        } catch (const ConnectionError& e) {
          std::fprintf(stderr, "rank %d: %s\n", world.rank(), e.what());
        }
      });
    });
    EXPECT_EQ(text.find("no error"), text.npos) << text;
    expect_contains(text, std::string(maker().version));
    expect_contains(text, "a fault of the fake library");
    expect_contains(text, "_LIBRARY=none");
    // A rank without an error of its own reports that of the other.
    if (std::string(fault).find('@') != std::string::npos) expect_contains(text, "failed: ");
    EXPECT_EQ(text.find("BREACH"), text.npos) << text;
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  }
}

TEST_P(Nccl, EndOfARankEndsItsPeers) {
  const std::string text = run({}, [] {
    dist::threads(2, [&](World& world) {
      const Array x = Array::full({50'000}, 1, DType::f32, gpu(world.rank()));
      all_reduce(world, x);
      if (world.rank() == 1) return;
      try {
        all_reduce(world, x);
      } catch (const ConnectionError& e) {
        std::fprintf(stderr, "rank 0: %s\n", e.what());
      }
    });
  });
  expect_contains(text, "rank 0: [all_reduce (sum) of 50000 f32 at ");
  expect_contains(text, "rank 1 has ended after");
}

INSTANTIATE_TEST_SUITE_P(All, Nccl,
                         ::testing::Values(Maker{"nccl", Backend::cuda, "TESSERA_NCCL_LIBRARY", "NCCL 2.21.5"},
                                           Maker{"rccl", Backend::rocm, "TESSERA_RCCL_LIBRARY", "RCCL 2.21.5"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera
