// SPDX-License-Identifier: Apache-2.0
// What the `cuda`, `rocm` and `oneapi` backends share: drivers with contexts, streams, events and modules. A vendor's
// folder says which libraries and entry points these are; everything else is here, once.
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
using Context = std::uint64_t;       ///< what is current on a thread: a primary context, or the number of a device

enum class Fault : std::uint8_t {
  none,
  memory,   ///< the call did nothing; the device goes on
  refused,  ///< likewise: a wrong argument, image or launch configuration
  lost      ///< sticky: every later call on this context answers the same
};
/// By the numbers of CUresult and hipError_t, which agree; whatever is in no list counts as lost.
Fault fault_of(Code code);

/// The vendor's functions in one shape; each is one call, or few. All but `context_of`, `code_text` and `fault_of` act
/// on the current context.
class Api {
 public:
  virtual ~Api() = default;
  virtual std::string code_text(Code code) const = 0;  ///< "CUDA_ERROR_NO_DEVICE (100), no device is detected"
  virtual Fault fault_of(Code code) const { return stream::fault_of(code); }

  virtual Code context_of(int ordinal, Context* context) const = 0;  ///< retained for good
  virtual Code current(Context* context) const = 0;
  virtual Code set_current(Context context) const = 0;
  /// How strict the API is to this thread while any thread captures a stream: `*mode` takes the place of what was
  /// there, and gets that. APIs without such a thing do nothing.
  static constexpr int capture_relaxed = 2;  ///< not at all
  virtual void exchange_capture_mode(int* /*mode*/) const {}

  virtual Code memory_info(std::size_t* free, std::size_t* total) const = 0;
  virtual Code allocate(Address* address, std::size_t bytes) const = 0;
  virtual Code release(Address address) const = 0;
  virtual Code allocate_pinned(void** host, std::size_t bytes) const = 0;
  virtual Code release_pinned(void* host) const = 0;

  virtual Code create_stream(Handle* stream) const = 0;  ///< does not wait for the default stream
  virtual Code destroy_stream(Handle stream) const = 0;
  /// A stream that the user made, as `create_stream` would give it, and what the user calls one of ours.
  virtual Code adopt_stream(void* native, Handle* stream) const {
    *stream = native;
    return 0;
  }
  virtual void forget_stream(Handle) const {}  ///< of an adopted one, which goes on
  virtual void* native_stream(Handle stream) const { return stream; }
  virtual void* native_context(Context context) const {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(context));
  }
  virtual Code synchronize_stream(Handle stream) const = 0;
  virtual Code stream_wait_event(Handle stream, Handle event) const = 0;

  virtual Code create_event(Handle* event) const = 0;  ///< without timing
  virtual Code record_event(Handle event, Handle stream) const = 0;
  virtual Code query_event(Handle event) const = 0;  ///< success, or `not_ready`
  virtual Code synchronize_event(Handle event) const = 0;
  virtual Code destroy_event(Handle event) const = 0;

  virtual Code copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) const = 0;
  virtual Code copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) const = 0;
  virtual Code copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) const = 0;
  /// Whether the current context may use memory of another, by the drivers' numbers of their devices; lets it.
  virtual Code enable_peer(int ordinal, int peer_ordinal, Context peer, bool* can) const = 0;
  /// From memory of `peer`, which was enabled, into the current context's, on a stream of the latter.
  virtual Code copy_from_peer(Address to, int ordinal, Context context, Address from, int peer_ordinal, Context peer,
                              std::size_t bytes, Handle stream) const = 0;
  /// `count` words of 1, 2 or 4 bytes; the address is a multiple of the word.
  virtual Code fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle stream) const = 0;

  virtual Code load_module(const std::string& image, Handle* module, std::string* log) const = 0;
  virtual Code unload_module(Handle module) const = 0;
  virtual Code get_function(Handle module, const char* entry, Handle* function) const = 0;
  virtual Code max_block_size(Handle function, int* threads) const = 0;
  /// Allows launches of the function with this much dynamic shared memory.
  virtual Code allow_shared(Handle function, std::size_t bytes) const = 0;
  /// The values of `arguments` need not live longer than the call.
  virtual Code launch(Handle function, const backend::Grid& grid, unsigned shared_bytes, Handle stream,
                      std::span<backend::BoundArgument> arguments) const = 0;

  // Graphs: work that one call puts into a stream. Where `graphs` is false, none of the others is called.
  virtual bool graphs() const { return false; }
  virtual bool changing_nodes() const { return graphs(); }  ///< what a node launches may be changed
  /// Until `end_capture`, what this thread puts into the stream is noted instead of queued.
  virtual Code begin_capture(Handle) const { return unsupported; }
  virtual Code end_capture(Handle, Handle*) const {
    return unsupported;
  }                                                 ///< null, with a code, if the capture went wrong
  virtual void drop_capture(Handle stream) const {  ///< ends one that came to nothing
    Handle graph = nullptr;
    if (end_capture(stream, &graph) == 0 && graph) destroy_graph(graph);
  }
  virtual Code newest_node(Handle, Handle*) const { return unsupported; }  ///< of the capture under way
  virtual Code instantiate(Handle, Handle*) const { return unsupported; }
  virtual Code destroy_graph(Handle) const { return unsupported; }
  virtual Code destroy_executable(Handle) const { return unsupported; }
  virtual Code launch_graph(Handle, Handle) const { return unsupported; }
  /// What the node launches from the next time on; the graph it was captured into still exists.
  virtual Code set_kernel_node(Handle /*executable*/, Handle /*node*/, Handle /*function*/, const backend::Grid&,
                               unsigned /*shared_bytes*/, std::span<backend::BoundArgument>) const {
    return unsupported;
  }

 protected:
  static constexpr Code unsupported = 801;
};

