// SPDX-License-Identifier: Apache-2.0
// Device memory that can be used safely from any queue and thread. Each storage tracks its last write, its last reads,
// and pending expressions that read it. Storages are allocated from a pool per device with a memory budget.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/dtype.h"
#include "tessera/base/mutex.h"
#include "tessera/device/device.h"
#include "tessera/device/memory/allocation.h"
#include "tessera/device/memory/coherence_hook.h"

namespace tessera {

class DriverEvent;
class Queue;
class QueueCore;
class MemoryPool;
struct ReaderLink;

/// A use of a storage by work in a queue. The use has ended when the queue has completed operation number `sequence`.
struct QueueUse {
  std::shared_ptr<QueueCore> queue;    ///< null: nothing to wait for
  std::uint64_t sequence = 0;          ///< Number of the last operation, counted by the queue.
  std::shared_ptr<DriverEvent> event;  ///< null: recorded only when another queue or the host has to wait
};

/// A device allocation. Arrays and views share it, and it returns to the pool when the last of them is destroyed.
class Storage {
 public:
  /// Allocates `bytes` of uninitialised device memory. Throws OutOfMemory, with a message that lists the largest live
  /// storages.
  static std::shared_ptr<Storage> allocate(Device device, std::size_t bytes, std::string label = {});
  /// Wraps host memory as a storage of `cpu`, without copying; keeps `owner` alive.
  static std::shared_ptr<Storage> wrap_host(void* data, std::size_t bytes, std::shared_ptr<void> owner);
  /// Wraps device memory that was allocated through the vendor's API. `native` is a CUdeviceptr, a pointer from
  /// hipMalloc or zeMemAllocDevice, a cl_mem of `native_context(device)`, or a pointer for cpu and interp. The caller
  /// must wait for its own work on the memory.
  /// Throws ArgumentError if `native` is null.
  static std::shared_ptr<Storage> wrap_device(Device device, void* native, std::size_t bytes,
                                              std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Device on which the memory is allocated.
  Device device() const { return device_; }
  /// Size in bytes.
  std::size_t bytes() const { return bytes_; }
  /// Label given at allocation; may be empty.
  const std::string& label() const { return label_; }
  /// Name for messages: "storage 'weights'", or "an unnamed storage of 4 KiB on cpu:0".
  std::string name() const;
  /// The driver's allocation.
  const Allocation& allocation() const { return allocation_; }
  /// True if the memory is from the pool and no other storage shares it.
  bool from_pool() const { return pool_ != nullptr && !owned_by_recording_; }
  /// Returns the vendor's handle, of the same type as the parameter of `wrap_device`. From this call on, operations on
  /// the memory are not deferred. Use the handle in `Queue::submit_native` or after `Queue::finish`.
  void* native_handle() {
    expose();
    return allocation_.handle;
  }

  // The functions below order work of different queues. They are called before and after each use on a queue of this
  // device, without holding the queue's lock.

  /// Makes later work in the queue wait for the last write.
  void before_read(Queue& queue);
  /// Makes later work in the queue wait for the last write and for all reads since then.
  void before_write(Queue& queue);
  void before_read(QueueCore& queue);
  void before_write(QueueCore& queue);
  /// Like before_write, but does not report errors of other queues. Returns false if the order could not be
  /// established.
  bool try_before_write(Queue& queue) noexcept;
  /// Records a read by a queue; called after the work was submitted.
  void after_read(const QueueUse& use);
  /// Records a write by a queue; called after the work was submitted.
  void after_write(const QueueUse& use);
  void wait_readable();  ///< Blocks the host until the last write has finished.
  void wait_writable();  ///< Blocks the host until all uses have finished.

  // `add_reader` and `reader_gone` are called under the registry's lock.
  void add_reader(ReaderLink& link);  ///< Adds a pending reader.
  /// Removes a pending reader from the count.
  void reader_gone() {  ///< called after its link was unlinked
    reader_count_.store(reader_count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }
  /// Computes pending results that read the storage. Must be called before the storage is written.
  void flush_readers();
  /// Number of known writes; used to detect that data read earlier is outdated.
  std::uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }
  /// Sets the name of the array operation that last wrote the storage, for error messages.
  void set_writer(const char* operation) { writer_.store(operation, std::memory_order_relaxed); }
  /// Returns the name of the array operation that last wrote the storage; null if unknown.
  const char* writer() const { return writer_.load(std::memory_order_relaxed); }
  /// Marks the memory as writable by code outside of Tessera. Operations on it are not deferred until unexpose() is
  /// called. Each call must be paired with a call of unexpose(), and both count as writes. Wrapped memory is always
  /// exposed.
  void expose();
  void unexpose();  ///< Ends the effect of expose().
  /// True if the memory may change without Tessera's knowledge.
  bool exposed() const {
    if (exposures_.load(std::memory_order_relaxed) != 0) return true;
    const CoherenceHook* const e = coherence_hook();
    return e != nullptr && e->has_other_writers();
  }
  /// Returns the hook that is called before each use; null if there is none.
  CoherenceHook* coherence_hook() const {
    CoherenceHook* const e = coherence_hook_.load(std::memory_order_acquire);
    return e == nullptr || bypassed_ == this ? nullptr : e;
  }
  /// Lets this thread use the storage without calling the coherence hook and without counting writes, during the
  /// object's lifetime. Used while contents are moved between devices.
  class CoherenceBypass {
   public:
    /// Bypasses the hook of `storage` on this thread.
    explicit CoherenceBypass(const Storage& storage) : before_(std::exchange(bypassed_, &storage)) {}
    ~CoherenceBypass() { bypassed_ = before_; }
    CoherenceBypass(const CoherenceBypass&) = delete;
    CoherenceBypass& operator=(const CoherenceBypass&) = delete;

   private:
    const Storage* const before_;
  };
  /// Attaches the hook unless one is already attached. Returns the attached hook.
  CoherenceHook& set_coherence_hook(std::unique_ptr<CoherenceHook> fresh);

  /// True if a recording allocated the memory. A sequence may then write it without holding a reference to this
  /// storage.
  bool is_owned_by_recording() const { return owned_by_recording_; }

 private:
  Storage() = default;
  friend class MemoryPool;
  friend class SequenceMemory;
  Device device_;
  std::size_t bytes_ = 0;
  std::string label_;
  Allocation allocation_;
  std::shared_ptr<void> owner_;                   ///< keeps wrapped memory alive
  MemoryPool* pool_ = nullptr;                    ///< null: wrapped memory
  Storage *before_ = nullptr, *after_ = nullptr;  ///< the pool's list of live storages; guarded by the pool's lock
  detail::Mutex lock_;
  /// Set after a use that later uses must wait for. Queues that finish their work within the call never set it.
  std::atomic<bool> used_ = false;
  QueueUse last_write_{};
  std::vector<QueueUse> reads_;                  ///< since the last write, one entry per queue
  ReaderLink* readers_ = nullptr;                ///< guarded by the registry's lock
  std::atomic<std::uint32_t> reader_count_ = 0;  ///< modified under the registry's lock, read without it
  std::atomic<std::uint64_t> writes_ = 0;
  std::atomic<const char*> writer_ = nullptr;
  std::atomic<std::uint32_t> exposures_ = 0;
  bool owned_by_recording_ = false;                       ///< set before other threads can see the storage
  std::atomic<CoherenceHook*> coherence_hook_ = nullptr;  ///< owned by this object
  static constinit thread_local const Storage* bypassed_;
};

/// A range of a storage that is passed to a kernel: elements of one dtype that start at a byte offset.
struct BufferView {
  std::shared_ptr<Storage> storage;  ///< The memory; null if there is no buffer.
  std::uint64_t byte_offset = 0;     ///< Byte offset of the first element.
  std::uint64_t elements = 0;        ///< Number of elements.
  DType dtype = DType::f32;          ///< Element type.
  /// Size in bytes.
  std::uint64_t bytes() const { return elements * dtype_size(dtype); }
};

/// Memory statistics of a device.
struct MemoryStats {
  std::uint64_t live_bytes = 0;    ///< Bytes allocated to storages, rounded up to size classes.
  std::uint64_t cached_bytes = 0;  ///< Bytes cached for reuse.
  std::uint64_t peak_bytes = 0;    ///< maximum of live_bytes + cached_bytes
  std::uint64_t limit_bytes = 0;   ///< the memory budget; 0: limited only by the device
  std::string bound;               ///< name of the limit that applies: "TESSERA_MEMORY_LIMIT", "the device's memory"
  std::uint64_t allocations = 0;   ///< number of allocations from the driver
  std::uint64_t reuses = 0;        ///< number of allocations from the pool
};
MemoryStats memory_stats(Device device);  ///< Returns the statistics of `device`.
/// Resets `peak_bytes` to the current memory use.
void reset_peak_memory(Device device);
/// Frees cached memory. Returns the number of bytes freed.
std::uint64_t trim(Device device);
/// Sets a device's memory budget in bytes. It overrides TESSERA_MEMORY_LIMIT ("512M", per device); 0 removes the
/// budget.
void set_memory_limit(Device device, std::uint64_t bytes);

/// Returns the vendor's context for this device's memory and queues: the primary CUcontext, HIP's device index, a
/// ze_context_handle_t or a cl_context. Returns null on cpu and interp. Opens the device.
void* native_context(Device device);

/// A point in a queue, after all work that was enqueued before `Queue::record`. Use events to wait, and to order work
/// on memory that Tessera does not manage. Uses of a storage are ordered automatically. Copies of an event refer to the
/// same point. An event may outlive its queue.
class Event {
 public:
  Event() = default;  ///< Creates an event that has already completed.
  /// Returns whether the work has ended, successfully or with an error. Does not block.
  bool done() const;
  /// Blocks until the work has ended.
  /// Throws the error of failed work in the queue if that error was not reported yet, like `Queue::finish`. Throws
  /// DeviceError if the device is lost, and ArgumentError while this thread records a Sequence.
  void wait() const;

