// SPDX-License-Identifier: Apache-2.0
// Observes kernel launches of all threads while a trace is recorded. Unlike a LaunchInterceptor (launch_interceptor.h),
// it cannot change them. Internal.
#pragma once

#include <atomic>
#include <string_view>

#include "tessera/device/device.h"

namespace tessera {

class LaunchTracer {
 public:
  /// Called before and after a launch is enqueued. On `cpu` and `interp`, the kernel runs between these calls.
  virtual void launch_begins(std::string_view kernel, Device device) noexcept = 0;
  virtual void launch_ends() noexcept = 0;
  static constinit std::atomic<LaunchTracer*> instance;  ///< null if no trace is being recorded; never destroyed

  class During {
   public:
    During(std::string_view kernel, Device device) noexcept : watch_(instance.load(std::memory_order_acquire)) {
      if (watch_ != nullptr) [[unlikely]]
        watch_->launch_begins(kernel, device);
    }
    ~During() {
      if (watch_ != nullptr) [[unlikely]]
        watch_->launch_ends();
    }
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    LaunchTracer* const watch_;
  };

 protected:
  ~LaunchTracer() = default;
};

}  // namespace tessera
