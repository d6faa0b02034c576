// SPDX-License-Identifier: Apache-2.0
// One launch: the grid, and the arguments in the order that the emitter chose.
#include <algorithm>
#include <limits>

#include "tessera/backend/opencl/device.h"
#include "tessera/base/error.h"

namespace tessera::cl {

ClKernel::~ClKernel() { api().release_kernel(kernel_); }

// PoCL compiles a kernel anew for each size of its groups, so few sizes are used; lowering's guard cuts off what is
// over.
ClKernel::Grid ClKernel::grid(const std::array<std::uint64_t, 3>& shape) const {
  Grid g;
  if (kind_ == ir::KernelKind::block) {
    for (std::size_t d = 0; d < 3; ++d) g.local[d] = block_[d], g.global[d] = shape[d] * block_[d];
    return g;
  }
  std::array<std::size_t, 3> wanted = {256, 1, 1};
  const auto& guarded = emitted_.dimensions;
  const bool plane = guarded[1] && shape[1] > 1;
  if (plane)
    wanted = shape[0] >= 64 ? std::array<std::size_t, 3>{64, 4, 1}
             : shape[0] > 4 ? std::array<std::size_t, 3>{16, 16, 1}
                            : std::array<std::size_t, 3>{4, 64, 1};
  else if (guarded[2] && shape[2] > 1 && shape[0] < 64)
    wanted = {16, 1, 16};
  while (wanted[0] * wanted[1] * wanted[2] > group_limit_) {
    auto& largest = *std::ranges::max_element(wanted);
    largest /= 2;
  }
  for (std::size_t d = 0; d < 3; ++d) {
    g.local[d] = guarded[d] ? wanted[d] : 1;
    g.global[d] = (shape[d] + g.local[d] - 1) / g.local[d] * g.local[d];
  }
  return g;
}

void ClKernel::set(std::uint32_t number, const void* value, std::size_t bytes, std::uint32_t param) {
  const Code code = api().set_argument(kernel_, number, bytes, value);
  if (code != success)
    check(code, "clSetKernelArg",
          "kernel " + name_ + (param < params_.size() ? ", argument " + params_[param].name : ""));
}
void ClKernel::set_index(std::uint32_t number, std::uint64_t value, std::uint32_t param) {
  if (index64_) return set(number, &value, sizeof value, param);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
    fail<KernelError>({.asked = "kernel " + name_,
                       .with = {{"size", std::to_string(value)}},
                       .wrong = "a size does not fit in the 32-bit indices that it was compiled with",
                       .todo = "Compile the variant with 64-bit indices"});
  const auto narrow = static_cast<std::uint32_t>(value);
  set(number, &narrow, sizeof narrow, param);
}

void ClKernel::enqueue(Queue queue, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments,
                       Event* event) {
  using Kind = emit::KernelArgument::Kind;
  if (arguments.size() != params_.size())
    fail<KernelError>(
        {.asked = "kernel " + name_,
         .with = {{"arguments", std::to_string(arguments.size())}, {"parameters", std::to_string(params_.size())}},
         .wrong = "it got another number of arguments than it has parameters"});
  const Grid g = grid(shape);
  std::lock_guard guard(lock_);
  std::uint32_t number = 0;
  for (const emit::KernelArgument& a : emitted_.arguments) {
    const std::uint32_t p = a.number;
    switch (a.kind) {
      case Kind::pointer: {
        const Allocation* allocation = arguments[p].allocation;
        if (allocation && allocation->host && !allocation->handle)
          fail<KernelError>({.asked = "kernel " + name_,
                             .wrong = "argument " + params_[p].name + " is memory of the host",
                             .todo = "Copy it to the device first"});
        const Memory memory = allocation ? static_cast<Memory>(allocation->handle) : nullptr;
        set(number, &memory, sizeof memory, p);
        break;
      }
      case Kind::offset: {
        const std::size_t size = dtype_size(params_[p].dtype);
        if (arguments[p].byte_offset % size != 0)
          fail<KernelError>({.asked = "kernel " + name_,
                             .with = {{"offset", std::to_string(arguments[p].byte_offset)},
                                      {"dtype", std::string(dtype_name(params_[p].dtype))}},
                             .wrong = "buffer " + params_[p].name + " does not start at a whole element",
                             .todo = "Copy the view to memory of its own"});
        const std::uint64_t elements = arguments[p].byte_offset / size;
        set(number, &elements, sizeof elements, p);
        break;
      }
      case Kind::length: set_index(number, arguments[p].elements, p); break;
      case Kind::extent: set_index(number, shape[p], static_cast<std::uint32_t>(params_.size())); break;
      case Kind::scalar: {
        const DType t = params_[p].dtype;  // the low bytes of the bits are the value, on a little-endian host
        const std::size_t bytes = t == DType::index ? (index64_ ? 8u : 4u) : dtype_size(t);
        set(number, &arguments[p].bits, bytes, p);
        break;
      }
    }
    ++number;
  }
  if (!index64_ &&
      *std::ranges::max_element(g.global) > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    fail<KernelError>({.asked = "kernel " + name_,
                       .wrong = "its grid is too large for the 32-bit indices that it was compiled with",
                       .todo = "Compile the variant with 64-bit indices"});
  check(api().enqueue_kernel(queue, kernel_, 3, nullptr, g.global.data(), g.local.data(), 0, nullptr, event),
        "clEnqueueNDRangeKernel", "kernel " + name_);
}

}  // namespace tessera::cl