 private:
  friend class Queue;
  struct Point;
  std::shared_ptr<const Point> point_;
};

/// An in-order queue of a device. Launches and copies return as soon as they are enqueued. On cpu and interp, they
/// return when the work has finished. Reads by the host block.
class Queue {
 public:
  /// Returns the device's default queue, which is current outside of any QueueScope. It is created on first use and
  /// never destroyed.
  static Queue& of(Device device);
  explicit Queue(Device device);  ///< Creates a queue. Throws DeviceError if the device cannot be used.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// The queue's device.
  Device device() const { return device_; }
  // The functions below throw ArgumentError for views beyond the end of their storage and DeviceError for storages of
  // other devices. Pending readers of a storage are computed before it is written.

  /// Copies to.bytes() bytes from the host. `from` may be reused on return.
  void upload(const BufferView& to, const void* from);
  /// Copies to the host. Blocks until the data is copied.
  void download(void* to, const BufferView& from);
  /// Copies between views of equal size, possibly on different devices.
  void copy(const BufferView& to, const BufferView& from);
  /// Sets every element to the value with these bits.
  void fill(const BufferView& to, std::uint64_t bits);
  /// Blocks until all submitted work has finished. Throws the error if work failed.
  void finish();
  /// Returns an event that completes after all work enqueued so far. On a wrapped queue this includes work that the
  /// caller enqueued directly. Throws ArgumentError while this thread records a Sequence.
  Event record();
  /// Makes later work on this queue wait for the event, which must be from the same device. Does not block the host.
  /// Throws DeviceError if the event is from another device, and ArgumentError while this thread records a Sequence.
  /// Also throws errors of the event's work that are already known, like `Event::wait`.
  void wait(const Event& event);
  /// Returns a use that covers the work enqueued so far, for `Storage::after_write`.
  QueueUse mark();

