// SPDX-License-Identifier: Apache-2.0
// What a fake driver and the test process tell each other about kernels: the process, which has emitted a kernel's
// text, also has its meaning and executes it when the driver is asked to launch its entry. Plain data: the two are
// linked separately.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::fake {

/// One argument of the emitted kernel, in the order of the call (emit::KernelArgument).
struct KernelArgument {
  enum Kind : std::uint32_t { pointer, offset, length, scalar, extent };
  std::uint32_t kind = scalar;
  std::uint32_t number = 0;         ///< of the parameter; extents: of the dimension
  std::uint32_t bytes = 8;          ///< of the argument itself
  std::uint32_t element_bytes = 1;  ///< pointers: of what they point to
  std::uint32_t writes = 0;         ///< pointers: the kernel may write there
};

struct KernelFacts {
  const void* kernel = nullptr;  ///< what `run` wants back
  std::uint32_t block = 0;       ///< a block kernel of `block_size`, else a map kernel
  std::uint32_t block_size[3] = {1, 1, 1};
  std::uint32_t guarded[3] = {0, 0, 0};  ///< map kernels: dimensions whose extent is an argument
  std::uint64_t static_shared_bytes = 0, dynamic_shared_bytes = 0;
  std::uint32_t noalias = 0;  ///< its buffers are declared to be disjoint
  std::uint32_t parameters = 0, argument_count = 0;
  const KernelArgument* arguments = nullptr;
};

/// One parameter of a launch as the interpreter takes it.
struct KernelValue {
  std::byte* data = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t bits = 0;
};

struct Resolver {
  /// 0 if nobody has emitted this entry. OpenCL C passes offsets beside pointers, so its kernels are other ones.
  int (*find)(const char* entry, int opencl, KernelFacts* facts);
  /// `shape` as in ir::Interpreter::run. 0 if it failed; then `error` has the text.
  int (*run)(const void* kernel, std::uint32_t subgroup_width, const std::uint64_t shape[3], const KernelValue* values,
             char* error, std::size_t error_bytes);
};

}  // namespace tessera::fake

/// Test programs export this (tests/drivers/resolver.cpp); a fake driver looks for it when it launches for the first
/// time.
extern "C" const tessera::fake::Resolver tessera_fake_resolver;
