// SPDX-License-Identifier: Apache-2.0
// Intercepts the kernel launches of a thread. Installed as `launch_interceptor` in the thread's context. Internal to
// device/.
#pragma once

#include <functional>

#include "tessera/device/launch/launch_arguments.h"

namespace tessera {

class Kernel;

class LaunchInterceptor {
 public:
  virtual ~LaunchInterceptor() = default;
  /// Called instead of the launch, after the arguments are checked. `launch` runs the original launch. Launches made by
  /// `launched` itself are not intercepted.
  virtual void launched(const Kernel& kernel, Device device, std::array<std::uint64_t, 3> shape,
                        std::span<const LaunchArgument> arguments, const std::function<void()>& launch) = 0;
};

}  // namespace tessera
