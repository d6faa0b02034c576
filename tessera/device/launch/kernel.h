// SPDX-License-Identifier: Apache-2.0
// A traced kernel that is compiled on first use on each device. kernel/ provides typed handles for these.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "tessera/device/launch/launch_arguments.h"
#include "tessera/device/launch/variant.h"
#include "tessera/ir/fwd.h"

namespace tessera {

/// A traced kernel. Copies are cheap and share the compiled code. Thread-safe.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(ir::Function function);  ///< Creates a kernel from a verified IR function.

  /// False for a default-constructed kernel.
  bool valid() const { return state_ != nullptr; }
  const ir::Function& function() const;  ///< The kernel's IR.
  ir::Hash hash() const;                 ///< Hash of the kernel's IR; equal kernels have equal hashes.

  /// Enqueues the kernel on the device of its buffers. `shape` is the number of threads along each dimension for map
  /// kernels and the number of blocks for block kernels. If an extent is 0, the arguments are checked but nothing runs.
  /// If `queue` is null, the device's current queue is used. A kernel without buffers runs on the device of `queue`,
  /// else on current_device(). Pending expressions that read a written buffer are computed first.
  /// Throws KernelError if the arguments do not match the parameters, or if a written buffer partially overlaps another
  /// one. Passing the same view twice is allowed and selects another variant of the kernel. Throws DeviceError if the
  /// buffers are on different devices.
  void launch(const std::array<std::uint64_t, 3>& shape, std::span<const LaunchArgument> arguments,
              Queue* queue = nullptr) const;
  void launch(const std::array<std::uint64_t, 3>& shape, std::initializer_list<LaunchArgument> arguments) const {
    launch(shape, std::span(arguments.begin(), arguments.size()));
  }

  /// Compiles the kernel now, so that a later launch does not have to wait for the compiler.
  void prepare(Device device, Variant variant = {}) const;
  /// Returns the source that the device's compiler reads.
  std::string source(Device device, Variant variant = {}) const;

 private:
  friend struct KernelAccess;
  struct State;
  std::shared_ptr<State> state_;
};

/// Compiles or loads many kernels for a device in one call. With OpenCL drivers this is much faster than one call per
/// kernel.
void prepare(Device device, std::span<const Kernel> kernels);

}  // namespace tessera
