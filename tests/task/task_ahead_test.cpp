// SPDX-License-Identifier: Apache-2.0
// What is done for tasks before they can begin: on fake GPUs, each test in a process of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tessera/array/functions.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/kernel/kernel.h"
#include "tessera/task/region.h"
#include "tests/support/over_fakes.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

const Device gpu{Backend::cuda, 0};
template <class F>
auto fake(const char* name) {
  return os::Library::open(TESSERA_FAKES "/libfake_cuda.so").function<F>(name);
}
void with_gpu(const char* kernel_us, const std::function<void()>& body, test::Variables more = {}) {
  more.insert(more.end(), {{"TESSERA_FAKE_KERNEL_US", kernel_us}, {"TESSERA_FAKE_DELAY_US", "0"}});
  test::in_process(test::four_gpus(more), body);
}

TEST(Ahead, KernelsAreCompiledWhileWhatTheyComeAfterRuns) {
  with_gpu("0", [] {
    const auto twice = kernel("made_ahead", [](Buffer<float> x) { x[global_id()] *= 2; });
    Array x = Array::ones({100}, DType::f32, gpu).copy().eval();
    const Device other{Backend::cuda, 1};
    const auto hold = fake<void(int)>("tessera_fake_hold");
    const auto made = [] {
      for (const auto& m : placement_log().made)
        if (m.device == gpu) return m.compiled + m.loaded;
      return std::uint64_t{0};
    };
    Array y = Array::ones({100}, DType::f32, other).copy().eval();
    const auto step = [](Array& v) { v += 1; };
    spawn({.scope = Scope(other)}, step, inout(y)).wait();
    Region r({.scope = cuda(0)});
    const std::uint64_t before = made();
    hold(1);
    const Task<void> first =
        r.spawn({.scope = Scope(other)}, step, inout(y));  // it is on its device, which stands still
    for (int i = 0; i < 3; ++i) r.spawn({}, twice, Extent{100}, x, first);
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (made() == before && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(made() - before, 1u) << "once, while the tasks wait";
    EXPECT_FALSE(first.ended());
    hold(0);
    r.wait();
    EXPECT_EQ(made() - before, 1u);
    EXPECT_EQ(x.to_vector<float>(), Floats(100, 8));
  });
}

}  // namespace
}  // namespace tessera
