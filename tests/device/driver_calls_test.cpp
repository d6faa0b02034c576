// SPDX-License-Identifier: Apache-2.0
// Counts the driver calls of an operation on an array that is already on the device, after a warm-up. Only launches and
// setting the current device are allowed: no waits, queries, events or allocations. Each case runs in a separate
// process with a fake driver. benchmarks/host_cost measures the time.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "tessera/array/array.h"
#include "tessera/base/os/library.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

struct Names {
  Backend backend;
  const char* launch;
  std::uint64_t most_calls;  ///< per launch; Level Zero needs a call for each argument
  std::vector<const char*> never;
};
const Names all_names[] = {
    {Backend::cuda,
     "cuLaunchKernel",
     6,
     {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuEventCreate", "cuEventRecord", "cuEventQuery",
      "cuEventSynchronize", "cuStreamSynchronize", "cuStreamQuery", "cuMemGetInfo_v2", "cuModuleLoadDataEx"}},
    {Backend::rocm,
     "hipModuleLaunchKernel",
     4,
     {"hipMalloc", "hipFree", "hipHostMalloc", "hipEventCreateWithFlags", "hipEventRecord", "hipEventQuery",
      "hipEventSynchronize", "hipStreamSynchronize", "hipMemGetInfo", "hipModuleLoadData"}},
    {Backend::oneapi,
     "zeCommandListAppendLaunchKernel",
     40,
     {"zeMemAllocDevice", "zeMemAllocHost", "zeMemFree", "zeEventCreate", "zeEventHostSynchronize",
      "zeEventQueryStatus", "zeEventHostReset", "zeModuleCreate"}}};

class HostCalls : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, HostCalls, ::testing::Values(Backend::cuda, Backend::rocm, Backend::oneapi),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

TEST_P(HostCalls, WarmOperationOnlyCallsTheDriverToLaunch) {
  const Names& names =
      *std::find_if(std::begin(all_names), std::end(all_names), [](const Names& n) { return n.backend == GetParam(); });
  const std::string file = test::fake_library(test::fake_backend(GetParam()).driver);
  const std::string said = test::run_in_child(test::with_fakes(), [&] {
    const os::Library library = os::Library::open(file);
    const auto count = [&](const char* what) {
      return library.function<std::uint64_t(const char*)>("tessera_fake_count")(what);
    };
    const DeviceScope scope({GetParam(), 0});
    const std::int64_t n = 100;
    Array x = Array::full({n, n}, 1), y = Array::full({n, n}, 2), row = Array::full({n}, 4), z = Array::full({n, n}, 3);
    Array flat = Array::full({n}, 5);
    const auto saxpy = kernel("saxpy", [](Buffer<const float> from, Buffer<float> to, Val<float> a) {
      auto i = global_id();
      to[i] = a * from[i] + to[i];
    });
    struct Case {
      const char* name;
      std::uint64_t launches;
      std::function<void()> once;
    };
    const Case cases[] = {{"kernel.launch", 1, [&] { saxpy.launch({100u}, row, flat, 2.0f); }},
                          {"x + y", 1, [&] { (x + y).eval(); }},
                          {"a chain of 4", 1, [&] { (x * 2.0f + y * x - row).eval(); }},
                          {"y += x", 1, [&] { z += x; }},
                          {"x + row", 1, [&] { (x + row).eval(); }},
                          {"matmul", 1, [&] { matmul(x, y).eval(); }},
                          {"sum over rows", 1, [&] { sum(x, {1}).eval(); }},
                          {"softmax", 1, [&] { softmax(x).eval(); }},
                          {"rms_norm", 1, [&] { rms_norm(x, row, 1e-5f).eval(); }}};
    std::string wrong;
    for (const Case& c : cases) {
      for (int i = 0; i < 3; ++i) c.once();
      Queue::of(current_device()).finish();
      library.function<void(int)>("tessera_fake_count_calls")(1);
      const std::uint64_t launches = count(names.launch), calls = count("calls");
      std::vector<std::uint64_t> before;
      for (const char* name : names.never) before.push_back(count(name));
      c.once();
      const auto expect = [&](bool holds, const std::string& what) {
        if (!holds) wrong += std::string(c.name) + ": " + what + "\n";
      };
      expect(count(names.launch) == launches + c.launches,
             std::to_string(count(names.launch) - launches) + " launches");
      expect(count("calls") - calls <= names.most_calls * c.launches,
             std::to_string(count("calls") - calls) + " calls in all");
      for (std::size_t i = 0; i < before.size(); ++i)
        expect(count(names.never[i]) == before[i], std::string("it calls ") + names.never[i]);
      library.function<void(int)>("tessera_fake_count_calls")(0);
    }
    return wrong;
  });
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace tessera