  // Interoperability with the vendor's API:
  /// Wraps a CUstream, hipStream_t or cl_command_queue, which must outlive the returned queue. Work enqueued through
  /// Tessera and through the vendor's API runs in order. Throws DeviceError on devices without such queues.
  static std::unique_ptr<Queue> wrap(Device device, void* native);
  /// Returns the vendor's queue: a CUstream, hipStream_t, ze_command_list_handle_t or cl_command_queue. It is valid
  /// during this queue's lifetime. Returns null on cpu and interp.
  void* native_handle();
  /// Calls `enqueue(native_handle())`. `enqueue` enqueues work that reads and writes the given views, and must not wait
  /// for this work. Other uses of these storages are ordered before or after this work, and pending expressions that
  /// read the written views are computed first. On cpu and interp, the work must be done when `enqueue` returns.
  /// `enqueue` may destroy kernels and storages but not this queue, and it must not wait for threads that use this
  /// queue. `name` is used in error messages.
  /// Throws ArgumentError if `enqueue` uses this queue through Tessera. Exceptions of `enqueue` propagate.
  void submit_native(std::string_view name, std::span<const BufferView> reads, std::span<const BufferView> writes,
                     const Callback<void(void* native)>& enqueue);
  /// State shared with events. Internal.
  QueueCore& core() { return *core_; }

 private:
  Queue(Device device, std::shared_ptr<QueueCore> core) : device_(device), core_(std::move(core)) {}
  Device device_;
  std::shared_ptr<QueueCore> core_;
};

/// Returns the queue for work on `device` if no queue is given: the queue of this thread's innermost QueueScope for the
/// device, else `Queue::of(device)`.
Queue& current_queue(Device device);

/// Makes a queue the current queue of its device on this thread for the scope's lifetime. Does not change the current
/// device. The queue must outlive the scope.
class QueueScope {
 public:
  /// Makes `queue` current for its device on this thread.
  explicit QueueScope(Queue& queue);
  ~QueueScope();
  QueueScope(const QueueScope&) = delete;
  QueueScope& operator=(const QueueScope&) = delete;

 private:
  std::shared_ptr<struct QueueLink> link_;
};

}  // namespace tessera
