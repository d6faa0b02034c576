// SPDX-License-Identifier: Apache-2.0
// Launches a kernel: computes the grid, sets the arguments and enqueues it.
#include <mutex>

#include "tessera/backend/opencl/device.h"

namespace tessera::cl {

ClKernel::~ClKernel() { api().release_kernel(kernel_); }

void ClKernel::enqueue(Queue queue, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments,
                       Event* event) {
  const backend::Grid g = backend::grid_of(shape_, shape, can_, group_limit_);
  std::lock_guard guard(lock_);
  backend::bind_arguments(shape_, shape, arguments, bound_);
  for (std::uint32_t number = 0; number < bound_.size(); ++number) {
    const backend::BoundArgument& a = bound_[number];
    const Code code = api().set_argument(kernel_, number, a.bytes, &a.value);
    if (code != success)
      check(code, "clSetKernelArg",
            "kernel " + shape_.name +
                (a.param < shape_.params.size() ? ", argument " + shape_.params[a.param].name : ""));
  }
  std::array<std::size_t, 3> global{}, local{};
  for (std::size_t d = 0; d < 3; ++d) local[d] = g.block[d], global[d] = g.blocks[d] * g.block[d];
  check(api().enqueue_kernel(queue, kernel_, 3, nullptr, global.data(), local.data(), 0, nullptr, event),
        "clEnqueueNDRangeKernel", "kernel " + shape_.name);
}

}  // namespace tessera::cl
