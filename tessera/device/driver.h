// SPDX-License-Identifier: Apache-2.0
// The interface that a backend implements: enumerate, allocate, copy, compile, launch and wait. Memory pools, storage
// events, alias checks, caches and counters belong to the layer above. Internal.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/device/launch/variant.h"
#include "tessera/device/memory/allocation.h"
#include "tessera/ir/fwd.h"

namespace tessera {

enum class MemoryKind : std::uint8_t { device, pinned };

/// A point in a queue that can be waited for. A null pointer to an event means that the work has finished. An event may
/// outlive its queue.
class DriverEvent {
 public:
  virtual ~DriverEvent() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;  ///< blocks; throws the error if the work failed
};

/// A kernel that is compiled and loaded on one device.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  /// Returns the source that the device's compiler reads, even if the kernel was loaded from the cache. The source
  /// contains only this kernel. If the compiler does not read text, returns the IR. Intended for users and for bug
  /// reports to driver vendors.
  virtual std::string source() const = 0;
};

struct CompileRequest {
  const ir::Function* function;  ///< in canonical form and verified; the driver lowers it
  Variant variant;
};

/// A launch argument. Arguments are in the order of Function::params.
struct Argument {
  const Allocation* allocation = nullptr;  ///< only for buffers
  std::uint64_t byte_offset = 0;
  std::uint64_t elements = 0;
  std::uint64_t bits = 0;  ///< only for scalars; encoded like IR constants
};

class DriverBlas;        // device/blas.h
struct RecordedProduct;  // device/blas.h
class DriverDevice;

/// An operation recorded from a queue, so that it can be submitted again.
struct RecordedWork {
  enum Kind : std::uint8_t { launch, product, copy, fill } kind = launch;
  bool changing = false;  ///< true for a launch with scalars that may change between replays
  LoadedKernel* kernel = nullptr;
  std::array<std::uint64_t, 3> shape{};
  std::vector<Argument> arguments;
  Allocation to, from;
  std::size_t to_offset = 0, from_offset = 0, bytes = 0;
  std::array<std::byte, 8> pattern{};
  std::uint8_t pattern_bytes = 0;
  /// The product of a vendor's library, with its operands in `arguments`: a, b, out, bias, workspace.
  std::shared_ptr<const RecordedProduct> vendor_product;
};

/// Recorded work that the driver submits with one call, such as a CUDA graph. Must not be destroyed before its last
/// replay has finished.
class DriverSequence {
 public:
  virtual ~DriverSequence() = default;
};

/// An in-order queue. Unless noted otherwise, calls return as soon as the work is enqueued. Calls must be serialised by
/// the caller. The queue remains usable after all errors except DeviceLost.
class DriverQueue {
 public:
  virtual ~DriverQueue() = default;
  /// True if all work has finished when a call returns. `record` then returns null, and waiting never blocks.
  virtual bool immediate() const { return false; }
  /// Copies from the host. `from` may be reused on return.
  virtual void upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) = 0;
  /// Blocks until the data is copied.
  virtual void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) = 0;
  virtual void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
                    std::size_t bytes) = 0;
  /// Copies directly from the memory of another device `owner`, for which `enable_peer_access` returned true.
  virtual void copy_from(DriverDevice& owner, const Allocation& to, std::size_t to_offset, const Allocation& from,
                         std::size_t from_offset, std::size_t bytes);
  /// Fills `bytes` bytes with copies of `pattern`. `pattern` has 1, 2, 4 or 8 bytes, and `bytes` is a multiple of its
  /// size.
  virtual void fill(const Allocation& to, std::size_t offset, std::size_t bytes,
                    std::span<const std::byte> pattern) = 0;
  /// `shape` is the number of threads for map kernels and the number of blocks for block kernels, along each dimension.
  /// No extent is 0.
  virtual void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape,
                      std::span<const Argument> arguments) = 0;
  /// Returns an event that completes after all work enqueued so far; null if that work has already finished.
  virtual std::shared_ptr<DriverEvent> record() = 0;
  /// Makes later work on this queue wait for the event, which may belong to another queue of this driver. The event may
  /// be destroyed when this returns.
  virtual void wait(DriverEvent& event) = 0;
  virtual void finish() = 0;  ///< blocks until the queue is empty; throws the error if work failed
  /// Calls `use` with the vendor's handle of this queue (a CUstream, a cl_command_queue), so that `use` can enqueue
  /// work. The vendor's context is current during the call. If the queue has no such handle, `native` is null, and
  /// `use` must do its work synchronously.
  virtual void with_native(const std::function<void(void* native)>& use) { use(nullptr); }
  /// Converts recorded work into an object that `replay` submits with one call. Does not enqueue anything. Returns null
  /// if the driver, queue or work does not support this. The layer above then submits the operations one by one.
  virtual std::unique_ptr<DriverSequence> capture(std::span<const RecordedWork> work) {
    static_cast<void>(work);
    return nullptr;
  }
  /// Calls `put`, which enqueues work. The device may delay the work until `put` returns, so that it can be submitted
  /// as a batch.
  virtual void together(const std::function<void()>& put) { put(); }
  /// Enqueues a captured sequence. `changed` contains the indices in `work` of launches with scalars that differ from
  /// those of the last replay.
  virtual void replay(DriverSequence& sequence, std::span<const RecordedWork> work,
                      std::span<const std::uint32_t> changed) {
    static_cast<void>(sequence), static_cast<void>(work), static_cast<void>(changed);
  }
};

