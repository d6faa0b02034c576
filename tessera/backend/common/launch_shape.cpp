// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/launch_shape.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "tessera/backend/common/program.h"
#include "tessera/base/error.h"
#include "tessera/ir/node.h"

namespace tessera::backend {

namespace {

constexpr auto most32 = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
constexpr const char* wide_indices = "Compile the variant with 64-bit indices";

std::array<std::uint64_t, 3> wanted_block(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape) {
  const auto& guarded = kernel.emitted.dimensions;
  std::array<std::uint64_t, 3> wanted = {256, 1, 1};
  if (guarded[1] && shape[1] > 1)
    wanted = shape[0] >= 64 ? std::array<std::uint64_t, 3>{64, 4, 1}
             : shape[0] > 4 ? std::array<std::uint64_t, 3>{16, 16, 1}
                            : std::array<std::uint64_t, 3>{4, 64, 1};
  else if (guarded[2] && shape[2] > 1 && shape[0] < 64)
    wanted = {16, 1, 16};
  for (std::size_t d = 0; d < 3; ++d)
    if (!guarded[d]) wanted[d] = 1;  // without a guard the block must match the extent exactly
  return wanted;
}

std::uint64_t threads_of(const std::array<std::uint64_t, 3>& block) { return block[0] * block[1] * block[2]; }

}  // namespace

KernelShape::KernelShape(const ir::Function& function, emit::EmittedKernel emitted_kernel, bool wide)
    : name(function.name),
      kind(function.kind),
      block(function.block_size),
      params(function.params),
      emitted(std::move(emitted_kernel)),
      index64(wide) {}

Grid grid_of(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape, const Capabilities& can,
             std::uint64_t block_threads) {
  Grid g;
  if (kernel.kind == ir::KernelKind::block) {
    g.blocks = shape;
    for (std::size_t d = 0; d < 3; ++d) g.block[d] = kernel.block[d];
  } else {
    g.block = wanted_block(kernel, shape);
    for (std::size_t d = 0; d < 3; ++d) g.block[d] = std::min<std::uint64_t>(g.block[d], can.max_block[d]);
    auto blocks_with = [&](std::size_t d, std::uint64_t threads) { return (shape[d] - 1) / threads + 1; };
    // Returns the largest dimension other than `except`, or 3 if there is none. If `fits` is true, only considers
    // dimensions that can be halved without exceeding the limit on blocks.
    auto largest = [&](std::size_t except, bool fits) {
      std::size_t best = 3;
      for (std::size_t d = 0; d < 3; ++d)
        if (d != except && g.block[d] > 1 && (!fits || blocks_with(d, g.block[d] / 2) <= can.max_blocks[d]) &&
            (best == 3 || g.block[d] > g.block[best]))
          best = d;
      return best;
    };
    while (threads_of(g.block) > block_threads) g.block[largest(3, false)] /= 2;
    for (std::size_t d = 0; d < 3; ++d) {
      while (kernel.emitted.dimensions[d] && blocks_with(d, g.block[d]) > can.max_blocks[d] &&
             g.block[d] * 2 <= can.max_block[d]) {
        const auto before = g.block;
        g.block[d] *= 2;
        for (std::size_t other; threads_of(g.block) > block_threads && (other = largest(d, true)) != 3;)
          g.block[other] /= 2;
        if (threads_of(g.block) <= block_threads) continue;
        g.block = before;
        break;
      }
    }
    for (std::size_t d = 0; d < 3; ++d) g.blocks[d] = blocks_with(d, g.block[d]);
  }
  for (std::size_t d = 0; d < 3; ++d) {
    if (g.blocks[d] > can.max_blocks[d] || g.blocks[d] > can.max_grid_threads[d] / g.block[d])
      fail<KernelError>({.operation = "kernel " + kernel.name,
                         .with = {{"shape", fmt::format("{} x {} x {}", shape[0], shape[1], shape[2])}},
                         .wrong = fmt::format("its grid has {} blocks of {} threads in dimension {}, but this device "
                                              "supports at most {} blocks in this dimension",
                                              g.blocks[d], g.block[d], d,
                                              std::min(can.max_blocks[d], can.max_grid_threads[d] / g.block[d])),
                         .remedy = "Make dimension 0 the largest, or split the launch"});
    if (!kernel.index64 && g.blocks[d] * g.block[d] > most32)
      fail<KernelError>({.operation = "kernel " + kernel.name,
                         .wrong = "its grid is too large for the 32-bit indices that it was compiled with",
                         .remedy = wide_indices});
  }
  if (kernel.emitted.flat) g.block = {threads_of(g.block), 1, 1};
  return g;
}

Grid grid_of(const CompileRequest& request, const emit::Dialect& dialect, const DeviceInfo& info,
             const std::array<std::uint64_t, 3>& shape) {
  const KernelShape kernel(*request.function, emitted_kernel(request, dialect, info),
                           request.variant.index64 || request.function->index64);
  return grid_of(kernel, shape, info.can, info.can.max_block_threads);
}

void bind_arguments(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape,
                    std::span<const Argument> arguments, std::vector<BoundArgument>& to) {
  using Kind = emit::KernelArgument::Kind;
  to.clear();
  if (arguments.size() != kernel.params.size())
    fail<KernelError>({.operation = "kernel " + kernel.name,
                       .with = {{"arguments", std::to_string(arguments.size())},
                                {"parameters", std::to_string(kernel.params.size())}},
                       .wrong = "the number of arguments differs from the number of parameters"});
  const std::uint32_t index_bytes = kernel.index64 ? 8 : 4;
  auto index = [&](std::uint64_t value) {
    if (!kernel.index64 && value > most32)
      fail<KernelError>({.operation = "kernel " + kernel.name,
                         .with = {{"size", std::to_string(value)}},
                         .wrong = "a size does not fit in the 32-bit indices that it was compiled with",
                         .remedy = wide_indices});
    return value;
  };
  for (const emit::KernelArgument& a : kernel.emitted.arguments) {
    const std::uint32_t p = a.number;
    switch (a.kind) {
      case Kind::pointer: {
        const Allocation* allocation = arguments[p].allocation;
        if (allocation && allocation->host && !allocation->handle)
          fail<KernelError>({.operation = "kernel " + kernel.name,
                             .wrong = "argument " + kernel.params[p].name + " is host memory",
                             .remedy = "Copy it to the device first"});
        if (arguments[p].byte_offset % dtype_size(kernel.params[p].dtype) != 0)
          fail<KernelError>(
              {.operation = "kernel " + kernel.name,
               .with = {{"offset", std::to_string(arguments[p].byte_offset)},
                        {"dtype", std::string(dtype_name(kernel.params[p].dtype))}},
               .wrong = "the offset of buffer " + kernel.params[p].name + " is not a multiple of its element size",
               .remedy = "Copy the view to a separate buffer"});
        to.push_back({a.kind, p, sizeof(void*), allocation ? reinterpret_cast<std::uintptr_t>(allocation->handle) : 0,
                      arguments[p].byte_offset});
        break;
      }
      case Kind::offset:
        to.push_back({a.kind, p, 8, arguments[p].byte_offset / dtype_size(kernel.params[p].dtype)});
        break;
      case Kind::length: to.push_back({a.kind, p, index_bytes, index(arguments[p].elements)}); break;
      case Kind::extent:
        to.push_back({a.kind, static_cast<std::uint32_t>(kernel.params.size()), index_bytes, index(shape[p])});
        break;
      case Kind::scalar: {
        const DType t = kernel.params[p].dtype;  // the host is little-endian, so the value is in the low bytes
        const auto bytes = t == DType::index ? index_bytes : static_cast<std::uint32_t>(dtype_size(t));
        to.push_back({a.kind, p, bytes, arguments[p].bits});
        break;
      }
    }
  }
}

}  // namespace tessera::backend
