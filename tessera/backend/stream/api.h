// SPDX-License-Identifier: Apache-2.0
// Interface between the implementation that the `cuda`, `rocm`, `oneapi` and `metal` backends share and the vendor
// folders, which provide libraries and entry points. It models drivers with contexts, streams, events and modules.
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
using Address = unsigned long long;  ///< a device memory address
using Handle = void*;                ///< a stream, event, module or function
using Context = std::uint64_t;       ///< a primary context or a device; current on a thread

enum class Fault : std::uint8_t {
  none,
  memory,   ///< out of memory; the call had no effect and the device remains usable
  refused,  ///< an invalid argument, image or launch; the call had no effect and the device remains usable
  lost      ///< the device is lost: every later call in this context returns the same error
};
/// Classifies a code. CUresult and hipError_t use the same values. Unknown codes are classified as `lost`.
Fault fault_of(Code code);

/// A common interface to the vendors' functions. Each function makes one or a few vendor calls. All functions except
/// `context_of`, `code_text` and `fault_of` act on the current context.
class Api {
 public:
  virtual ~Api() = default;
  virtual std::string code_text(Code code) const = 0;  ///< "CUDA_ERROR_NO_DEVICE (100), no device is detected"
  virtual Fault fault_of(Code code) const { return stream::fault_of(code); }

  virtual Code context_of(int ordinal, Context* context) const = 0;  ///< retained until exit
  virtual Code current(Context* context) const = 0;
  virtual Code set_current(Context context) const = 0;
  /// Exchanges the capture mode of this thread. The mode controls which calls this thread may make while any thread
  /// captures a stream. Sets the mode to `*mode` and stores the previous mode there. Does nothing if the API has no
  /// capture modes.
  static constexpr int capture_relaxed = 2;  ///< the thread may make any call
  virtual void exchange_capture_mode(int* /*mode*/) const {}

  virtual Code memory_info(std::size_t* free, std::size_t* total) const = 0;
  virtual Code allocate(Address* address, std::size_t bytes) const = 0;
  virtual Code release(Address address) const = 0;
  virtual Code allocate_pinned(void** host, std::size_t bytes) const = 0;
  virtual Code release_pinned(void* host) const = 0;

  virtual Code create_stream(Handle* stream) const = 0;  ///< the stream does not synchronise with the default stream
  virtual Code destroy_stream(Handle stream) const = 0;
  /// Wraps a stream that the user created. native_stream() returns the user's stream.
  virtual Code adopt_stream(void* native, Handle* stream) const {
    *stream = native;
    return 0;
  }
  virtual void forget_stream(Handle) const {}  ///< releases the wrapper, but not the user's stream
  virtual void* native_stream(Handle stream) const { return stream; }
  virtual void* native_context(Context context) const {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(context));
  }
  virtual Code synchronize_stream(Handle stream) const = 0;
  /// Returns true if a thread that waits in synchronize_stream() or copy_to_host() never occupies a core.
  virtual bool waits_block() const { return false; }
  virtual Code stream_wait_event(Handle stream, Handle event) const = 0;

  /// The event does not record times. If `blocking` is true, a thread that waits for it does not occupy a core.
  virtual Code create_event(Handle* event, bool blocking) const = 0;
  virtual Code record_event(Handle event, Handle stream) const = 0;
  virtual Code query_event(Handle event) const = 0;  ///< returns success or `not_ready`
  virtual Code synchronize_event(Handle event) const = 0;
  virtual Code destroy_event(Handle event) const = 0;

  virtual Code copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) const = 0;
  virtual Code copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) const = 0;
  virtual Code copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) const = 0;
  /// Enables access to the memory of `peer`, if possible, and sets `*can`. The ordinals are the driver's device
  /// numbers.
  virtual Code enable_peer(int ordinal, int peer_ordinal, Context peer, bool* can) const = 0;
  /// Copies from the memory of `peer` to the memory of the current context, on a stream of the current context. Access
  /// to `peer` must be enabled.
  virtual Code copy_from_peer(Address to, int ordinal, Context context, Address from, int peer_ordinal, Context peer,
                              std::size_t bytes, Handle stream) const = 0;
  /// Fills `count` words of 1, 2 or 4 bytes. The address must be a multiple of the word size.
  virtual Code fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle stream) const = 0;

  virtual Code load_module(const std::string& image, Handle* module, std::string* log) const = 0;
  /// Compiles PTX to machine code for the device of the current context. Returns false if the API cannot do this or the
  /// text has errors; load_module() then reports them.
  virtual bool link(const std::string& /*ptx*/, std::string* /*machine_code*/) const { return false; }
  virtual Code unload_module(Handle module) const = 0;
  virtual Code get_function(Handle module, const char* entry, Handle* function) const = 0;
  virtual Code max_block_size(Handle function, int* threads) const = 0;
  /// Allows launches of the function with this many bytes of dynamic shared memory.
  virtual Code allow_shared(Handle function, std::size_t bytes) const = 0;
  /// Launches a kernel. The values of `arguments` are copied during the call.
  virtual Code launch(Handle function, const backend::Grid& grid, unsigned shared_bytes, Handle stream,
                      std::span<backend::BoundArgument> arguments) const = 0;

  // Graphs are recorded work that is submitted to a stream with one call. If graphs() returns false, the other graph
  // functions are never called.
  virtual bool graphs() const { return false; }
  virtual bool changing_nodes() const { return graphs(); }  ///< true if the arguments of a node can be changed
  /// Starts a capture. Until end_capture(), work that this thread submits to the stream is recorded instead of
  /// executed.
  virtual Code begin_capture(Handle) const { return unsupported; }
  /// Ends a capture and returns the graph in the second argument. If the capture failed, returns an error and a null
  /// graph.
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
  /// Changes the kernel and arguments of a node. The change takes effect at the next launch of the executable. The
  /// graph that the node was captured in must still exist.
  virtual Code set_kernel_node(Handle /*executable*/, Handle /*node*/, Handle /*function*/, const backend::Grid&,
                               unsigned /*shared_bytes*/, std::span<backend::BoundArgument>) const {
    return unsupported;
  }

 protected:
  static constexpr Code unsupported = 801;
};