/// An open device. allocate, release and free_memory are thread-safe; calls of compile must be serialised by the
/// caller. All functions may throw DeviceLost.
class DriverDevice {
 public:
  virtual ~DriverDevice() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::uint64_t free_memory() const = 0;
  /// Allocates memory with undefined contents. Throws OutOfMemory if the driver has no memory left; the layer above
  /// then trims its pool and retries once.
  virtual Allocation allocate(std::size_t bytes, MemoryKind kind) = 0;
  virtual void release(const Allocation& allocation) noexcept = 0;
  /// Returns memory to the system that the driver can allocate or load again, such as that of a compiler.
  virtual void trim() noexcept {}
  virtual std::unique_ptr<DriverQueue> make_queue() = 0;
  /// Wraps a queue that the caller created through the vendor's API and owns. Throws DeviceError if the backend does
  /// not support this.
  virtual std::unique_ptr<DriverQueue> wrap_queue(void* native);
  /// Returns the vendor's context for this device's memory and queues; null if there is none.
  virtual void* native_context() { return nullptr; }
  /// Wraps memory that the caller allocated on this device and owns. `native` is a handle as in `Allocation::handle`.
  /// Throws DeviceError if the backend does not support this.
  virtual Allocation wrap(void* native, std::size_t bytes);
  /// Hooks for devices that detect reads of uninitialised memory (the interpreter). They are called before the host
  /// reads or writes through `Allocation::host`, and when the pool reuses memory for a new storage. The contents of
  /// reused memory are undefined. `host_reads` throws ArgumentError for bytes that were never written.
  virtual void host_reads(const Allocation& from, std::size_t offset, std::size_t bytes) {
    static_cast<void>(from), static_cast<void>(offset), static_cast<void>(bytes);
  }
  virtual void host_writes(const Allocation& to, std::size_t offset, std::size_t bytes) {
    static_cast<void>(to), static_cast<void>(offset), static_cast<void>(bytes);
  }
  virtual void reused(const Allocation& allocation) noexcept { static_cast<void>(allocation); }
  /// Enables direct copies from memory of `other`, which may belong to another driver. Returns whether queues of this
  /// device can then `copy_from` `other`.
  virtual bool enable_peer_access(DriverDevice& other) {
    static_cast<void>(other);
    return false;
  }
  /// Returns the vendor's matrix library. The first call opens it. If there is none, returns null and sets `why`.
  virtual DriverBlas* blas(std::string& why);
  /// Compiles several kernels. Throws KernelError with the kernel's name and the build log. Backends that use the
  /// kernel cache (kernel_cache.h) override the three functions below instead. The default implementation calls them,
  /// with one image per kernel because kernels are looked up individually.
  virtual std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests);
  /// Returns what images depend on besides the kernel and the files listed by `vendor_drivers`: lowering, language,
  /// exact architecture, compiler and driver. Each is a line "name: value" without values of environment variables. If
  /// empty, images of this device are not cached.
  virtual std::string image_key() { return {}; }
  /// Compiles a kernel to an image. The image and the request together contain everything that `load` needs. Throws
  /// KernelError.
  virtual std::string build(const CompileRequest& request) {
    static_cast<void>(request);
    return {};
  }
  /// Loads an image. Returns null if the device has switched to another compiler; `image_key` has then changed, and
  /// another image must be built. Throws KernelError or FormatError if the image cannot be used.
  virtual std::unique_ptr<LoadedKernel> load(const CompileRequest& request, const std::string& image) {
    static_cast<void>(request), static_cast<void>(image);
    return nullptr;
  }
};

/// A library of a vendor that a driver loads. It is probed in a helper process (`tessera-probe`) before it is loaded
/// into this process.
struct VendorDriver {
  std::string name;                    ///< the file that registers an OpenCL driver; "" for backends with a single part
  std::vector<std::string> libraries;  ///< names passed to the loader, in order; empty if unknown
  std::vector<std::string> dependencies;  ///< other files that probe results depend on, such as compilers
};

/// A backend. Each process has one object per backend, which is never destroyed. Libraries that it opens are never
/// closed.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Backend backend() const = 0;
  virtual BackendReport enumerate() = 0;  ///< the first call opens the vendor's library; does not throw
  /// Returns the vendor libraries that `enumerate` would load, without opening them. Each part is probed separately.
  /// Returns std::nullopt if the driver needs no vendor library.
  /// `vendor_drivers` and `allow` must not lock anything. A forked child calls them, and a thread of its parent may
  /// have held the lock during the fork. The child calls other functions only if `enter_driver` (discovery.h) permits
  /// it.
  virtual std::optional<std::vector<VendorDriver>> vendor_drivers() { return std::nullopt; }
  /// Restricts loading to the named parts. Devices are then numbered in the order of these parts.
  virtual void allow(std::vector<std::string> parts) { static_cast<void>(parts); }
  virtual std::unique_ptr<DriverDevice> open(int index) = 0;  ///< throws DeviceError if the device cannot be opened
};

/// Registers a driver of this process. A second driver for a backend replaces the first one for devices that are not
/// open yet.
void register_driver(std::unique_ptr<Driver> driver);
Driver* find_driver(Backend backend);  ///< null if none is registered
/// Registers all backends. Called once, before the first lookup. Defined in backend/all.cpp. Programs that do not link
/// the backends (tests of a layer) use an empty weak definition.
void register_all_drivers();

}  // namespace tessera
