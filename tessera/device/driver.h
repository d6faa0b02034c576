// SPDX-License-Identifier: Apache-2.0
// The interface that a backend implements: enumerate, allocate, copy, compile, launch and wait. No mathematics. The
// layer above owns memory pools, storage events, alias checks, caches and counters. Internal.
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

/// A point in a queue that can be waited for. Null means that the work has finished. May outlive its queue.
class DriverEvent {
 public:
  virtual ~DriverEvent() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;  ///< blocks; throws the error of the failed work
};

/// A kernel, compiled and loaded on one device.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  /// The source that the device's compiler reads, for this kernel alone, also for kernels loaded from the cache. If
  /// there is no such text, the IR. For users and for driver bug reports.
  virtual std::string source() const = 0;
};

struct CompileRequest {
  const ir::Function* function;  ///< canonical and verified; the driver lowers it
  Variant variant;
};

/// A launch argument, in the order of Function::params.
struct Argument {
  const Allocation* allocation = nullptr;  ///< buffers
  std::uint64_t byte_offset = 0;
  std::uint64_t elements = 0;
  std::uint64_t bits = 0;  ///< scalars, encoded as IR constants
};

class DriverBlas;  // device/blas.h
class DriverDevice;

/// One operation recorded from a queue, so that it can be submitted again.
struct RecordedWork {
  enum Kind : std::uint8_t { launch, copy, fill } kind = launch;
  bool changing = false;  ///< a launch with scalars that may change between replays
  LoadedKernel* kernel = nullptr;
  std::array<std::uint64_t, 3> shape{};
  std::vector<Argument> arguments;
  Allocation to, from;
  std::size_t to_offset = 0, from_offset = 0, bytes = 0;
  std::array<std::byte, 8> pattern{};
  std::uint8_t pattern_bytes = 0;
};

/// Recorded work that the driver submits with one call (CUDA: a graph). Destroyed only after its last replay has
/// finished.
class DriverSequence {
 public:
  virtual ~DriverSequence() = default;
};

/// An in-order queue. Calls return once the work is accepted, unless noted otherwise, and must be serialised by the
/// caller. After errors other than DeviceLost, thrown by these functions or by events, the queue remains usable.
class DriverQueue {
 public:
  virtual ~DriverQueue() = default;
  /// True if all work has finished when its call returns: `record` returns null, and no wait blocks on a driver.
  virtual bool immediate() const { return false; }
  virtual void upload(const Allocation& to, std::size_t offset, const void* from,
                      std::size_t bytes) = 0;  ///< `from` may be reused on return
  virtual void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) = 0;  ///< waits
  virtual void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
                    std::size_t bytes) = 0;
  /// Copies directly from memory of another device `owner`, for which `enable_peer_access` returned true.
  virtual void copy_from(DriverDevice& owner, const Allocation& to, std::size_t to_offset, const Allocation& from,
                         std::size_t from_offset, std::size_t bytes);
  /// Fills `bytes` (a multiple of the pattern's size) with `pattern` (1, 2, 4 or 8 bytes).
  virtual void fill(const Allocation& to, std::size_t offset, std::size_t bytes,
                    std::span<const std::byte> pattern) = 0;
  /// `shape`: for map kernels the extent in threads, for block kernels the number of blocks. Never 0.
  virtual void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape,
                      std::span<const Argument> arguments) = 0;
  /// Returns an event after all work so far; null if that has finished.
  virtual std::shared_ptr<DriverEvent> record() = 0;
  /// Later work on this queue starts after the event, which may belong to another queue of this driver. The event may
  /// be destroyed as soon as this returns.
  virtual void wait(DriverEvent& event) = 0;
  virtual void finish() = 0;  ///< blocks until the queue is empty; throws the error of failed work
  /// Calls `use` with the vendor's handle of this queue (a CUstream, a cl_command_queue), into which it may enqueue
  /// work; the vendor's context is current during the call. The handle is null if there is none: `use` then does its
  /// work synchronously.
  virtual void with_native(const std::function<void(void* native)>& use) { use(nullptr); }
  /// Converts recorded work into an object that `replay` submits with one call; enqueues nothing. Returns null if the
  /// driver, queue or work does not support this: the layer above then submits the operations one by one.
  virtual std::unique_ptr<DriverSequence> capture(std::span<const RecordedWork> work) {
    static_cast<void>(work);
    return nullptr;
  }
  /// Calls `put`, which enqueues work; the device may start it only when `put` returns, so it can be submitted as a
  /// batch.
  virtual void together(const std::function<void()>& put) { put(); }
  /// Enqueues a captured sequence. `changed` are the indices in `work` whose scalars differ from the last replay.
  virtual void replay(DriverSequence& sequence, std::span<const RecordedWork> work,
                      std::span<const std::uint32_t> changed) {
    static_cast<void>(sequence), static_cast<void>(work), static_cast<void>(changed);
  }
};

