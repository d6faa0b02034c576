// SPDX-License-Identifier: Apache-2.0
// Measures the host time of operations on resident arrays, from the call until the work is in the driver's queue. Runs
// on a fake CUDA driver that accepts every call and executes nothing (tests/drivers/). The time of the driver is
// included. A separate column shows it, measured by making the same driver calls directly.
//
// Other load on the processor, such as a virtual machine on the other hyperthread of the core, slows everything down
// for seconds at a time. Therefore all operations are measured in many rounds, and the result is the 10th percentile of
// the times. The median is also printed.
//
// Usage: host_cost [PART OF A NAME]. The exit status is 1 if an operation takes more than 3 us, and 2 if no operation
// matches the name.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/os/library.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

const Device device{Backend::cuda, 0};
constexpr int batch = 50, batches = 400, rounds = 40;  // batches are short, so that most of them are not interrupted

template <class F>
F* symbol(const char* name) {
  static const os::Library library = os::Library::open(TESSERA_FAKES "/libfake_cuda.so");
  F* const found = library.function<F>(name);
  if (found == nullptr) std::printf("the fake driver lacks %s\n", name), std::exit(1);
  return found;
}
std::uint64_t calls(const char* what) { return symbol<std::uint64_t(const char*)>("tessera_fake_count")(what); }

/// Nanoseconds per call, measured in batches.
class Times {
 public:
  void take(const std::function<void()>& once) {
    for (int i = 0; i < 4 * batch; ++i) once();
    for (int b = 0; b < batches; ++b) {
      const auto start = Clock::now();
      for (int i = 0; i < batch; ++i) once();
      all_.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / batch);
    }
    std::sort(all_.begin(), all_.end());
  }
  double fastest_tenth() const { return all_[all_.size() / 10]; }
  double median() const { return all_[all_.size() / 2]; }

 private:
  std::vector<double> all_;
};
double price(const std::function<void()>& once) {
  Times times;
  for (int i = 0; i < 5; ++i) times.take(once);
  return times.fastest_tenth();
}

/// The driver calls of one operation, and the time that they take.
struct DriverShare {
  double ns = 0;
  std::uint64_t calls = 0, launches = 0;
};
DriverShare driver_share(const std::function<void()>& once, const std::map<std::string, double>& prices) {
  const std::vector<const char*> names = {"cuCtxGetCurrent",
                                          "cuCtxSetCurrent",
                                          "cuLaunchKernel",
                                          "cuGraphLaunch",
                                          "cuMemcpyDtoDAsync_v2",
                                          "cuMemsetD32Async",
                                          "cuThreadExchangeStreamCaptureMode"};
  once();
  symbol<void(int)>("tessera_fake_count_calls")(1);
  std::map<std::string, std::uint64_t> before;
  for (const char* n : names) before[n] = calls(n);
  const std::uint64_t all = calls("calls");
  once();
  DriverShare share{.calls = calls("calls") - all};
  for (const char* n : names) {
    const std::uint64_t made = calls(n) - before[n];
    share.ns += static_cast<double>(made) * prices.at(n);
    if (std::string(n) == "cuLaunchKernel") share.launches = made;
  }
  symbol<void(int)>("tessera_fake_count_calls")(0);
  return share;
}