/// Returns the addresses of the argument values, as cuLaunchKernel and hipModuleLaunchKernel expect them. The result is
/// valid until this thread calls the function again.
void** addresses_of(std::span<backend::BoundArgument> arguments);

/// Properties of a device that DeviceInfo does not contain.
struct DeviceFacts {
  int ordinal = 0;  ///< the driver's device number; Tessera's number is info.device.index
  DeviceInfo info;
  std::uint64_t order = 0;  ///< sort key for devices that have the same identity, or no identity
  emit::Dialect dialect;
  std::string architecture;  ///< as passed to the vendor's compiler
  std::string pack_target;   ///< the target of the pack in use; empty if it has none for this device
  std::string no_compiler;   ///< why there is no compiler; empty if there is one
};

/// The result of a compilation: an image to load, or the error log.
struct Image {
  bool made = false;
  std::string bytes, log;
  bool is_text = false;  ///< true if `bytes` are text for the driver's compiler, such as PTX
};

/// The driver library of a vendor with its compiler. Callers hold `lock` when they call functions other than `api` and
/// `loads`.
class Vendor {
 public:
  virtual ~Vendor() = default;
  std::mutex lock;
  virtual Backend backend() const = 0;
  virtual const Api& api() const = 0;  ///< call only after `start` has found devices
  /// Opens the library on the first call, and enumerates devices. Returns the number of devices. If it is 0, sets the
  /// state, reason and remedy in `report`. Does not throw.
  virtual int start(BackendReport& report) = 0;
  /// Returns the names of the libraries that `start` opens, including the compiler. Opens no library and reads no
  /// mutable state, because a forked child may call it even if its copy of `lock` is locked forever.
  virtual VendorDriver loads() const { return {}; }
  /// Queries the properties of the device with this driver number. If the device is unusable, sets its state to
  /// `loaded` and its reason.
  virtual DeviceFacts describe(int ordinal) = 0;
  /// Returns true if an environment variable determines the order of the devices. Otherwise they are sorted by PCI
  /// address, then by `order`.
  virtual bool has_user_order() const = 0;
  virtual std::string uuid(int ordinal) const = 0;  ///< "uuid:...", or empty if the driver reports none
  virtual Image compile(const DeviceFacts& facts, const backend::Program& program) = 0;
  /// Returns a text that identifies the compiler and driver in the keys of the kernel cache. If it is empty, images are
  /// not cached.
  virtual std::string compiler(const DeviceFacts& facts) const { return facts.info.driver_version; }
  /// Opens the vendor's matrix product library for the device of the current context. Returns null and sets `why` if
  /// there is none. Throws KernelError if the library cannot be initialised.
  virtual std::unique_ptr<DriverBlas> open_blas(const DeviceFacts& facts, std::string& why) {
    static_cast<void>(facts);
    why = "this backend has no matrix product library";
    return nullptr;
  }
  /// Called if the driver rejected an image from `compile`. If there is another compiler to try, updates
  /// `facts.architecture` and the math options of `facts.dialect` for it and returns true.
  virtual bool switch_compiler(DeviceFacts&) { return false; }
};

/// Returns the backend for a vendor.
std::unique_ptr<Driver> make_driver(std::unique_ptr<Vendor> vendor);

}  // namespace tessera::stream
