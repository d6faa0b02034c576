// SPDX-License-Identifier: Apache-2.0
// Compilation for a GPU that is not in this machine, with the figures that compilers report about its kernels. Backends
// implement it, and report/ uses it. Internal.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/device/driver.h"
#include "tessera/device/target_compiler.h"

namespace tessera {

/// Limits and rates of a GPU. They determine how many threads of a kernel it runs at once, and how long that takes.
struct GpuModel {
  std::string name;                   ///< a common GPU of the architecture
  std::uint32_t multiprocessors = 0;  ///< multiprocessors, or compute units
  double bandwidth = 0;               ///< nominal memory bandwidth, bytes per second
  double operations = 0;              ///< 32-bit operations per second of all lanes, a multiply-add counting as one
  double matrix_operations = 0;       ///< multiply-adds per second of 16-bit matrix units; 0: unknown
  double f32_matrix_cost = 2;         ///< 16-bit multiply-adds in the time of one of f32 (or tf32) on matrix units
  double clock = 0;                   ///< hertz
  double issue_cycles = 1;            ///< of one instruction of a subgroup in one part of a multiprocessor
  double latency = 0.6e-6;            ///< of a load from device memory under load, seconds
  std::uint32_t subgroup = 32;        ///< threads of a subgroup
  // Per multiprocessor:
  std::uint32_t max_threads = 2048, max_blocks = 32;
  std::uint32_t register_files = 4;  ///< parts, each of which runs a share of the subgroups
  std::uint32_t registers = 512;     ///< per lane of a register file
  std::uint32_t register_unit = 8;   ///< registers of a thread are allocated in multiples of this
  std::uint64_t shared_bytes = 65536;
  std::uint64_t shared_reserved = 0;  ///< additional shared memory of each block
};

/// A kernel that was compiled for a GPU that is not in this machine.
struct OfflineKernel {
  std::string compiler;  ///< "NVRTC 13.5", or "LLVM 16.0.6, ptxas 13.5"
  std::uint32_t registers = 0;
  std::uint32_t spilled_bytes = 0;  ///< per thread
  std::uint64_t shared_bytes = 0;   ///< per block
  enum class Syntax : std::uint8_t { none, sass, amdgcn } syntax = Syntax::none;
  std::string assembly;  ///< the machine code as text
  std::string missing;   ///< if there is no assembly: the program that is not installed, and how to install it
};

class OfflineTarget {
 public:
  virtual ~OfflineTarget() = default;
  /// Properties of `model()`, as the backend would report them for a device in this machine.
  virtual const DeviceInfo& info() const = 0;
  virtual const GpuModel& model() const = 0;
  /// Compiles one kernel. Throws KernelError if the kernel needs a feature that the architecture lacks.
  virtual OfflineKernel compile(const CompileRequest& request) = 0;
  /// Returns the blocks of a launch (see DriverQueue::launch), and the threads of each block.
  struct Grid {
    std::array<std::uint64_t, 3> blocks{}, threads{};
  };
  virtual Grid grid(const CompileRequest& request, const std::array<std::uint64_t, 3>& shape) = 0;
};

/// Returns a compiler for an architecture ("sm_90", "gfx90a"). Throws DeviceError if the architecture is unknown, or if
/// `compiler` is not installed or does not support it. Defined in backend/all.cpp.
std::unique_ptr<OfflineTarget> make_offline_target(const std::string& architecture, TargetCompiler compiler);

}  // namespace tessera
