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

/// A traced kernel. Cheap to copy: copies share the compiled code. Thread-safe.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(ir::Function function);  ///< Creates a kernel from a verified IR function.

  /// False for a default-constructed kernel.
  bool valid() const { return state_ != nullptr; }
  const ir::Function& function() const;  ///< The kernel's IR.
  ir::Hash hash() const;                 ///< Hash of the kernel's IR; equal kernels have equal hashes.

  /// Enqueues the kernel on its buffers' device. `shape`: for map kernels the number of threads along each dimension,
  /// for block kernels the number of blocks; if any is 0, arguments are checked but nothing runs. `queue`: null for the
  /// device's current queue. A kernel without buffers runs on `queue`'s device, else on current_device(). Pending
  /// expressions that read a written buffer are computed first.
  /// Throws KernelError if arguments do not match the parameters, or if a written buffer partially overlaps another one
  /// (the same view twice is allowed and uses another variant); DeviceError if buffers are on different devices.
  /// current_device().
  void launch(const std::array<std::uint64_t, 3>& shape, std::span<const LaunchArgument> arguments,
              Queue* queue = nullptr) const;
  void launch(const std::array<std::uint64_t, 3>& shape, std::initializer_list<LaunchArgument> arguments) const {
    launch(shape, std::span(arguments.begin(), arguments.size()));
  }

  /// Compiles the kernel now, so that a later launch does not wait for it.
  void prepare(Device device, Variant variant = {}) const;
  /// Returns the source that the device's compiler reads.
  std::string source(Device device, Variant variant = {}) const;

 private:
  friend struct KernelAccess;
  struct State;
  std::shared_ptr<State> state_;
};

/// Compiles or loads many kernels for a device in one call, which is much faster with OpenCL drivers.
void prepare(Device device, std::span<const Kernel> kernels);

}  // namespace tessera
