// SPDX-License-Identifier: Apache-2.0
// A wrapper around the real libOpenCL that injects driver faults for tests. It handles a few calls itself, depending on
// TESSERA_SHIM, and forwards all others to libOpenCL.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace {

bool asked(const char* what) {
  const char* mode = std::getenv("TESSERA_SHIM");
  return mode && std::strcmp(mode, what) == 0;
}
template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

std::int32_t clGetPlatformIDs(std::uint32_t n, void** platforms, std::uint32_t* count) {
  if (asked("no platform")) return -1001;
  return real<std::int32_t(std::uint32_t, void**, std::uint32_t*)>("clGetPlatformIDs")(n, platforms, count);
}
std::int32_t clGetDeviceIDs(void* platform, std::uint64_t type, std::uint32_t n, void** devices, std::uint32_t* count) {
  if (asked("no device")) return -1;
  return real<std::int32_t(void*, std::uint64_t, std::uint32_t, void**, std::uint32_t*)>("clGetDeviceIDs")(
      platform, type, n, devices, count);
}
// In the mode "intel gpu", reports an Intel GPU with a maximum allocation size of 64 KiB.
std::int32_t clGetDeviceInfo(void* device, std::uint32_t what, std::size_t room, void* to, std::size_t* needed) {
  const auto give = [&](const void* value, std::size_t size) {
    if (needed != nullptr) *needed = size;
    if (to != nullptr) std::memcpy(to, value, std::min(size, room));
    return 0;
  };
  constexpr std::uint64_t gpu = 4, largest = 64 << 10;
  if (asked("intel gpu") && what == 0x1000) return give(&gpu, sizeof gpu);
  if (asked("intel gpu") && what == 0x1010) return give(&largest, sizeof largest);
  if (asked("intel gpu") && what == 0x102C) return give("Intel(R) Corporation", 21);
  return real<std::int32_t(void*, std::uint32_t, std::size_t, void*, std::size_t*)>("clGetDeviceInfo")(
      device, what, room, to, needed);
}
// Count the existing and the mapped buffers in host memory. tessera_shim_pinned() returns both counts.
static std::atomic<std::int64_t> pinned = 0, mapped = 0;
static std::mutex pinned_lock;
static std::set<void*> pinned_buffers;  // guarded by pinned_lock
std::int64_t tessera_shim_pinned(int which) { return which == 0 ? pinned : mapped; }
void* clEnqueueMapBuffer(void* queue, void* buffer, std::uint32_t blocking, std::uint64_t flags, std::size_t offset,
                         std::size_t bytes, std::uint32_t n, void* const* events, void** event, std::int32_t* code) {
  if (asked("no mapping")) return *code = -12, nullptr;
  ++mapped;
  return real<void*(void*, void*, std::uint32_t, std::uint64_t, std::size_t, std::size_t, std::uint32_t, void* const*,
                    void**, std::int32_t*)>("clEnqueueMapBuffer")(queue, buffer, blocking, flags, offset, bytes, n,
                                                                  events, event, code);
}
std::int32_t clEnqueueUnmapMemObject(void* queue, void* buffer, void* address, std::uint32_t n, void* const* events,
                                     void** event) {
  --mapped;
  return real<std::int32_t(void*, void*, void*, std::uint32_t, void* const*, void**)>("clEnqueueUnmapMemObject")(
      queue, buffer, address, n, events, event);
}
std::int32_t clReleaseMemObject(void* buffer) {
  {
    std::lock_guard hold(pinned_lock);
    pinned -= static_cast<std::int64_t>(pinned_buffers.erase(buffer));
  }
  return real<std::int32_t(void*)>("clReleaseMemObject")(buffer);
}
void* clCreateBuffer(void* context, std::uint64_t flags, std::size_t size, void* host, std::int32_t* code) {
  if (asked("no memory") && size > 1000) {
    *code = -4;
    return nullptr;
  }
  void* const made = real<void*(void*, std::uint64_t, std::size_t, void*, std::int32_t*)>("clCreateBuffer")(
      context, flags, size, host, code);
  if (made != nullptr && (flags & 16) != 0) {  // CL_MEM_ALLOC_HOST_PTR
    std::lock_guard hold(pinned_lock);
    pinned += pinned_buffers.insert(made).second;
  }
  return made;
}
// Adds an error to the source of kernels with the name "guilty".
void* clCreateProgramWithSource(void* context, std::uint32_t count, const char** strings, const std::size_t* lengths,
                                std::int32_t* code) {
  std::string text;
  for (std::uint32_t i = 0; i < count; ++i) text.append(strings[i], lengths[i]);
  if (const std::size_t at = text.find("void guilty"); asked("bad kernel") && at != text.npos)
    text.insert(text.find('{', at) + 1, "\n  undeclared_name = 1;");
  const char* changed = text.c_str();
  const std::size_t length = text.size();
  return real<void*(void*, std::uint32_t, const char**, const std::size_t*, std::int32_t*)>(
      "clCreateProgramWithSource")(context, 1, &changed, &length, code);
}
static std::int32_t enqueue(void* queue, void* kernel, std::uint32_t dimensions, const std::size_t* offset,
                            const std::size_t* global, const std::size_t* local, std::uint32_t n, void* const* events,
                            void** event) {
  if (asked("no resources")) return -5;
  if (asked("lost device")) return -2;
  if (asked("refused launch")) return -54;
  return real<std::int32_t(void*, void*, std::uint32_t, const std::size_t*, const std::size_t*, const std::size_t*,
                           std::uint32_t, void* const*, void**)>("clEnqueueNDRangeKernel")(
      queue, kernel, dimensions, offset, global, local, n, events, event);
}
// The first launch, write, read, copy or fill with an event fails when it runs. Later ones succeed. The event is
// retained, so that no later event has the same address.
static std::atomic<void*> failed = nullptr;
static void fail_first(const char* mode, void* const* event) {
  if (!asked(mode) || event == nullptr || *event == nullptr) return;
  if (void* none = nullptr; failed.compare_exchange_strong(none, *event))
    real<std::int32_t(void*)>("clRetainEvent")(*event);
}
std::int32_t clEnqueueNDRangeKernel(void* queue, void* kernel, std::uint32_t dimensions, const std::size_t* offset,
                                    const std::size_t* global, const std::size_t* local, std::uint32_t n,
                                    void* const* events, void** event) {
  const std::int32_t code = enqueue(queue, kernel, dimensions, offset, global, local, n, events, event);
  fail_first("first launch fails", event);
  fail_first("first launch and marker fail", event);
  return code;
}
std::int32_t clEnqueueWriteBuffer(void* queue, void* buffer, std::uint32_t blocking, std::size_t offset,
                                  std::size_t bytes, const void* from, std::uint32_t n, void* const* events,
                                  void** event) {
  const std::int32_t code = real<std::int32_t(void*, void*, std::uint32_t, std::size_t, std::size_t, const void*,
                                              std::uint32_t, void* const*, void**)>("clEnqueueWriteBuffer")(
      queue, buffer, blocking, offset, bytes, from, n, events, event);
  fail_first("first write fails", event);
  return code;
}
std::int32_t clEnqueueReadBuffer(void* queue, void* buffer, std::uint32_t blocking, std::size_t offset,
                                 std::size_t bytes, void* to, std::uint32_t n, void* const* events, void** event) {
  const std::int32_t code =
      real<std::int32_t(void*, void*, std::uint32_t, std::size_t, std::size_t, void*, std::uint32_t, void* const*,
                        void**)>("clEnqueueReadBuffer")(queue, buffer, blocking, offset, bytes, to, n, events, event);
  fail_first("first read fails", event);
  return code;
}
std::int32_t clEnqueueCopyBuffer(void* queue, void* from, void* to, std::size_t from_offset, std::size_t to_offset,
                                 std::size_t bytes, std::uint32_t n, void* const* events, void** event) {
  const std::int32_t code = real<std::int32_t(void*, void*, void*, std::size_t, std::size_t, std::size_t, std::uint32_t,
                                              void* const*, void**)>("clEnqueueCopyBuffer")(
      queue, from, to, from_offset, to_offset, bytes, n, events, event);
  fail_first("first copy fails", event);
  return code;
}
std::int32_t clEnqueueFillBuffer(void* queue, void* buffer, const void* pattern, std::size_t pattern_bytes,
                                 std::size_t offset, std::size_t bytes, std::uint32_t n, void* const* events,
                                 void** event) {
  const std::int32_t code = real<std::int32_t(void*, void*, const void*, std::size_t, std::size_t, std::size_t,
                                              std::uint32_t, void* const*, void**)>("clEnqueueFillBuffer")(
      queue, buffer, pattern, pattern_bytes, offset, bytes, n, events, event);
  fail_first("first fill fails", event);
  return code;
}
// The first marker after the failed launch also fails, with a code that only means that an earlier command has failed.
static std::atomic<void*> failed_marker = nullptr;
std::int32_t clEnqueueMarkerWithWaitList(void* queue, std::uint32_t n, void* const* events, void** event) {
  const std::int32_t code = real<std::int32_t(void*, std::uint32_t, void* const*, void**)>(
      "clEnqueueMarkerWithWaitList")(queue, n, events, event);
  void* none = nullptr;
  if (asked("first launch and marker fail") && failed != nullptr && event != nullptr &&
      failed_marker.compare_exchange_strong(none, *event))
    real<std::int32_t(void*)>("clRetainEvent")(*event);
  return code;
}
std::int32_t clWaitForEvents(std::uint32_t n, void* const* events) {
  const std::int32_t code = real<std::int32_t(std::uint32_t, void* const*)>("clWaitForEvents")(n, events);
  for (std::uint32_t i = 0; i < n; ++i)
    if (events[i] == failed || events[i] == failed_marker) return -14;
  return code;
}
std::int32_t clGetEventInfo(void* event, std::uint32_t what, std::size_t size, void* value, std::size_t* needed) {
  if (what == 0x11D3 && event != nullptr && (event == failed || event == failed_marker)) {
    const std::int32_t status = event == failed ? -5 : -14;  // CL_EVENT_COMMAND_EXECUTION_STATUS
    std::memcpy(value, &status, sizeof status);
    return 0;
  }
  return real<std::int32_t(void*, std::uint32_t, std::size_t, void*, std::size_t*)>("clGetEventInfo")(event, what, size,
                                                                                                      value, needed);
}

}  // extern "C"
