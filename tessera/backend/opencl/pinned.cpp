// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/opencl/pinned.h"

#include "tessera/backend/opencl/device.h"

namespace tessera::cl {

// OpenCL commands must not use a buffer while it is mapped. Copies therefore use the mapped address instead of the
// buffer. Drivers recognise that this address is pinned.

std::byte* Pinned::allocate(Context context, const DeviceFacts& facts, std::size_t bytes) {
  const Api& cl = api();
  Code code = success;
  const Memory buffer = cl.create_buffer(context, mem_read_write | mem_alloc_host_ptr, bytes, nullptr, &code);
  if (code != success) return nullptr;
  std::lock_guard guard(lock_);
  if (!queue_) queue_ = cl.create_queue(context, facts.id, 0, &code);
  void* const host =
      code != success ? nullptr
                      : cl.enqueue_map(queue_, buffer, 1, map_read | map_write, 0, bytes, 0, nullptr, nullptr, &code);
  if (code != success || !host) {
    cl.release_memory(buffer);
    return nullptr;
  }
  live_.emplace(static_cast<std::byte*>(host), buffer);
  return static_cast<std::byte*>(host);
}

void Pinned::release(std::byte* host) noexcept {
  const Api& cl = api();
  std::lock_guard guard(lock_);
  const auto it = live_.find(host);
  if (it == live_.end()) return;
  // This only fails if the device is lost.
  if (cl.enqueue_unmap(queue_, it->second, host, 0, nullptr, nullptr) == success) cl.finish(queue_);
  cl.release_memory(it->second);
  live_.erase(it);
}

}  // namespace tessera::cl
