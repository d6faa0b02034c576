// SPDX-License-Identifier: Apache-2.0
// What a backend implements: nothing but how to enumerate, allocate, copy, compile, launch and wait. No mathematics.
// The layer above owns pools, events of storages, alias checks, caches and counters, and calls these under its own
// rules.
// Internal.
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
#include "tessera/ir/fwd.h"

namespace tessera {

/// Memory that a driver gave. `handle` is the driver's own (a cl_mem, a device address); `host` is set where the host
/// may touch the bytes directly. A handle is not an address: buffers are always {allocation, byte offset, length}.
struct Allocation {
  void* handle = nullptr;
  std::byte* host = nullptr;
  std::size_t bytes = 0;
};
enum class MemoryKind : std::uint8_t { device, pinned };

/// Work whose end can be waited for. A null pointer stands for work that is done already. Outlives its queue.
class DriverEvent {
 public:
  virtual ~DriverEvent() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;  ///< blocks; throws what the work failed with
};

/// Which of a kernel's forms is compiled.
struct Variant {
  bool noalias = true;   ///< the buffers are disjoint; else some are the very same view
  bool index64 = false;  ///< indices need 64 bits
  friend bool operator==(const Variant&, const Variant&) = default;
};

/// A kernel, compiled and loaded on one device.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  /// What the device's compiler takes, also of a kernel that was read from disk: a whole program of this kernel alone.
  /// Where there is no such text, the IR. For people, and for the driver's makers.
  virtual std::string source() const = 0;
};

struct CompileRequest {
  const ir::Function* function;  ///< canonical and verified; the driver lowers it
  Variant variant;
};

/// One argument of a launch, in the order of Function::params.
struct Argument {
  const Allocation* allocation = nullptr;  ///< buffers
  std::uint64_t byte_offset = 0;
  std::uint64_t elements = 0;
  std::uint64_t bits = 0;  ///< scalars, as ir constants hold them
};

class DriverBlas;  // device/blas.h
class DriverDevice;

/// One piece of work as a queue took it, kept so that it can be put in again.
struct RecordedWork {
  enum Kind : std::uint8_t { launch, copy, fill } kind = launch;
  bool changing = false;  ///< a launch some of whose scalars may be others each time
  LoadedKernel* kernel = nullptr;
  std::array<std::uint64_t, 3> shape{};
  std::vector<Argument> arguments;
  Allocation to, from;
  std::size_t to_offset = 0, from_offset = 0, bytes = 0;
  std::array<std::byte, 8> pattern{};
  std::uint8_t pattern_bytes = 0;
};

/// Recorded work in a form that a driver takes with one call. It is destroyed when what was replayed last has ended.
class DriverSequence {
 public:
  virtual ~DriverSequence() = default;
};

/// Work in order. Calls return as soon as the work is accepted, unless they say otherwise. One thread at a time calls
/// it. A DeviceLost thrown by any of these, or by an event, means what it says; other errors leave it
/// usable.
class DriverQueue {
 public:
  virtual ~DriverQueue() = default;
  /// All work is done when the call that puts it in returns: `record` always gives null, and nobody waits for a driver.
  virtual bool immediate() const { return false; }
  virtual void upload(const Allocation& to, std::size_t offset, const void* from,
                      std::size_t bytes) = 0;  ///< `from` may be reused on return
  virtual void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) = 0;  ///< waits
  virtual void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
                    std::size_t bytes) = 0;
  /// The same from memory of `owner`, another device that this queue's `enable_peer_access`, without the host's memory
  /// between.
  virtual void copy_from(DriverDevice& owner, const Allocation& to, std::size_t to_offset, const Allocation& from,
                         std::size_t from_offset, std::size_t bytes);
  /// Repeats `pattern` (1, 2, 4 or 8 bytes) over `bytes`, a multiple of its size.
  virtual void fill(const Allocation& to, std::size_t offset, std::size_t bytes,
                    std::span<const std::byte> pattern) = 0;
  /// `shape`: map kernels: the extent in threads; block kernels: the number of blocks. None is 0.
  virtual void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape,
                      std::span<const Argument> arguments) = 0;
  /// An event after all work so far; null if that is done.
  virtual std::shared_ptr<DriverEvent> record() = 0;
  /// Later work on this queue starts after the event, which may be another queue's of this driver. The object may be
  /// destroyed as soon as this returns: what the queue needs of it, the queue keeps.
  virtual void wait(DriverEvent& event) = 0;
  virtual void finish() = 0;  ///< blocks until the queue is empty; throws what its work failed with
  /// Gives what the vendor's API calls this queue (a CUstream, a cl_command_queue) to `use`, which may put work into
  /// it; what the API wants current on the thread is so meanwhile. Null where there is none: then `use` does its work
  /// itself.
  virtual void with_native(const std::function<void(void* native)>& use) { use(nullptr); }
  /// Makes `work` into something that one call puts into this queue; puts nothing in. Null where this driver, this
  /// queue or this work knows no such thing: then the layer above puts in one piece after the other.
  virtual std::unique_ptr<DriverSequence> capture(std::span<const RecordedWork> work) {
    static_cast<void>(work);
    return nullptr;
  }
  /// Calls `put`, which puts work into this queue; the device need not have any of it before `put` returns.
  virtual void together(const std::function<void()>& put) { put(); }
  /// Puts into the queue what `capture` made of `work`; `changed` are places in it whose scalars are others than last
  /// time.
  virtual void replay(DriverSequence& sequence, std::span<const RecordedWork> work,
                      std::span<const std::uint32_t> changed) {
    static_cast<void>(sequence), static_cast<void>(work), static_cast<void>(changed);
  }
};

