// SPDX-License-Identifier: Apache-2.0
// Reports how fast a kernel can be on a GPU that is not in this machine: registers, spilled bytes, how its loops load
// from memory, and which limit bounds a launch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/device/device.h"
#include "tessera/device/target_compiler.h"

namespace tessera {

class Kernel;

/// A GPU architecture to report for.
struct ReportTarget {
  std::string architecture = "sm_90";                   ///< NVIDIA: "sm_90"; AMD: "gfx90a".
  TargetCompiler compiler = TargetCompiler::automatic;  ///< Which compiler to use.
};

/// How a kernel loads from device memory in the loop that loads most. If no loop loads, the figures are of the whole
/// kernel. All bytes are those of one thread.
struct LoopReport {
  bool loop = false;                        ///< False if no loop loads from device memory.
  bool innermost = false;                   ///< True if the loop contains no other loop.
  std::uint32_t instructions = 0;           ///< Instructions per iteration.
  std::uint32_t bytes = 0;                  ///< Bytes that an iteration loads.
  std::uint32_t widest = 0, narrowest = 0;  ///< Bytes of the widest and the narrowest load; 0 if there is no load.
  std::uint32_t widest_store = 0;           ///< Bytes of the widest store in the whole kernel.
  std::uint32_t groups = 0;           ///< How often a thread waits for loads before it issues others, per iteration.
  std::uint32_t bytes_in_flight = 0;  ///< Bytes that a thread has requested when it waits.
  std::uint32_t matrix_instructions = 0;  ///< Number of matrix instructions in the whole kernel.
  // The loop with most matrix instructions, per iteration and without the loops that it contains:
  std::uint32_t matrix_loop_instructions = 0;  ///< All instructions.
  std::uint32_t matrix_loop_products = 0;      ///< Matrix instructions.
  std::uint32_t matrix_multiply_adds = 0;      ///< Multiply-adds of a subgroup in these, as in matrix_operations.
  std::uint32_t matrix_shared_bytes = 0;       ///< Bytes that a thread loads from and stores to shared memory.
};

/// What bounds a launch.
enum class Bound : std::uint8_t { bandwidth, latency, arithmetic, launch };
std::string_view bound_name(Bound bound);  ///< Name of the bound: "bandwidth".

/// A predicted launch. docs/performance.md explains the model ("Predict the time of a launch").
struct LaunchReport {
  std::array<std::uint64_t, 3> blocks{};  ///< Number of blocks.
  std::uint32_t threads = 0;              ///< Threads of a block.
  double bytes = 0;                       ///< Bytes of the buffers that it reads and writes.
  double operations = 0;                  ///< Estimated number of 32-bit operations.
  double matrix_operations = 0;           ///< Multiply-adds of matrix instructions, as many of f16 as take their time.
  double matrix_share = 0;                ///< Share of the matrix units' rate in the predicted time.
  double blocks_per_multiprocessor = 0;   ///< Blocks that run at once, on average.
  double bytes_in_flight = 0;             ///< Requested bytes of a multiprocessor.
  double latency_factor = 1;              ///< Share of the bandwidth that these requests can use, at most 1.
  double seconds = 0;                     ///< Predicted time, including 2 us for the launch; NaN if there is no
                                          ///< disassembly (KernelReport::unknown).
  double share = 0;                       ///< Time at 0.9 of the nominal bandwidth, divided by `seconds`.
  Bound bound = Bound::bandwidth;         ///< What bounds it.
};

/// The report of one kernel.
struct KernelReport {
  std::string kernel;                  ///< Name of the kernel.
  std::string architecture;            ///< "sm_90".
  std::string gpu;                     ///< The GPU whose limits are used: "NVIDIA H200".
  std::string compiler;                ///< "NVRTC 13.5".
  std::uint32_t registers = 0;         ///< Registers of a thread.
  std::uint32_t spilled_bytes = 0;     ///< Bytes that a thread spills to memory.
  std::uint64_t shared_bytes = 0;      ///< Shared memory of a block in bytes.
  std::uint32_t threads = 0;           ///< Threads of a block; for map kernels without a launch 256.
  double occupancy = 0;                ///< Threads that fit on a multiprocessor, divided by its maximum.
  std::optional<LoopReport> loops;     ///< How it loads from memory; empty if `unknown` is not.
  std::optional<LaunchReport> launch;  ///< Only in reports of launches.
  std::uint32_t launches = 1;          ///< Number of equal launches.
  std::string
      unknown;  ///< Why there is no disassembly, and what to install; the figures below `loops` are then missing.
};

/// Returns the report as text with several lines.
std::string to_string(const KernelReport& report);

/// Compiles a kernel for a GPU that is not in this machine, and reports on it. Runs the target's compiler and
/// disassembler, which must be installed.
/// Throws DeviceError if the architecture is unknown or its compiler is not installed, and KernelError if the kernel
/// needs a feature that the architecture lacks.
KernelReport report(const Kernel& kernel, const ReportTarget& target = {});

/// Calls `work` with a device that simulates the target, and reports on each different launch, in the order of their
/// first occurrence. `work` creates arrays on this device and uses them as usual, from the calling thread. Nothing is
/// computed, and downloads return zeros. Work is as for a GPU without a vendor's library.
/// Throws like `report`.
std::vector<KernelReport> report_launches(const ReportTarget& target, Callback<void(Device)> work);

}  // namespace tessera
