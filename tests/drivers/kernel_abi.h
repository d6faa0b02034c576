// SPDX-License-Identifier: Apache-2.0
// Interface between a fake driver and the test process. The process that emits a kernel also has its IR. It interprets
// the IR when the driver launches the kernel. The interface only uses plain data, because the driver and the test are
// linked separately.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::fake {

/// An argument of an emitted kernel (see emit::KernelArgument).
struct KernelArgument {
  enum Kind : std::uint32_t { pointer, offset, length, scalar, extent };
  std::uint32_t kind = scalar;
  std::uint32_t number = 0;         ///< number of the parameter; for extents, the dimension
  std::uint32_t bytes = 8;          ///< size of the argument
  std::uint32_t element_bytes = 1;  ///< pointers: size of the elements
  std::uint32_t writes = 0;         ///< pointers: 1 if the kernel may write
};

struct KernelFacts {
  const void* kernel = nullptr;  ///< passed to `run`
  std::uint32_t block = 0;       ///< 1: a block kernel with blocks of `block_size`; 0: a map kernel
  std::uint32_t block_size[3] = {1, 1, 1};
  std::uint32_t guarded[3] = {0, 0, 0};  ///< map kernels: dimensions whose extent is an argument
  std::uint64_t static_shared_bytes = 0, dynamic_shared_bytes = 0;
  std::uint32_t noalias = 0;  ///< 1 if the buffers are declared not to overlap
  std::uint32_t parameters = 0, argument_count = 0;
  const KernelArgument* arguments = nullptr;
};

/// A parameter of a launch, as passed to the interpreter.
struct KernelValue {
  std::byte* data = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t bits = 0;
};

struct Resolver {
  /// Sets `facts` of the kernel with this entry. Returns 0 if this process has not emitted the kernel. `opencl` is 1
  /// for OpenCL C kernels, which are registered separately because they have offset arguments.
  int (*find)(const char* entry, int opencl, KernelFacts* facts);
  /// Runs a kernel. `shape` has the same meaning as in ir::Interpreter::run. On failure, returns 0 and sets `error` to
  /// the message.
  int (*run)(const void* kernel, std::uint32_t subgroup_width, const std::uint64_t shape[3], const KernelValue* values,
             char* error, std::size_t error_bytes);
};

}  // namespace tessera::fake

/// Exported by test programs (tests/drivers/resolver.cpp). A fake driver looks it up at its first launch.
extern "C" const tessera::fake::Resolver tessera_fake_resolver;
