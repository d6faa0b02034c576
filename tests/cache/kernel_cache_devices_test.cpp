// SPDX-License-Identifier: Apache-2.0
// The kernel cache with the CPU compiler and fake vendor compilers. A second process compiles nothing and computes the
// same results. If files, compilers or drivers have changed, kernels are compiled again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tessera/array/array.h"
#include "tessera/base/sha256.h"
#include "tessera/device/launch/kernel_cache.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/kernel/kernel.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::run_in_child;
using test::Variables;

void put(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

/// Returns "C compiled, L loaded" for the current device.
std::string made_here() {
  for (const auto& made : placement_log().made)
    if (made.device == current_device())
      return std::to_string(made.compiled) + " compiled, " + std::to_string(made.loaded) + " loaded";
  return "nothing";
}

/// Returns the results of a computation on the current device, and the number of compiled and loaded kernels.
std::string compute() {
  const Array x = Array::arange(1000, -2, 0.01, DType::f32);
  const Array y = exp(x * 0.5f) + x;
  const Array total = sum(y);
  const auto tail = kernel("tail", block(64), [](Buffer<const float> in, Buffer<float> out) {
    auto shared = Shared<float>(64);
    shared[thread_id()] = in[global_id()];
    barrier();
    out[global_id()] = shared[63 - thread_id()] * 3.0f;
  });
  Array z = Array::empty({960}, DType::f32);
  tail.launch(blocks(15), y, z);
  std::string bytes;
  for (const Array& a : {y, total, z})
    for (const float v : a.to_vector<float>()) bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
  return sha256(bytes) + " " + made_here();
}

struct Place {
  std::string name;
  Variables variables;
};
std::vector<Place> places() {
  std::vector<Place> all;
#ifdef TESSERA_HAS_MODULE
  all.push_back({"cpu", {}});
#endif
  for (const char* name : {"cuda", "rocm", "oneapi"}) all.push_back({name, test::with_fakes()});
#ifdef TESSERA_HAS_MODULE
  all.push_back({"cuda", test::with_fakes({{"TESSERA_NVRTC_LIBRARY", "none"}})});  // uses PTX
#endif
  return all;
}

std::string compute_in_child(const Place& place, const fs::path& cache, Variables more = {}) {
  Variables all = place.variables;
  all.insert(all.end(),
             {{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", cache.string()}, {"TESSERA_DEVICE", place.name}});
  all.insert(all.end(), more.begin(), more.end());
  return run_in_child(all, compute);
}
std::string results(const std::string& answer) { return answer.substr(0, 64); }
std::string counts(const std::string& answer) { return answer.size() > 65 ? answer.substr(65) : answer; }

TEST(KernelCacheDevices, SecondProcessLoadsAllKernels) {
  for (const Place& place : places()) {
    const Folder cache;
    const std::string first = compute_in_child(place, cache.path()), second = compute_in_child(place, cache.path());
    EXPECT_EQ(results(first), results(second)) << place.name;
    EXPECT_TRUE(counts(first).ends_with(" 0 loaded")) << place.name << ": " << first;
    EXPECT_TRUE(counts(second).starts_with("0 compiled, ")) << place.name << ": " << second;
    EXPECT_FALSE(counts(second).ends_with(" 0 loaded")) << place.name << ": " << second;
    EXPECT_EQ(results(compute_in_child(place, cache.path(), {{"TESSERA_KERNEL_CACHE", "0"}})), results(first));
  }
}

TEST(KernelCacheDevices, DamagedEntriesAreReplaced) {
  for (const Place& place : places()) {
    const Folder cache;
    const std::string first = compute_in_child(place, cache.path());
    std::size_t i = 0;
    for (const fs::path& file : test::files_in(cache.path() / "kernels")) {
      std::string bytes = test::text_of(file);
      if (++i % 2 == 0)
        bytes[bytes.size() / 2] ^= 1;
      else
        bytes.resize(bytes.size() * 2 / 3);
      put(file, bytes);
    }
    const std::string second = compute_in_child(place, cache.path());
    EXPECT_EQ(second, first) << place.name << ": same results after recompiling";
    EXPECT_TRUE(counts(compute_in_child(place, cache.path())).starts_with("0 compiled, ")) << place.name;
  }
}

TEST(KernelCacheDevices, ChangedDriverIsACacheMiss) {
  const Place place{"cuda", test::with_fakes()};
  const Folder cache, other;
  const std::string first = compute_in_child(place, cache.path());
  const fs::path driver = other / "libfake_cuda.so";
  fs::copy(test::fake_library("cuda"), driver);
  const Variables replaced = {{"TESSERA_CUDA_LIBRARY", driver.string()}};
  EXPECT_EQ(compute_in_child(place, cache.path(), replaced), first) << "compiled again";
  EXPECT_TRUE(counts(compute_in_child(place, cache.path(), replaced)).starts_with("0 compiled, "));
  EXPECT_TRUE(counts(compute_in_child(place, cache.path())).starts_with("0 compiled, ")) << "both are cached";
  for (const fs::path& file : test::files_in(cache.path() / "kernels"))
    EXPECT_EQ(test::text_of(file).find(other.path().string()), std::string::npos) << "a variable's value is on disk";
}

#ifdef TESSERA_HAS_MODULE
const Place on_cpu{"cpu", {}};

TEST(KernelCacheDevices, ChangedProcessorIsACacheMiss) {
  const Folder cache;
  compute_in_child(on_cpu, cache.path());
  const Variables older = {{"TESSERA_CPU_TARGET", "x86-64"}};
  EXPECT_FALSE(counts(compute_in_child(on_cpu, cache.path(), older)).starts_with("0 compiled, "));
  EXPECT_TRUE(counts(compute_in_child(on_cpu, cache.path(), older)).starts_with("0 compiled, "));
  EXPECT_TRUE(counts(compute_in_child(on_cpu, cache.path())).starts_with("0 compiled, "));
  const std::string why =
      run_in_child({{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", cache.path().string()}}, [] {
        std::size_t loaded = 0, other = 0;
        for (const CachedKernel& kernel : kernel_cache().kernels) {
          const auto differs = differences(kernel, {Backend::cpu, 0});
          ++(differs.empty() ? loaded : other);
          for (const std::string& line : differs)
            if (!line.starts_with("processor's features were ") && !line.starts_with("architecture was "))
              return "also differs: " + line;
        }
        return std::string(loaded == other && loaded != 0 ? "half of them" : "not half of them");
      });
  EXPECT_EQ(why, "half of them");
}

TEST(KernelCacheDevices, EachKernelIsCompiledByOneOfTwoProcesses) {
  const auto little = [] {
    const float ten = sum(Array::arange(5, 0, 1, DType::f32)).item<float>();
    return made_here() + (ten == 10 ? "" : ", wrong");
  };
  for (int round = 0; round < 50; ++round) {
    const Folder cache;
    const Variables variables = {
        {"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", cache.path().string()}, {"TESSERA_DEVICE", "cpu"}};
    std::string first;
    std::thread other([&] { first = run_in_child(variables, little); });
    const std::string second = run_in_child(variables, little);
    other.join();
    for (const std::string& answer : {first, second})
      EXPECT_TRUE(answer.ends_with(" loaded")) << round << ": " << answer;
    const std::string third = run_in_child(variables, little);
    EXPECT_TRUE(third.starts_with("0 compiled, ") && third.ends_with(" loaded")) << round << ": " << third;
    EXPECT_EQ(std::stoi(first) + std::stoi(second), std::stoi(third.substr(12))) << first << " and " << second;
  }
}

TEST(KernelCacheDevices, LoadedKernelHasTheSameSourceAndPrints) {
  const Folder cache;
  const auto work = [] {
    const DeviceScope scope(Device{Backend::cpu, 0});
    const auto says = kernel("says", [](Buffer<float> x) {
      if_(global_id() == 3, [&] { print("at {}: {}", global_id(), x[global_id()]); });
      x[global_id()] = x[global_id()] + 1.0f;
    });
    Array x = Array::arange(8, 0, 1, DType::f32);
    ::testing::internal::CaptureStdout();
    says.launch({8}, x);
    return ::testing::internal::GetCapturedStdout() + says.source({Backend::cpu, 0});
  };
  const Variables variables = {{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", cache.path().string()}};
  const std::string first = run_in_child(variables, work);
  EXPECT_TRUE(first.starts_with("at 3: 3\n")) << first;
  EXPECT_NE(first.find("define"), std::string::npos) << first;
  EXPECT_EQ(run_in_child(variables, work), first);
}
#endif

}  // namespace
}  // namespace tessera