/// Returns the time of each function of the fake driver.
std::map<std::string, double> prices(Queue& queue) {
  std::map<std::string, double> out;
  void* context = native_context(device);
  void* const stream = queue.native_handle();
  auto* const get = symbol<int(void**)>("cuCtxGetCurrent");
  auto* const set = symbol<int(void*)>("cuCtxSetCurrent");
  out["cuCtxGetCurrent"] = price([&] {
    void* now = nullptr;
    get(&now);
  });
  out["cuCtxSetCurrent"] = price([&] { set(context); });
  auto* const exchange = symbol<int(int*)>("cuThreadExchangeStreamCaptureMode");
  int mode = 0;
  out["cuThreadExchangeStreamCaptureMode"] = price([&] { exchange(&mode); });
  unsigned long long address = 0;
  symbol<int(unsigned long long*, std::size_t)>("cuMemAlloc_v2")(&address, 4096);
  auto* const fill = symbol<int(unsigned long long, unsigned, std::size_t, void*)>("cuMemsetD32Async");
  out["cuMemsetD32Async"] = price([&] { fill(address, 0, 8, stream); });
  auto* const copy = symbol<int(unsigned long long, unsigned long long, std::size_t, void*)>("cuMemcpyDtoDAsync_v2");
  out["cuMemcpyDtoDAsync_v2"] = price([&] { copy(address, address + 2048, 32, stream); });
  symbol<int(unsigned long long)>("cuMemFree_v2")(address);
  out["cuLaunchKernel"] = out["cuGraphLaunch"] =
      out["cuMemsetD32Async"];  // these calls check one more handle than cuMemsetD32Async
  set(nullptr);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";  // a part of the name
  // The fake driver can only run kernels that were compiled in this process.
  setenv("TESSERA_KERNEL_CACHE", "0", 1), setenv("TESSERA_PROBE", "list", 1);
  setenv("TESSERA_CUDA_LIBRARY", TESSERA_FAKES "/libfake_cuda.so", 1);
  setenv("TESSERA_NVRTC_LIBRARY", TESSERA_FAKES "/libfake_nvrtc.so", 1);
  setenv("TESSERA_FAKE_MEMORY", "17179869184", 0);
  const DeviceScope scope(device);
  Queue& queue = Queue::of(device);

  const std::int64_t n = 1024;
  Array x = Array::full({n, n}, 1), y = Array::full({n, n}, 2), z = Array::full({n, n}, 3), row = Array::full({n}, 4);
  Array total = Array::zeros({n, n}), small = Array::full({64, 64}, 1), weight = Array::full({64, 64}, 1);
  const auto saxpy = kernel("saxpy", [](Buffer<const float> from, Buffer<float> to, Val<float> a) {
    auto i = global_id();
    to[i] = a * from[i] + to[i];
  });
  const auto flat = [&](const Array& a) { return a.reshape({n * n}); };
  const Array fx = flat(x);
  Array fy = flat(y);
  const auto chain = [&] { (x * 2.0f + y * z - row).eval(); };
  std::optional<Sequence> step;

  struct Case {
    const char* name;
    int operations;
    std::function<void()> once;
  };
  const std::vector<Case> cases = {
      {"kernel.launch, two buffers and a scalar", 1,
       [&] { saxpy.launch({static_cast<std::size_t>(n * n)}, fx, fy, 2.0f); }},
      {"x + y, evaluated", 1, [&] { (x + y).eval(); }},
      {"x + row (broadcast), evaluated", 1, [&] { (x + row).eval(); }},
      {"exp(x), evaluated", 1, [&] { exp(x).eval(); }},
      {"x * 2 + y * z - row, evaluated: a chain of 4", 4, chain},
      {"y += x", 1, [&] { total += x; }},
      {"x.fill(0)", 1, [&] { z.fill(0); }},
      {"matmul 64 x 64", 1, [&] { matmul(small, weight).eval(); }},
      {"sum over rows", 1, [&] { sum(x, {1}).eval(); }},
      {"max of all", 1, [&] { max(x).eval(); }},
      {"softmax over rows", 1, [&] { softmax(x).eval(); }},
      {"rms_norm", 1, [&] { rms_norm(x, row, 1e-5f).eval(); }},
      {"replay of a sequence of 10", 10, [&] { step->replay(); }},
  };
  for (const Case& c : cases)
    if (std::string(c.name).find("replay") == std::string::npos)
      for (int i = 0; i < 3; ++i) c.once();
  step = Sequence::record(queue, [&] {
    for (int i = 0; i < 10; ++i) total += x;
  });
  step->replay();
  queue.finish();
  symbol<void(int)>("tessera_fake_execute")(0);  // nothing is queued after this call

  const auto known = prices(queue);
  std::vector<Case> asked;
  for (const Case& c : cases)
    if (std::string(c.name).find(only) != std::string::npos) asked.push_back(c);
  std::vector<Times> times(asked.size());
  for (int round = 0; round < rounds; ++round) {
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\rround %d of %d ", round + 1, rounds);
    for (std::size_t i = 0; i < asked.size(); ++i) times[i].take(asked[i].once);
  }
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\x1b[K");
  std::printf("%-46s %12s %10s %20s %10s %8s\n", "operation", "ns a piece", "median", "of all: ns, median", "driver ns",
              "calls");
  bool good = true;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Case& c = asked[i];
    const DriverShare share = driver_share(c.once, known);
    const double each = times[i].fastest_tenth() / c.operations;
    std::printf("%-46s %12.0f %10.0f %9.0f %10.0f %10.0f %8llu\n", c.name, each, times[i].median() / c.operations,
                times[i].fastest_tenth(), times[i].median(), share.ns, static_cast<unsigned long long>(share.calls));
    good = good && each <= 3000;
  }
  const bool any = !asked.empty();
  if (any)
    std::printf("%s\n", good ? "every operation is enqueued within 3 us" : "some operations take more than 3 us");
  else
    std::fprintf(stderr, "host_cost: no operation has \"%s\" in its name\n", only.c_str());
  symbol<void(int)>("tessera_fake_execute")(1);
  return !any ? 2 : good ? 0 : 1;
}
