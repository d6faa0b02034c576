// SPDX-License-Identifier: Apache-2.0
// Counts the driver calls of an operation on an array that is already on the device, after a warm-up. Only launches and
// setting the current device are allowed: no waits, queries, events or allocations. Also counts the calls of waits.
// Each case runs in a separate process with a fake driver. benchmarks/host_cost measures the time.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

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
  const char *query, *block;  ///< the calls of a wait that poll and that block; Level Zero has no blocking call
};
const Names all_names[] = {
    {Backend::cuda,
     "cuLaunchKernel",
     6,
     {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuEventCreate", "cuEventRecord", "cuEventQuery",
      "cuEventSynchronize", "cuStreamSynchronize", "cuStreamQuery", "cuMemGetInfo_v2", "cuModuleLoadDataEx"},
     "cuEventQuery",
     "cuEventSynchronize"},
    {Backend::rocm,
     "hipModuleLaunchKernel",
     4,
     {"hipMalloc", "hipFree", "hipHostMalloc", "hipEventCreateWithFlags", "hipEventRecord", "hipEventQuery",
      "hipEventSynchronize", "hipStreamSynchronize", "hipMemGetInfo", "hipModuleLoadData"},
     "hipEventQuery",
     "hipEventSynchronize"},
    {Backend::oneapi,
     "zeCommandListAppendLaunchKernel",
     40,
     {"zeMemAllocDevice", "zeMemAllocHost", "zeMemFree", "zeEventCreate", "zeEventHostSynchronize",
      "zeEventQueryStatus", "zeEventHostReset", "zeModuleCreate"},
     "zeEventQueryStatus",
     nullptr}};
const Names& names_of(Backend backend) {
  return *std::find_if(std::begin(all_names), std::end(all_names),
                       [&](const Names& n) { return n.backend == backend; });
}

class HostCalls : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, HostCalls, ::testing::Values(Backend::cuda, Backend::rocm, Backend::oneapi),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

TEST_P(HostCalls, WarmOperationOnlyCallsTheDriverToLaunch) {
  const Names& names = names_of(GetParam());
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

// Waits:

/// Runs `work` in a child with a fake driver, TESSERA_WAIT=`how`, and an array of the device.
std::string waiting(Backend backend, const char* how,
                    const std::function<std::string(const os::Library&, const Array&)>& work) {
  const std::string file = test::fake_library(test::fake_backend(backend).driver);
  const test::Variables variables = {{"TESSERA_WAIT", how}, {"TESSERA_FAKE_DELAY_US", "0"}};
  return test::run_in_child(test::with_fakes(variables), [&] {
    const os::Library library = os::Library::open(file);
    const DeviceScope scope({backend, 0});
    Array x = Array::full({100}, 1);
    x += x;
    x.to_vector<float>();
    library.function<void(int)>("tessera_fake_count_calls")(1);
    return work(library, x) + test::breach_lines(file);
  });
}
std::uint64_t count(const os::Library& library, const char* what) {
  return library.function<std::uint64_t(const char*)>("tessera_fake_count")(what);
}

/// Waits that last 100 ms: for a queue, for a small download, and for one that is larger than a staging buffer. They
/// return the value that was downloaded.
const std::function<float(Array& small, Array& large)> long_waits[] = {
    [](Array&, Array&) {
      Queue::of(current_device()).finish();
      return 4.0f;
    },
    [](Array& small, Array&) { return small.to_vector<float>().back(); },
    [](Array&, Array& large) { return large.to_vector<float>().back(); }};

TEST_P(HostCalls, LongWaitsDoNotOccupyACore) {
  const Names& names = names_of(GetParam());
  for (const char* how : {"auto", "block", "spin"}) {
    const bool spins = std::string_view(how) == "spin";
    for (const auto& wait : long_waits) {
      EXPECT_EQ(waiting(GetParam(), how,
                        [&](const os::Library& library, const Array& made) {
                          const auto hold = library.function<void(int)>("tessera_fake_hold");
                          Array x = made, large = Array::full({1 << 20}, 2);
                          Queue::of(current_device()).finish();
                          const std::uint64_t polls = count(library, "polling waits"),
                                              blocks = count(library, "blocking waits"),
                                              calls = names.block ? count(library, names.block) : 0;
                          hold(1);
                          x += x, large += large;
                          x.eval(), large.eval();
                          std::thread later([&] {
                            std::this_thread::sleep_for(std::chrono::milliseconds(100));
                            hold(0);
                          });
                          timespec before{}, after{};
                          clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
                          const float value = wait(x, large);
                          clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
                          later.join();
                          std::string wrong;
                          const auto expect = [&](bool holds, const std::string& what) {
                            if (!holds) wrong += what + "\n";
                          };
                          expect(value == 4.0f, "wrong value " + std::to_string(value));
                          const double busy = static_cast<double>(after.tv_sec - before.tv_sec) +
                                              1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
                          expect(busy < 0.05, std::to_string(busy) + " s of processor time");
                          polls == count(library, "polling waits") ? expect(!spins, "it did not poll in the driver")
                                                                   : expect(spins, "it polls in the driver");
                          if (names.block && !spins) {
                            expect(count(library, names.block) > calls, std::string("no call of ") + names.block);
                            expect(count(library, "blocking waits") > blocks, "the event is not a blocking one");
                          }
                          return wrong;
                        }),
                "")
          << how << ", wait " << &wait - long_waits;
    }
  }
}

// Other processes may delay the fake driver's threads, so only one of many waits has to be short.
TEST_P(HostCalls, ShortWaitsAreAnsweredByPolling) {
  const Names& names = names_of(GetParam());
  const auto wait_often = [&](const char* how) {
    return waiting(GetParam(), how, [&](const os::Library& library, const Array& made) {
      Array x = made;
      bool polled = false;
      for (int i = 0; i < 500 && !polled; ++i) {
        x *= 1.0f;
        x.eval();
        const std::uint64_t blocks = names.block ? count(library, names.block) : 0,
                            queries = count(library, names.query);
        Queue::of(current_device()).finish();
        polled = count(library, names.query) > queries && (!names.block || count(library, names.block) == blocks);
      }
      return std::string(polled ? "polled" : "");
    });
  };
  EXPECT_EQ(wait_often("auto"), "polled");
  if (names.block) {  // Level Zero sleeps between queries
    EXPECT_EQ(wait_often("block"), "");
  }
}

}  // namespace
}  // namespace tessera
