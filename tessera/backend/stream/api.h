// SPDX-License-Identifier: Apache-2.0
// Shared implementation of the `cuda`, `rocm`, `oneapi` and `metal` backends: drivers with contexts, streams, events
// and modules. The vendor folders only provide libraries and entry points.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "tessera/backend/common/launch_shape.h"
#include "tessera/backend/common/program.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"
#include "tessera/emit/dialect.h"

namespace tessera::stream {

using Code = int;                    ///< 0 is success in every API
using Address = unsigned long long;  ///< of device memory
using Handle = void*;                ///< a stream, event, module or function
using Context = std::uint64_t;       ///< what can be current on a thread: a primary context, or a device

enum class Fault : std::uint8_t {
  none,
  memory,   ///< the call had no effect; the device remains usable
  refused,  ///< same: an invalid argument, image or launch configuration
  lost      ///< sticky: every later call on this context returns the same error
};
/// Classifies a code by the values of CUresult and hipError_t, which agree; unknown codes count as lost.
Fault fault_of(Code code);

/// The vendor's functions behind a common interface; each is one or a few vendor calls. All except `context_of`,
/// `code_text` and `fault_of` act on the current context.
class Api {
 public:
  virtual ~Api() = default;
  virtual std::string code_text(Code code) const = 0;  ///< "CUDA_ERROR_NO_DEVICE (100), no device is detected"
  virtual Fault fault_of(Code code) const { return stream::fault_of(code); }

  virtual Code context_of(int ordinal, Context* context) const = 0;  ///< retained until the process exits
  virtual Code current(Context* context) const = 0;
  virtual Code set_current(Context context) const = 0;
  /// Exchanges the capture mode: how restricted this thread is while any thread captures a stream. `*mode` becomes
  /// the thread's mode, and receives the previous one. Does nothing for APIs without capture modes.
  static constexpr int capture_relaxed = 2;  ///< unrestricted
  virtual void exchange_capture_mode(int* /*mode*/) const {}

  virtual Code memory_info(std::size_t* free, std::size_t* total) const = 0;
  virtual Code allocate(Address* address, std::size_t bytes) const = 0;
  virtual Code release(Address address) const = 0;
  virtual Code allocate_pinned(void** host, std::size_t bytes) const = 0;
  virtual Code release_pinned(void* host) const = 0;

  virtual Code create_stream(Handle* stream) const = 0;  ///< does not synchronise with the default stream
  virtual Code destroy_stream(Handle stream) const = 0;
  /// Wraps a stream that the user created; native_stream() is the inverse.
  virtual Code adopt_stream(void* native, Handle* stream) const {
    *stream = native;
    return 0;
  }
  virtual void forget_stream(Handle) const {}  ///< releases the wrapper; the user's stream lives on
  virtual void* native_stream(Handle stream) const { return stream; }
  virtual void* native_context(Context context) const {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(context));
  }
  virtual Code synchronize_stream(Handle stream) const = 0;
  virtual Code stream_wait_event(Handle stream, Handle event) const = 0;

  virtual Code create_event(Handle* event) const = 0;  ///< without timing
  virtual Code record_event(Handle event, Handle stream) const = 0;
  virtual Code query_event(Handle event) const = 0;  ///< returns success or `not_ready`
  virtual Code synchronize_event(Handle event) const = 0;
  virtual Code destroy_event(Handle event) const = 0;

