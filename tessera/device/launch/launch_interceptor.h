// SPDX-License-Identifier: Apache-2.0
// What sees the launches of a thread, in place of the launches themselves: the `launch_interceptor` of its context.
// Internal to device/.
#pragma once

#include <functional>

#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

class Kernel;

class LaunchInterceptor {
 public:
  virtual ~LaunchInterceptor() = default;
  /// Called once the arguments are checked; `launch` does what was asked. What it launches itself is not observed.
  virtual void launched(const Kernel& kernel, Device device, std::array<std::uint64_t, 3> shape,
                        std::span<const LaunchArgument> arguments, const std::function<void()>& launch) = 0;
};

}  // namespace tessera
