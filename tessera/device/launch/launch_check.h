// SPDX-License-Identifier: Apache-2.0
// What is known of a kernel once it is traced, and whether a launch's arguments fit it. Internal to device/.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

/// Facts of a function that every launch needs; computed once.
struct KernelFacts {
  explicit KernelFacts(const ir::Function& fn);
  std::vector<std::uint8_t> writes;    ///< by parameter: a buffer that the kernel stores to
  std::vector<std::uint8_t> reads;     ///< by parameter: a buffer that the kernel loads from
  std::vector<std::uint32_t> buffers;  ///< parameters that are buffers
  std::uint64_t shared_bytes = 0;
  std::uint64_t parameter_bytes = 0;
};

/// "saxpy(x: read-only buffer of f32, y: buffer of f32, a: f32)"
std::string signature(const ir::Function& fn);

struct ArgumentFacts {
  std::optional<Device> device;  ///< of the buffers; nothing if there are none
  bool wide = false;             ///< a buffer of 2^31 elements or more, or an index that large
};
/// KernelError unless number, kinds, dtypes, alignment and bounds of the arguments fit; DeviceError if the buffers are
/// on several devices.
ArgumentFacts check_arguments(const ir::Function& fn, std::span<const LaunchArgument> arguments);
/// True if some written buffer is given twice as the very same view; KernelError if a written one overlaps otherwise.
bool check_overlap(const ir::Function& fn, const KernelFacts& facts, std::span<const LaunchArgument> arguments);
/// KernelError if an extent is negative or the threads together cannot be counted. False if there is nothing to do.
bool check_shape(const ir::Function& fn, const std::array<std::uint64_t, 3>& shape);
/// Do indices need 64 bits? Conservative: what is wide among the arguments, or 2^31 threads in all.
bool needs_index64(const ir::Function& fn, const std::array<std::uint64_t, 3>& shape, const ArgumentFacts& arguments);
/// KernelError if the device cannot run blocks this large or with this much shared memory.
void check_capabilities(const ir::Function& fn, const KernelFacts& facts, const DeviceInfo& info);

}  // namespace tessera
