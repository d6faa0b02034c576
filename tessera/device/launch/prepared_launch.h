// SPDX-License-Identifier: Apache-2.0
// A launch that is repeated with different buffers. Used for small operations, for which checking the unchanged scalars
// and shape would take as long as the operation itself. Internal, for upper layers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tessera/device/driver.h"
#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

class Kernel;
struct LaunchCounter;
struct OpenDevice;

/// Trivially destructible, like all thread-local objects of Tessera.
class PreparedLaunch {
 public:
  static constexpr std::size_t most_arguments = 24, most_buffers = 4;
  /// Start of a buffer. The number of elements and the dtype are the same as in the original launch.
  struct Buffer {
    Storage* storage;
    std::uint64_t byte_offset;
  };

  PreparedLaunch() = default;  ///< empty; never ready
  /// Prepares to repeat `kernel.launch(shape, arguments)`. This launch must just have run on the current queue, with
  /// buffers from the pool. The kernel must never be destroyed. Stays empty if there are more arguments or buffers than
  /// the limits above.
  PreparedLaunch(const Kernel& kernel, const std::array<std::uint64_t, 3>& shape,
                 std::span<const LaunchArgument> arguments);

  /// Returns the queue for the launch. Returns null if Kernel::launch must be used because launches of this thread are
  /// intercepted, recorded, traced or restricted by a Placement, or because the process was forked.
  QueueCore* ready() const;
  /// Allocates uninitialised memory for a result if the launch is ready. Throws OutOfMemory.
  std::shared_ptr<Storage> allocate(std::size_t bytes) const;
  /// Launches the kernel. `queue` is the result of the last call of `ready`. The buffers must be from the device's pool
  /// and have the original sizes. Two of them must be the same view if and only if the original ones were. `scalars`
  /// replace the scalars after the last buffer.
  void operator()(QueueCore& queue, std::span<const Buffer> buffers, std::span<const std::uint64_t> scalars = {}) const;

 private:
  Device where_{};
  OpenDevice* device_ = nullptr;
  LoadedKernel* kernel_ = nullptr;
  LaunchCounter* counter_ = nullptr;
  std::array<std::uint64_t, 3> shape_{};
  std::uint32_t arguments_ = 0, buffers_ = 0;
  struct Place {
    std::uint32_t argument;
    bool written;
    std::uint64_t elements;
  };
  std::array<Place, most_buffers> places_{};
  std::array<std::uint64_t, most_arguments> bits_{};  ///< values of the scalars
};

}  // namespace tessera
