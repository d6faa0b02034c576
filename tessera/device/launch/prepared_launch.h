// SPDX-License-Identifier: Apache-2.0
// A launch that is done again and again with other buffers, for operations so small that they take no longer than the
// checks of the same scalars and the same shape each time. Internal, for layers above.
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

/// Trivially destructible, as all that threads keep.
class PreparedLaunch {
 public:
  static constexpr std::size_t most_arguments = 24, most_buffers = 4;
  /// Where a buffer begins; how many elements of which dtype it has is as it was.
  struct Buffer {
    Storage* storage;
    std::uint64_t byte_offset;
  };

  PreparedLaunch() = default;  ///< of nothing: never ready
  /// What `kernel.launch(shape, arguments)` has just done on the current queue, with buffers from the pool; the kernel
  /// lives as long as the process. Of nothing where these are more than are kept here.
  PreparedLaunch(const Kernel& kernel, const std::array<std::uint64_t, 3>& shape,
                 std::span<const LaunchArgument> arguments);

  /// The queue that it would go to; null if it cannot be done now, and Kernel::launch is what to call: somebody
  /// observes, records, traces or places this thread's launches, or the process was forked.
  QueueCore* ready() const;
  /// Memory for what it computes, if it is ready; undefined contents. OutOfMemory.
  std::shared_ptr<Storage> allocate(std::size_t bytes) const;
  /// Does it, if `ready` has just given that queue: as Kernel::launch, but for what is known of the arguments. The
  /// buffers are from the pool, of the device, and hold what those did; a written one is another's very same view where
  /// it was, and else none of the others. `scalars` take the place of those that follow the last buffer.
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
  std::array<std::uint64_t, most_arguments> bits_{};  ///< of scalars
};

}  // namespace tessera