/// Where each value is, as cuLaunchKernel and its like take them. Valid until the thread's next call.
void** addresses_of(std::span<backend::BoundArgument> arguments);

/// What is known of one device beyond DeviceInfo.
struct DeviceFacts {
  int ordinal = 0;  ///< the driver's number for it; ours is info.device.index
  DeviceInfo info;
  std::uint64_t order = 0;  ///< among devices of equal identities, or of none
  emit::Dialect dialect;
  std::string architecture;  ///< as the vendor's compiler takes it
};

/// What the compiler made of a text: an image to load, or the log of why not.
struct Image {
  bool made = false;
  std::string bytes, log;
  bool is_text = false;  ///< `bytes` are what the driver's compiler gets, and not the emitted C: PTX
};

/// One vendor's driver library with its compiler. What is neither `api()` nor `loads()` is called under `lock`.
class Vendor {
 public:
  virtual ~Vendor() = default;
  std::mutex lock;
  virtual Backend backend() const = 0;
  virtual const Api& api() const = 0;  ///< once `start` found devices
  /// Opens the library on the first call that finds it, and asks for devices. Gives their number; with none, `report`
  /// says how far it got, why, and what to do. Does not throw.
  virtual int start(BackendReport& report) = 0;
  /// The libraries that `start` opens, as the loader is asked for them, and their compiler. Opens nothing, and reads
  /// nothing that changes: a child of fork asks this while the lock is another thread's of its parent for ever.
  virtual VendorDriver loads() const { return {}; }
  /// What the device with the driver's number says of itself. One that cannot be used has state `loaded` and a reason.
  virtual DeviceFacts describe(int ordinal) = 0;
  /// The user named the devices in this order by a variable: it is kept. Else they are sorted by PCI address, then
  /// `order`.
  virtual bool has_user_order() const = 0;
  virtual std::string uuid(int ordinal) const = 0;  ///< "uuid:...", empty if the driver tells none
  virtual Image compile(const DeviceFacts& facts, const backend::Program& program) = 0;
  /// What makes the images of these facts' device, and loads them; empty: they are not kept on disk.
  virtual std::string compiler(const DeviceFacts& facts) const { return facts.info.driver_version; }
  /// Opens the vendor's library of matrix products for the current context's device. Null if there is none, and why.
  /// KernelError if it does not start.
  virtual std::unique_ptr<DriverBlas> open_blas(const DeviceFacts& facts, std::string& why) {
    static_cast<void>(facts);
    why = "no library for it is known to this backend";
    return nullptr;
  }
  /// The driver refused to load what `compile` made. Changes `facts.architecture` and what
  /// `facts.dialect` says of mathematics to
  /// another compiler's, and gives true, if there is one that was not tried.
  virtual bool switch_compiler(DeviceFacts&) { return false; }
};

/// The backend over a vendor's functions.
std::unique_ptr<Driver> make_driver(std::unique_ptr<Vendor> vendor);

}  // namespace tessera::stream
