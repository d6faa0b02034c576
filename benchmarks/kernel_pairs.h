// SPDX-License-Identifier: Apache-2.0
// Runs generated CPU kernels and plain loops alternately (pairs.h) and prints a table of their times. If a ratio is
// below 1, the generated kernel is faster.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/pairs.h"
#include "tessera/backend/cpu/cpu.h"
#include "tessera/device/driver.h"
#include "tessera/ir/node.h"

namespace tessera::bench {

inline bool one_thread = false;  ///< passed to the functions of pairs.h

template <class T>
double largest_difference(const T* a, const T* b, std::size_t n) {
  double most = 0, scale = 1e-3;
  for (std::size_t i = 0; i < n; ++i) scale = std::max(scale, double(std::abs(b[i])));
  for (std::size_t i = 0; i < n; ++i) most = std::max(most, double(std::abs(a[i] - b[i])) / scale);
  return most;
}

/// The output of a pair. `ours` is the output of the kernel. After the check, the plain loop writes to it too, because
/// the relative alignment of input and output can make a short loop up to four times slower. For the check, the plain
/// loop writes to `plain`, which has the same initial contents.
template <class T>
struct Result {
  T *ours, *plain;
  std::size_t n;
};

class Bench {
 public:
  /// Each pair is timed for `seconds`. It passes if the kernel takes at most `limit` times as long as the plain loop.
  explicit Bench(double limit, double seconds = 1.5)
      : limit_(limit),
        seconds_(seconds),
        driver_(make_cpu_driver()),
        device_(driver_->open(0)),
        queue_(device_->make_queue()) {
    const DeviceInfo& info = device_->info();
    std::printf("%s, %s, %u threads%s\n", info.name.c_str(), info.driver_version.c_str(), info.compute_units,
                info.reason.c_str());
    std::printf("%-26s %10s %10s %8s %8s..%-8s %10s\n", "kernel", "plain us", "ours us", "ratio", "quartile",
                "quartile", "compile ms");
  }
  template <class T>
  T* memory(std::size_t n) {
    allocations_.push_back(std::make_unique<Allocation>(device_->allocate(n * sizeof(T), MemoryKind::device)));
    return reinterpret_cast<T*>(allocations_.back()->host);
  }
  template <class T>
  Argument buffer(const T* p, std::size_t n) {
    for (auto& a : allocations_)
      if (a->host == reinterpret_cast<const std::byte*>(p)) return {.allocation = a.get(), .elements = n};
    std::abort();
  }
  /// Frees the memory of all previous pairs.
  void forget() { allocations_.clear(); }
  void limit(double limit) { limit_ = limit; }

  /// Runs the kernel and the plain loop alternately in the same memory. Returns true if the kernel takes at most
  /// `limit` times as long as the plain loop.
  template <class T, class Loop>
  bool pair(const std::string& name, const ir::Function& f, std::array<std::uint64_t, 3> shape,
            std::vector<Argument> arguments, Result<T> result, Loop&& plain_loop) {
    return pair(
        name, std::span(&f, 1), [&](auto&& launch) { launch(0, shape, arguments); }, result, plain_loop);
  }
  /// Like the overload above, for several kernels. `launches` launches them in order. Its parameter is a function that
  /// takes the number, shape and arguments of a kernel.
  template <class T, class Launches, class Loop>
  bool pair(const std::string& name, std::span<const ir::Function> functions, Launches&& launches, Result<T> result,
            Loop&& plain_loop) {
    std::vector<CompileRequest> requests;
    for (const ir::Function& f : functions) requests.push_back({&f, {}});
    double compile = 1e9;
    std::vector<std::unique_ptr<LoadedKernel>> kernels;
    for (int i = 0; i < 3; ++i) {
      const double start = now_us(one_thread);
      kernels = device_->compile(requests);
      compile = std::min(compile, (now_us(one_thread) - start) / 1000);
    }
    auto ours = [&] {
      launches([&](std::size_t kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) {
        queue_->launch(*kernels[kernel], shape, arguments);
      });
    };
    auto plain = [&] { plain_loop(result.ours); };
    ours();
    plain_loop(result.plain);
    const double wrong = largest_difference(result.ours, result.plain, result.n);
    const Pair p = time_pair(one_thread, ours, plain, seconds_);
    std::printf("%-26s %10.1f %10.1f %8.2f %8.2f..%-8.2f %10.1f%s\n", name.c_str(), p.theirs_us, p.ours_us, p.median,
                p.low, p.high, compile,
                wrong > 1e-3        ? "  WRONG RESULT"
                : p.median > limit_ ? "  slow"
                                    : "");
    std::fflush(stdout);
    return p.median <= limit_ && wrong <= 1e-3;
  }

 private:
  double limit_;
  double seconds_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<DriverDevice> device_;
  std::unique_ptr<DriverQueue> queue_;
  std::vector<std::unique_ptr<Allocation>> allocations_;
};

}  // namespace tessera::bench