/// An open device. Any thread may call allocate, release and free_memory; one at a time calls compile. A DeviceLost
/// thrown by any of these means what it says.
class DriverDevice {
 public:
  virtual ~DriverDevice() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::uint64_t free_memory() const = 0;
  /// OutOfMemory if the driver has none; the layer above trims its pool and tries once more. Contents are undefined.
  virtual Allocation allocate(std::size_t bytes, MemoryKind kind) = 0;
  virtual void release(const Allocation& allocation) noexcept = 0;
  virtual std::unique_ptr<DriverQueue> make_queue() = 0;
  /// A queue over the vendor's own, which somebody else made and keeps. DeviceError where there is none.
  virtual std::unique_ptr<DriverQueue> wrap_queue(void* native);
  /// What the vendor's API calls the context in which this device's memory and queues are; null where there is none.
  virtual void* native_context() { return nullptr; }
  /// Memory of this device that somebody else allocated and keeps, as `Allocation::handle` has it. DeviceError if
  /// the backend cannot use it.
  virtual Allocation wrap(void* native, std::size_t bytes);
  /// For a device that finds reads of uninitialised memory (the interpreter). The layer above calls these before the
  /// host reads or writes memory by `Allocation::host`, and when it gives memory that it kept to a new storage, whose
  /// contents are undefined. `host_reads` throws ArgumentError for bytes that were never written.
  virtual void host_reads(const Allocation& from, std::size_t offset, std::size_t bytes) {
    static_cast<void>(from), static_cast<void>(offset), static_cast<void>(bytes);
  }
  virtual void host_writes(const Allocation& to, std::size_t offset, std::size_t bytes) {
    static_cast<void>(to), static_cast<void>(offset), static_cast<void>(bytes);
  }
  virtual void reused(const Allocation& allocation) noexcept { static_cast<void>(allocation); }
  /// Whether queues of this device can `copy_from` memory of another, which may be of any driver; prepares them to.
  virtual bool enable_peer_access(DriverDevice& other) {
    static_cast<void>(other);
    return false;
  }
  /// The vendor's library of matrix products, opened on the first call that finds it; null if there is none, and why.
  virtual DriverBlas* blas(std::string& why);
  /// Compiles a batch at once; KernelError with kernel name and build log. A backend whose kernels are kept on disk
  /// (kernel_cache.h) has instead the three below, of which this one is made: one image a kernel, since kernels are
  /// looked for one by one.
  virtual std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests);
  /// What images depend on beside the kernel and the files that its Driver says are `vendor_drivers`: how kernels are
  /// lowered, the language, the exact architecture, compiler and driver. A line "what: which" each, without the value
  /// of any environment variable. Empty: images of this device are not kept.
  virtual std::string image_key() { return {}; }
  /// The kernel as the device's compiler makes it, with all that `load` needs beside the request. KernelError likewise.
  virtual std::string build(const CompileRequest& request) {
    static_cast<void>(request);
    return {};
  }
  /// Null if the device wants another image: it has turned to another compiler, and `image_key` is another.
  /// KernelError or FormatError if this one does not do.
  virtual std::unique_ptr<LoadedKernel> load(const CompileRequest& request, const std::string& image) {
    static_cast<void>(request), static_cast<void>(image);
    return nullptr;
  }
};

/// Code of a vendor's that a driver loads. It is asked in a process of its own (`tessera-probe`) before this one loads
/// it.
struct VendorDriver {
  std::string name;                    ///< "" for a driver that is one whole; else the file that names an OpenCL driver
  std::vector<std::string> libraries;  ///< as the loader is asked for them, in order; empty: not known
  std::vector<std::string> beside;     ///< other libraries and files that its answer depends on, such as compilers
};

/// A backend. One object a process; never destroyed, and the libraries it opens are never closed.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual Backend backend() const = 0;
  virtual BackendReport enumerate() = 0;  ///< opens the vendor's library on the first call; does not throw
  /// What of vendors' code `enumerate` would load, each part to be asked on its own; nothing for a driver without any.
  /// Opens nothing. Like `allow` it takes no lock: a child of fork, in which a thread of its parent may hold one for
  /// ever, calls these two, and the others only where `enter_driver` (discovery.h) lets it.
  virtual std::optional<std::vector<VendorDriver>> vendor_drivers() { return std::nullopt; }
  /// From now on only the parts of these names are loaded; devices are numbered through them in this order.
  virtual void allow(std::vector<std::string> parts) { static_cast<void>(parts); }
  virtual std::unique_ptr<DriverDevice> open(int index) = 0;  ///< DeviceError if it cannot be
};

/// The process's drivers. A driver registered later takes the place of the backend's earlier one for devices not open
/// yet.
void register_driver(std::unique_ptr<Driver> driver);
Driver* find_driver(Backend backend);  ///< null if none is registered
/// Registers every backend of the library; called once, before the first look-up. Defined in backend/all.cpp; a program
/// without the backends (a test of a layer) gets an empty one.
void register_all_drivers();

}  // namespace tessera
