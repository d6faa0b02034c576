// SPDX-License-Identifier: Apache-2.0
// Declares the entry points, messages and constants of the Objective-C runtime and of Metal that this backend uses.
// Based on Apple's documentation of both (macOS 12 to 15). Used only in this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/os/library.h"

namespace tessera::metal {

using Id = void*;   ///< a pointer to an object; sending a message to null does nothing and returns 0
using Sel = void*;  ///< the name of a message
using Int = std::int64_t;
using UInt = std::uint64_t;
/// MTLSize: passed by value, 24 bytes.
struct Size {
  UInt width = 1, height = 1, depth = 1;
};

// Constants.
inline constexpr UInt storage_shared = 0, storage_private = 2 << 4;  // MTLResourceOptions
inline constexpr UInt status_completed = 4, status_error = 5;        // MTLCommandBufferStatus
inline constexpr UInt language_2_4 = 2 << 16 | 4;                    // MTLLanguageVersion

// X-macro: C++ name of each message, and its selector.
#define TESSERA_METAL_MESSAGES(X)                                                \
  X(retain, "retain")                                                            \
  X(release, "release")                                                          \
  X(make, "new")                                                                 \
  X(count, "count")                                                              \
  X(object_at, "objectAtIndex:")                                                 \
  X(string_with, "stringWithUTF8String:")                                        \
  X(utf8, "UTF8String")                                                          \
  X(code, "code")                                                                \
  X(description, "localizedDescription")                                         \
  X(name, "name")                                                                \
  X(registry_id, "registryID")                                                   \
  X(has_unified_memory, "hasUnifiedMemory")                                      \
  X(is_removable, "isRemovable")                                                 \
  X(working_set, "recommendedMaxWorkingSetSize")                                 \
  X(allocated, "currentAllocatedSize")                                           \
  X(max_buffer, "maxBufferLength")                                               \
  X(max_threadgroup_memory, "maxThreadgroupMemoryLength")                        \
  X(new_buffer, "newBufferWithLength:options:")                                  \
  X(new_buffer_with, "newBufferWithBytes:length:options:")                       \
  X(contents, "contents")                                                        \
  X(new_queue, "newCommandQueue")                                                \
  X(new_shared_event, "newSharedEvent")                                          \
  X(set_fast_math, "setFastMathEnabled:")                                        \
  X(set_language, "setLanguageVersion:")                                         \
  X(new_library, "newLibraryWithSource:options:error:")                          \
  X(new_function, "newFunctionWithName:")                                        \
  X(new_pipeline, "newComputePipelineStateWithFunction:error:")                  \
  X(max_threads, "maxTotalThreadsPerThreadgroup")                                \
  X(execution_width, "threadExecutionWidth")                                     \
  X(device, "device")                                                            \
  X(command_buffer, "commandBuffer")                                             \
  X(compute_encoder, "computeCommandEncoder")                                    \
  X(blit_encoder, "blitCommandEncoder")                                          \
  X(end_encoding, "endEncoding")                                                 \
  X(set_pipeline, "setComputePipelineState:")                                    \
  X(set_buffer, "setBuffer:offset:atIndex:")                                     \
  X(set_bytes, "setBytes:length:atIndex:")                                       \
  X(set_threadgroup_memory, "setThreadgroupMemoryLength:atIndex:")               \
  X(dispatch, "dispatchThreadgroups:threadsPerThreadgroup:")                     \
  X(copy_buffer, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:") \
  X(signal_event, "encodeSignalEvent:value:")                                    \
  X(wait_event, "encodeWaitForEvent:value:")                                     \
  X(commit, "commit")                                                            \
  X(wait_completed, "waitUntilCompleted")                                        \
  X(status, "status")                                                            \
  X(error, "error")

struct Selectors {
#define TESSERA_METAL_MEMBER(name, text) Sel name = nullptr;
  TESSERA_METAL_MESSAGES(TESSERA_METAL_MEMBER)
#undef TESSERA_METAL_MEMBER
};

/// The opened libraries. There is one object per process, and the libraries are never closed.
struct Runtime {
  os::Library objc, metal;
  std::string missing;  ///< name of an entry point that was not found
  Id (*get_class)(const char*) = nullptr;
  Sel (*register_name)(const char*) = nullptr;
  void (*message)() = nullptr;  ///< objc_msgSend: cast to the signature of the method before the call
  void* (*push_pool)() = nullptr;
  void (*pop_pool)(void*) = nullptr;
  Id (*copy_all_devices)() = nullptr;
  Selectors selectors;

  bool usable() const { return objc.loaded() && metal.loaded() && missing.empty(); }

  template <class R = void, class... A>
  R send(Id to, Sel what, A... arguments) const {
    return reinterpret_cast<R (*)(Id, Sel, A...)>(message)(to, what, arguments...);
  }
  std::string text(Id string) const {
    const char* characters = string != nullptr ? send<const char*>(string, selectors.utf8) : nullptr;
    return characters != nullptr ? characters : "";
  }
  std::string error_text(Id error) const { return text(send<Id>(error, selectors.description)); }
};

/// Opens Apple's libraries. If TESSERA_METAL_LIBRARY is set, opens this file instead, which must implement both
/// libraries.
Runtime open_runtime();
std::vector<std::string> metal_files();

/// An autorelease pool. Autoreleased objects are valid until the pool is destroyed.
class Pool {
 public:
  explicit Pool(const Runtime& runtime) : runtime_(runtime), pool_(runtime.push_pool()) {}
  ~Pool() { runtime_.pop_pool(pool_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  const Runtime& runtime_;
  void* pool_;
};

/// An owning reference to an object.
class Owned {
 public:
  Owned() = default;
  Owned(const Runtime& runtime, Id object) : runtime_(&runtime), object_(object) {}  ///< takes ownership of the object
  static Owned retained(const Runtime& runtime, Id object) {
    return {runtime, runtime.send<Id>(object, runtime.selectors.retain)};
  }
  Owned(Owned&& other) noexcept
      : runtime_(std::exchange(other.runtime_, nullptr)), object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_ != nullptr) runtime_->send(object_, runtime_->selectors.release);
  }
  Id get() const { return object_; }
  Id release() { return std::exchange(object_, nullptr); }  ///< the caller becomes the owner
  explicit operator bool() const { return object_ != nullptr; }

 private:
  const Runtime* runtime_ = nullptr;
  Id object_ = nullptr;
};

}  // namespace tessera::metal