/// An open device. allocate, release and free_memory are thread-safe; calls of compile must be serialised by the
/// caller. Any of these may throw DeviceLost.
class DriverDevice {
 public:
  virtual ~DriverDevice() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::uint64_t free_memory() const = 0;
  /// Throws OutOfMemory if the driver has none; the layer above then trims its pool and retries once. Contents are
  /// undefined.
  virtual Allocation allocate(std::size_t bytes, MemoryKind kind) = 0;
  virtual void release(const Allocation& allocation) noexcept = 0;
  virtual std::unique_ptr<DriverQueue> make_queue() = 0;
  /// Wraps a queue that was created through the vendor's API and is owned by the caller. Throws DeviceError if the
  /// backend does not support this.
  virtual std::unique_ptr<DriverQueue> wrap_queue(void* native);
  /// The vendor's context of this device's memory and queues; null if there is none.
  virtual void* native_context() { return nullptr; }
  /// Wraps memory that the caller allocated on this device and owns; `native` is as in `Allocation::handle`. Throws
  /// DeviceError if the backend does not support this.
  virtual Allocation wrap(void* native, std::size_t bytes);
  /// Hooks for devices that detect reads of uninitialised memory (the interpreter). Called before the host reads or
  /// writes through `Allocation::host`, and when pooled memory is reused for a new storage, whose contents are
  /// undefined. `host_reads` throws ArgumentError for bytes that were never written.
  virtual void host_reads(const Allocation& from, std::size_t offset, std::size_t bytes) {
    static_cast<void>(from), static_cast<void>(offset), static_cast<void>(bytes);
  }
  virtual void host_writes(const Allocation& to, std::size_t offset, std::size_t bytes) {
    static_cast<void>(to), static_cast<void>(offset), static_cast<void>(bytes);
  }
  virtual void reused(const Allocation& allocation) noexcept { static_cast<void>(allocation); }
  /// Returns whether queues of this device can `copy_from` memory of `other`, possibly of another driver, and enables
  /// it.
  virtual bool enable_peer_access(DriverDevice& other) {
    static_cast<void>(other);
    return false;
  }
  /// The vendor's matrix library, opened by the first call that finds it. If there is none, returns null and sets
  /// `why`.
  virtual DriverBlas* blas(std::string& why);
  /// Compiles a batch. Throws KernelError with the kernel's name and the build log. A backend with cached kernels
  /// (kernel_cache.h) implements the three functions below instead; this one then calls them, with one image per
  /// kernel, since kernels are looked up one by one.
  virtual std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests);
  /// What images depend on besides the kernel and the files listed by `vendor_drivers`: lowering, language, exact
  /// architecture, compiler and driver. One line "name: value" each, without values of environment variables. Empty:
  /// images of this device are not cached.
  virtual std::string image_key() { return {}; }
  /// Compiles a kernel to an image with everything that `load` needs besides the request. Throws KernelError.
  virtual std::string build(const CompileRequest& request) {
    static_cast<void>(request);
    return {};
  }
  /// Loads an image. Returns null if the device has switched to another compiler, so that `image_key` has changed and
  /// another image is needed. Throws KernelError or FormatError if the image cannot be used.
  virtual std::unique_ptr<LoadedKernel> load(const CompileRequest& request, const std::string& image) {
    static_cast<void>(request), static_cast<void>(image);
    return nullptr;
  }
};

/// Vendor code that a driver loads. It is probed in a helper process (`tessera-probe`) before it is loaded into this
/// one.
struct VendorDriver {
  std::string name;                    ///< "" if the driver has one part; else the file that registers an OpenCL driver
  std::vector<std::string> libraries;  ///< names passed to the loader, in order; empty: unknown
  std::vector<std::string> dependencies;  ///< other files that probe results depend on, such as compilers
};

/// A backend. One object per process, never destroyed; libraries that it opens are never closed.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Backend backend() const = 0;
  virtual BackendReport enumerate() = 0;  ///< opens the vendor's library on the first call; does not throw
  /// The vendor code that `enumerate` would load; each part is probed separately. Nothing for a driver without vendor
  /// code. Opens nothing. `vendor_drivers` and `allow` take no locks, because a forked child calls them while a thread
  /// of its parent may have held one; it calls the other functions only if `enter_driver` (discovery.h) permits.
  virtual std::optional<std::vector<VendorDriver>> vendor_drivers() { return std::nullopt; }
  /// Restricts loading to the named parts; devices are numbered through them in this order.
  virtual void allow(std::vector<std::string> parts) { static_cast<void>(parts); }
  virtual std::unique_ptr<DriverDevice> open(int index) = 0;  ///< throws DeviceError if it cannot be opened
};

/// The process's drivers. Registering a second driver for a backend replaces the first for devices that are not open
/// yet.
void register_driver(std::unique_ptr<Driver> driver);
Driver* find_driver(Backend backend);  ///< null if none is registered
/// Registers all backends; called once, before the first lookup. Defined in backend/all.cpp. Programs without the
/// backends (tests of a layer) get an empty weak definition.
void register_all_drivers();

}  // namespace tessera
