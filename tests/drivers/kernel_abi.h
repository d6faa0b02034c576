// SPDX-License-Identifier: Apache-2.0
// Interface between a fake driver and the test process. The process that emitted a kernel's text also has its IR, and
// executes it when the driver is asked to launch the kernel's entry. Plain data, because the two are linked separately.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::fake {

/// One argument of the emitted kernel, in call order (emit::KernelArgument).
struct KernelArgument {
  enum Kind : std::uint32_t { pointer, offset, length, scalar, extent };
  std::uint32_t kind = scalar;
  std::uint32_t number = 0;         ///< of the parameter; extents: of the dimension
  std::uint32_t bytes = 8;          ///< size of the argument itself
  std::uint32_t element_bytes = 1;  ///< pointers: size of the elements
  std::uint32_t writes = 0;         ///< pointers: the kernel may write
};

struct KernelFacts {
  const void* kernel = nullptr;  ///< passed to `run`
  std::uint32_t block = 0;       ///< 1: a block kernel of `block_size`, else a map kernel
  std::uint32_t block_size[3] = {1, 1, 1};
  std::uint32_t guarded[3] = {0, 0, 0};  ///< map kernels: dimensions whose extent is an argument
  std::uint64_t static_shared_bytes = 0, dynamic_shared_bytes = 0;
  std::uint32_t noalias = 0;  ///< its buffers are declared as not overlapping
  std::uint32_t parameters = 0, argument_count = 0;
  const KernelArgument* arguments = nullptr;
};

/// One parameter of a launch, as passed to the interpreter.
struct KernelValue {
  std::byte* data = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t bits = 0;
};

struct Resolver {
  /// Returns 0 if this process has not emitted the entry. OpenCL C kernels are separate: they take offsets with
  /// pointers.
  int (*find)(const char* entry, int opencl, KernelFacts* facts);
  /// `shape` as in ir::Interpreter::run. Returns 0 on failure, with the message in `error`.
  int (*run)(const void* kernel, std::uint32_t subgroup_width, const std::uint64_t shape[3], const KernelValue* values,
             char* error, std::size_t error_bytes);
};

}  // namespace tessera::fake

/// Exported by test programs (tests/drivers/resolver.cpp); a fake driver looks it up at its first launch.
extern "C" const tessera::fake::Resolver tessera_fake_resolver;
