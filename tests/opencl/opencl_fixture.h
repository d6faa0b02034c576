// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of the OpenCL driver. They use the first OpenCL device and a separate, initially empty kernel
// cache, and launch traced kernels on vectors.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tessera/backend/opencl/opencl.h"
#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/driver.h"
#include "tessera/ir/value.h"
#include "tests/ir/traced.h"
#include "tests/opencl/fresh_pocl_cache.h"

namespace tessera::test {

inline Driver& driver() {
  static Driver* d = make_opencl_driver().release();
  return *d;
}
/// Returns the first device, or null if there is none.
inline DriverDevice* device() {
  static DriverDevice* d = [] {
    const BackendReport report = driver().enumerate();
    if (report.devices.empty()) std::printf("no OpenCL device: %s\n", report.reason.c_str());
    return report.devices.empty() ? nullptr : driver().open(0).release();
  }();
  return d;
}
inline DriverQueue& queue() {
  static DriverQueue* q = device()->make_queue().release();
  return *q;
}

/// Device memory with initial contents. The destructor frees it.
template <class T>
class Memory {
 public:
  explicit Memory(const std::vector<T>& values) : Memory(values.size()) { upload(values); }
  explicit Memory(std::size_t count)
      : count_(count), allocation_(device()->allocate(count * sizeof(T), MemoryKind::device)) {
    const std::byte poison[1] = {std::byte{0xa5}};
    queue().fill(allocation_, 0, count * sizeof(T), poison);
  }
  ~Memory() { device()->release(allocation_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void upload(const std::vector<T>& values) {
    queue().upload(allocation_, 0, values.data(), values.size() * sizeof(T));
  }
  std::vector<T> read() const {
    std::vector<T> out(count_);
    queue().download(out.data(), allocation_, 0, count_ * sizeof(T));
    return out;
  }
  const Allocation& allocation() const { return allocation_; }
  Argument argument(std::uint64_t offset = 0) const { return {&allocation_, offset * sizeof(T), count_ - offset}; }

 private:
  std::size_t count_;
  Allocation allocation_;
};

inline Argument scalar(float v) {
  Argument a;
  a.bits = std::bit_cast<std::uint32_t>(v);
  return a;
}
inline Argument scalar(std::int64_t v) {
  Argument a;
  a.bits = static_cast<std::uint64_t>(v);
  return a;
}

inline std::unique_ptr<LoadedKernel> compile(const ir::Function& fn, Variant variant = {}) {
  const CompileRequest request{&fn, variant};
  return std::move(device()->compile({&request, 1})[0]);
}
inline void run(const ir::Function& fn, std::array<std::uint64_t, 3> shape, std::initializer_list<Argument> arguments,
                Variant variant = {}) {
  const auto kernel = compile(fn, variant);
  queue().launch(*kernel, shape, std::span(arguments.begin(), arguments.size()));
  queue().finish();
}

}  // namespace tessera::test
