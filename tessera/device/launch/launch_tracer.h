// SPDX-License-Identifier: Apache-2.0
// Told of each launch of a kernel while a trace is under way: unlike a LaunchInterceptor (launch_interceptor.h) by all
// threads, and without changing what is launched. Internal.
#pragma once

#include <atomic>
#include <string_view>

#include "tessera/device/device.h"

namespace tessera {

class LaunchTracer {
 public:
  /// Around the time in which a launch is put into its queue: on `cpu` and `interp`, in which it computes.
  virtual void launch_begins(std::string_view kernel, Device device) noexcept = 0;
  virtual void launch_ends() noexcept = 0;
  static constinit std::atomic<LaunchTracer*> instance;  ///< null while nobody looks; never destroyed

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
