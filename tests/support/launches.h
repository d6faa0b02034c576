// SPDX-License-Identifier: Apache-2.0
// Counts the kernel launches of a thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tessera/device/context.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/ir/node.h"

namespace tessera::test {

/// Counts the launches of its thread during the object's lifetime.
class Launches : public LaunchInterceptor {
 public:
  Launches() { thread_context.launch_interceptor = this; }
  ~Launches() override { thread_context.launch_interceptor = nullptr; }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  void launched(const Kernel& kernel, Device, std::array<std::uint64_t, 3>, std::span<const LaunchArgument> arguments,
                const std::function<void()>& launch) override {
    ++count;
    names += kernel.function().name + " ";
    for (const LaunchArgument& a : arguments)
      if (a.view.storage) bytes += a.view.bytes();
    launch();
  }
  std::uint64_t count = 0, bytes = 0;
  std::string names;
};

}  // namespace tessera::test
