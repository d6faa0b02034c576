// SPDX-License-Identifier: Apache-2.0
// Creates kernels from functions that trace them, for tests below the kernel language.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "tessera/ir/builder.h"
#include "tessera/ir/value.h"

namespace tessera::test {

/// If `verified` is false, the kernel is canonicalised but not verified.
template <class F>
ir::Function trace(std::string name, ir::KernelKind kind, std::array<std::uint32_t, 3> block, F&& body,
                   bool verified = true) {
  ir::Builder builder(std::move(name), kind, block);
  {
    ir::Builder::Scope scope(builder);
    body();
  }
  return verified ? builder.finish() : ir::canonicalise(builder.function());
}
template <class F>
ir::Function map_kernel(std::string name, F&& body) {
  return trace(std::move(name), ir::KernelKind::map, {1, 1, 1}, body);
}
/// Block sizes of 0 become 1: {64} means 64 x 1 x 1.
template <class F>
ir::Function block_kernel(std::string name, std::array<std::uint32_t, 3> block, F&& body) {
  for (std::uint32_t& n : block) n = n != 0 ? n : 1;
  return trace(std::move(name), ir::KernelKind::block, block, body);
}

inline ir::BufferRef in(const std::string& name, DType t = DType::f32) {
  return ir::buffer_param(name, t, ir::Access::read);
}
inline ir::BufferRef out(const std::string& name, DType t = DType::f32) {
  return ir::buffer_param(name, t, ir::Access::read_write);
}

}  // namespace tessera::test
