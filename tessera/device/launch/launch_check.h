// SPDX-License-Identifier: Apache-2.0
// Properties of a traced kernel, and validation of launch arguments. Internal to device/.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

/// Properties of a function that are needed for every launch. They are computed once.
struct KernelFacts {
  explicit KernelFacts(const ir::Function& fn);
  std::vector<std::uint8_t> writes;    ///< per parameter: 1 if the kernel stores to this buffer
  std::vector<std::uint8_t> reads;     ///< per parameter: 1 if the kernel loads from this buffer
  std::vector<std::uint32_t> buffers;  ///< indices of the buffer parameters
  std::vector<std::uint32_t> vectors;  ///< indices of the buffers whose alignment selects the variant
  std::uint64_t shared_bytes = 0;
  std::uint64_t parameter_bytes = 0;
};

/// Returns a kernel's signature: "saxpy(x: read-only buffer of f32, y: buffer of f32, a: f32)".
std::string signature(const ir::Function& fn);

struct ArgumentFacts {
  std::optional<Device> device;  ///< device of the buffers; std::nullopt if there are none
  bool wide = false;             ///< a buffer has about 2^31 elements or more, or an index argument is that large
};
/// Throws KernelError unless the number, kinds, dtypes, alignment and bounds of the arguments match the parameters.
/// Throws DeviceError if the buffers are on different devices.
ArgumentFacts check_arguments(const ir::Function& fn, std::span<const LaunchArgument> arguments);
/// Returns true if a written buffer is passed twice as the same view. Throws KernelError if it partially overlaps
/// another one.
bool check_overlap(const ir::Function& fn, const KernelFacts& facts, std::span<const LaunchArgument> arguments);
/// Returns true if all buffers in `facts.vectors` begin at multiples of 16 bytes.
bool are_aligned(const KernelFacts& facts, std::span<const LaunchArgument> arguments);
/// Returns false if an extent is 0. Throws KernelError if one is negative or there are more than 2^62 threads.
bool check_shape(const ir::Function& fn, const std::array<std::uint64_t, 3>& shape);
/// True if indices need 64 bits. Conservative: returns true for any wide argument and from about 2^31 threads on.
bool needs_index64(const ir::Function& fn, const std::array<std::uint64_t, 3>& shape, const ArgumentFacts& arguments);
/// Throws KernelError if the device does not support this block size or this amount of shared memory.
void check_capabilities(const ir::Function& fn, const KernelFacts& facts, const DeviceInfo& info);

}  // namespace tessera
