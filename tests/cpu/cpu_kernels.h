// SPDX-License-Identifier: Apache-2.0
// Runs kernels directly on the cpu driver, without the device layer.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tessera/backend/cpu/cpu.h"
#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/driver.h"
#include "tessera/ir/semantics.h"
#include "tessera/ir/value.h"
#include "tests/ir/traced.h"

namespace tessera::testing {

using test::block_kernel;
using test::map_kernel;

/// A device of the cpu driver that compiles for one target.
class Cpu {
 public:
  explicit Cpu(const std::string& target = "native") : target_(target) {
    ::setenv("TESSERA_CPU_TARGET", target.c_str(), 1);
    driver_ = make_cpu_driver();
    device_ = driver_->open(0);
    queue_ = device_->make_queue();
    ::unsetenv("TESSERA_CPU_TARGET");
  }
  const std::string& target() const { return target_; }
  const DeviceInfo& info() const { return device_->info(); }
  DriverDevice& device() { return *device_; }

  std::unique_ptr<LoadedKernel> compile(const ir::Function& fn, Variant variant = {}) {
    const CompileRequest request{&fn, variant};
    return std::move(device_->compile(std::span(&request, 1))[0]);
  }

  /// The arguments of a launch. Vectors are buffers, which are copied back. Numbers are scalars.
  class Call {
   public:
    explicit Call(Cpu& cpu) : cpu_(cpu) {}
    ~Call() {
      for (auto& b : buffers_) cpu_.device_->release(*b.allocation);
    }
    template <class T>
    Call& buffer(std::vector<T>& v) {
      auto a = std::make_unique<Allocation>(cpu_.device_->allocate(v.size() * sizeof(T) + guard, MemoryKind::device));
      std::memset(a->host, 0xA5, v.size() * sizeof(T) + guard);
      std::memcpy(a->host, v.data(), v.size() * sizeof(T));
      arguments_.push_back({.allocation = a.get(), .elements = v.size()});
      T* data = v.data();
      const std::size_t bytes = v.size() * sizeof(T);
      buffers_.push_back({std::move(a), data, bytes});
      return *this;
    }
    /// Adds a buffer with `elements` elements, stored as bytes.
    Call& buffer(std::vector<std::byte>& v, std::size_t elements) {
      buffer(v);
      arguments_.back().elements = elements;
      return *this;
    }
    /// Adds a buffer with `elements` elements that uses the caller's memory directly.
    Call& at(void* data, std::size_t bytes, std::size_t elements) {
      wrapped_.push_back(std::make_unique<Allocation>(cpu_.device_->wrap(data, bytes)));
      arguments_.push_back({.allocation = wrapped_.back().get(), .elements = elements});
      return *this;
    }
    /// Adds a buffer with the same memory as argument `i`.
    Call& same_as(std::size_t i) {
      arguments_.push_back(arguments_[i]);
      return *this;
    }
    template <class T>
    Call& scalar(T v) {
      arguments_.push_back({.bits = ir::to_bits(dtype_v<T>, v)});
      return *this;
    }
    Call& index(std::int64_t v) {
      arguments_.push_back({.bits = static_cast<std::uint64_t>(v)});
      return *this;
    }
    void run(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape) {
      cpu_.queue_->launch(kernel, shape, arguments_);
      for (auto& b : buffers_) {
        std::memcpy(b.data, b.allocation->host, b.bytes);
        for (std::size_t i = 0; i < guard; ++i)
          ASSERT_EQ(std::to_integer<int>(b.allocation->host[b.bytes + i]), 0xA5) << "written past the end";
      }
    }
    void run(const ir::Function& fn, std::array<std::uint64_t, 3> shape, Variant variant = {}) {
      run(*cpu_.compile(fn, variant), shape);
    }

   private:
    static constexpr std::size_t guard = 256;
    struct Buffer {
      std::unique_ptr<Allocation> allocation;
      void* data;
      std::size_t bytes;
    };
    Cpu& cpu_;
    std::vector<Argument> arguments_;
    std::vector<Buffer> buffers_;
    std::vector<std::unique_ptr<Allocation>> wrapped_;
  };
  Call call() { return Call(*this); }

 private:
  std::string target_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<DriverDevice> device_;
  std::unique_ptr<DriverQueue> queue_;
};

/// Returns one device for each target that this machine can run. They are created on the first call.
inline std::vector<Cpu*> cpu_targets() {
  static auto& all = *new std::vector<std::unique_ptr<Cpu>>([] {
    std::vector<std::unique_ptr<Cpu>> out;
    for (const char* t : {"native", "x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"}) {
      try {
        out.push_back(std::make_unique<Cpu>(t));
      } catch (const DeviceError& e) {
        std::printf("unsupported on this machine: %s\n", e.what());
      }
    }
    return out;
  }());
  std::vector<Cpu*> out;
  for (auto& c : all) out.push_back(c.get());
  return out;
}

}  // namespace tessera::testing