  virtual Code copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) const = 0;
  virtual Code copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) const = 0;
  virtual Code copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) const = 0;
  /// Enables access to the memory of `peer`, if possible, and sets `*can`. Devices are given by the driver's numbers.
  virtual Code enable_peer(int ordinal, int peer_ordinal, Context peer, bool* can) const = 0;
  /// Copies from memory of `peer`, for which access is enabled, to memory of the current context, on a stream of the
  /// current context.
  virtual Code copy_from_peer(Address to, int ordinal, Context context, Address from, int peer_ordinal, Context peer,
                              std::size_t bytes, Handle stream) const = 0;
  /// `count` words of 1, 2 or 4 bytes; the address is a multiple of the word size.
  virtual Code fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle stream) const = 0;

  virtual Code load_module(const std::string& image, Handle* module, std::string* log) const = 0;
  virtual Code unload_module(Handle module) const = 0;
  virtual Code get_function(Handle module, const char* entry, Handle* function) const = 0;
  virtual Code max_block_size(Handle function, int* threads) const = 0;
  /// Allows launches of the function with this much dynamic shared memory.
  virtual Code allow_shared(Handle function, std::size_t bytes) const = 0;
  /// The values of `arguments` are copied during the call.
  virtual Code launch(Handle function, const backend::Grid& grid, unsigned shared_bytes, Handle stream,
                      std::span<backend::BoundArgument> arguments) const = 0;

  // Graphs: work that is submitted to a stream with one call. If `graphs` returns false, none of the others is called.
  virtual bool graphs() const { return false; }
  virtual bool changing_nodes() const { return graphs(); }  ///< whether the arguments of a node can be changed
  /// Until `end_capture`, work that this thread submits to the stream is recorded instead of executed.
  virtual Code begin_capture(Handle) const { return unsupported; }
  /// Sets the handle to null and returns a code if the capture failed.
  virtual Code end_capture(Handle, Handle*) const { return unsupported; }
  /// Discards an unfinished capture.
  virtual void drop_capture(Handle stream) const {
    Handle graph = nullptr;
    if (end_capture(stream, &graph) == 0 && graph) destroy_graph(graph);
  }
  virtual Code newest_node(Handle, Handle*) const { return unsupported; }  ///< of the current capture
  virtual Code instantiate(Handle, Handle*) const { return unsupported; }
  virtual Code destroy_graph(Handle) const { return unsupported; }
  virtual Code destroy_executable(Handle) const { return unsupported; }
  virtual Code launch_graph(Handle, Handle) const { return unsupported; }
  /// Changes what the node launches from the next launch on; the graph that it was captured in must still exist.
  virtual Code set_kernel_node(Handle /*executable*/, Handle /*node*/, Handle /*function*/, const backend::Grid&,
                               unsigned /*shared_bytes*/, std::span<backend::BoundArgument>) const {
    return unsupported;
  }

 protected:
  static constexpr Code unsupported = 801;
};

/// Returns the addresses of the values, as cuLaunchKernel and hipModuleLaunchKernel take them. Valid until the thread's
/// next call.
void** addresses_of(std::span<backend::BoundArgument> arguments);

/// Properties of a device that DeviceInfo does not contain.
struct DeviceFacts {
  int ordinal = 0;  ///< the driver's number of the device; ours is info.device.index
  DeviceInfo info;
  std::uint64_t order = 0;  ///< sort key for devices with the same identity, or none
  emit::Dialect dialect;
  std::string architecture;  ///< as passed to the vendor's compiler
};

/// Result of a compilation: an image to load, or the error log.
struct Image {
  bool made = false;
  std::string bytes, log;
  bool is_text = false;  ///< `bytes` are input for the driver's compiler, such as PTX, rather than the emitted C
};

/// One vendor's driver library with its compiler. All functions except `api()` and `loads()` are called under `lock`.
class Vendor {
 public:
  virtual ~Vendor() = default;
  std::mutex lock;
  virtual Backend backend() const = 0;
  virtual const Api& api() const = 0;  ///< valid once `start` has found devices
  /// Opens the library, once, and enumerates devices. Returns their number; if it is 0, sets `report` to the state
  /// reached, the reason and the remedy. Does not throw.
  virtual int start(BackendReport& report) = 0;
  /// The names of the libraries that `start` opens, and their compiler. Opens nothing and reads no mutable state: a
  /// forked child may call it while the lock is held by a thread that exists only in the parent.
  virtual VendorDriver loads() const { return {}; }
  /// Queries the properties of the device with this driver number. If it is unusable, the state is `loaded`, with a
  /// reason.
  virtual DeviceFacts describe(int ordinal) = 0;
  /// Whether an environment variable fixes the order of devices. If not, they are sorted by PCI address, then `order`.
  virtual bool has_user_order() const = 0;
  virtual std::string uuid(int ordinal) const = 0;  ///< "uuid:...", empty if the driver reports none
  virtual Image compile(const DeviceFacts& facts, const backend::Program& program) = 0;
  /// Identifies the compiler and driver of the device's images in the kernel cache; empty: images are not cached.
  virtual std::string compiler(const DeviceFacts& facts) const { return facts.info.driver_version; }
  /// Opens the vendor's matrix product library for the current context's device. Returns null and sets `why` if there
  /// is none. Throws KernelError if it cannot be initialised.
  virtual std::unique_ptr<DriverBlas> open_blas(const DeviceFacts& facts, std::string& why) {
    static_cast<void>(facts);
    why = "this backend has no matrix product library";
    return nullptr;
  }
  /// Called when the driver rejected an image from `compile`. If another compiler is left to try, changes
  /// `facts.architecture` and the math options of `facts.dialect` to that compiler's, and returns true.
  virtual bool switch_compiler(DeviceFacts&) { return false; }
};

/// Returns the backend for a vendor.
std::unique_ptr<Driver> make_driver(std::unique_ptr<Vendor> vendor);

}  // namespace tessera::stream
