// SPDX-License-Identifier: Apache-2.0
// Device memory with the state needed to use it safely from any queue and thread: last write, last reads, and pending
// expressions that read it. Allocated from a pool per device with a memory budget.
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

/// A use of a storage by work in a queue. The use has ended when the queue has completed `sequence`.
struct QueueUse {
  std::shared_ptr<QueueCore> queue;    ///< null: nothing to wait for
  std::uint64_t sequence = 0;          ///< Number of the last operation, counted by the queue.
  std::shared_ptr<DriverEvent> event;  ///< null: recorded when another queue or the host has to wait
};

/// A device allocation, shared by the arrays and views on it; returned to the pool when the last of them is destroyed.
class Storage {
 public:
  /// Allocates `bytes` of device memory, uninitialised. Throws OutOfMemory, which lists the largest live storages.
  static std::shared_ptr<Storage> allocate(Device device, std::size_t bytes, std::string label = {});
  /// Wraps host memory as a storage of `cpu`, without copying; keeps `owner` alive.
  static std::shared_ptr<Storage> wrap_host(void* data, std::size_t bytes, std::shared_ptr<void> owner);
  /// Wraps device memory allocated through the vendor's API: a CUdeviceptr, a pointer from hipMalloc or
  /// zeMemAllocDevice, a cl_mem of `native_context(device)`, or a pointer for cpu and interp. The caller must wait for
  /// its own work on the memory.
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
  /// True if no other storage shares this memory.
  bool from_pool() const { return pool_ != nullptr && !owned_by_recording_; }
  /// The vendor's handle, as `wrap_device` takes it. From now on no operation on the memory is deferred. Use it in
  /// `Queue::submit_native`, or after `Queue::finish`.
  void* native_handle() {
    expose();
    return allocation_.handle;
  }

  // Ordering between queues: called around each use on a queue of this device, without the queue's lock.
  void before_read(Queue& queue);   ///< Orders the queue after the last write.
  void before_write(Queue& queue);  ///< Orders the queue after the last write and all later reads.
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

  // Pending readers: `add_reader` and `reader_gone` are called under the registry's lock.
  void add_reader(ReaderLink& link);  ///< Adds a pending reader.
  /// Records that a pending reader was removed from the list.
  void reader_gone() {  ///< its link has been unlinked
    reader_count_.store(reader_count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }
  void flush_readers();  ///< Must be called before the storage is written.
  /// Number of known writes, to detect that data read earlier is outdated.
  std::uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }
  /// Sets the array operation that wrote it last, for messages.
  void set_writer(const char* operation) { writer_.store(operation, std::memory_order_relaxed); }
  /// Array operation that wrote it last; null if unknown.
  const char* writer() const { return writer_.load(std::memory_order_relaxed); }
  /// Marks the memory as writable through an address outside Tessera: no operation on it is deferred until unexpose().
  /// Both calls count as writes and must be paired. Wrapped memory is always exposed.
  void expose();
  void unexpose();  ///< Ends the effect of expose().
  /// True between expose() and unexpose().
  bool exposed() const {
    if (exposures_.load(std::memory_order_relaxed) != 0) return true;
    const CoherenceHook* const e = coherence_hook();
    return e != nullptr && e->has_other_writers();
  }
  /// Called before each use; null: none.
  CoherenceHook* coherence_hook() const {
    CoherenceHook* const e = coherence_hook_.load(std::memory_order_acquire);
    return e == nullptr || bypassed_ == this ? nullptr : e;
  }
  /// While it exists, uses of the storage by this thread bypass the coherence hook and do not count as writes. Used
  /// while contents are moved between devices.
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
  /// Attaches the hook unless there is one already. Returns the attached one.
  CoherenceHook& set_coherence_hook(std::unique_ptr<CoherenceHook> fresh);

  /// True if a recording allocated it: a sequence may then write it without a reference that others could count.
  bool is_owned_by_recording() const { return owned_by_recording_; }

 private:
  Storage() = default;
  friend class MemoryPool;
  friend class SequenceMemory;
  Device device_;
  std::size_t bytes_ = 0;
  std::string label_;
  Allocation allocation_;
  std::shared_ptr<void> owner_;                   ///< of wrapped memory
  MemoryPool* pool_ = nullptr;                    ///< null: wrapped memory
  Storage *before_ = nullptr, *after_ = nullptr;  ///< the pool's list of live storages; guarded by the pool's lock
  Mutex lock_;
  /// True after a use that has to be waited for. Queues whose work has finished when a call returns never set it.
  std::atomic<bool> used_ = false;
  QueueUse last_write_{};
  std::vector<QueueUse> reads_;                  ///< since the last write, one per queue
  ReaderLink* readers_ = nullptr;                ///< guarded by the registry's lock
  std::atomic<std::uint32_t> reader_count_ = 0;  ///< modified under the registry's lock, read without it
  std::atomic<std::uint64_t> writes_ = 0;
  std::atomic<const char*> writer_ = nullptr;
  std::atomic<std::uint32_t> exposures_ = 0;
  bool owned_by_recording_ = false;                       ///< set before the storage is shared
  std::atomic<CoherenceHook*> coherence_hook_ = nullptr;  ///< owned
  static constinit thread_local const Storage* bypassed_;
};

/// A range of a storage as a kernel argument: elements of one dtype from a byte offset.
struct BufferView {
  std::shared_ptr<Storage> storage;  ///< The memory; null: no buffer.
  std::uint64_t byte_offset = 0;     ///< Offset of the first element.
  std::uint64_t elements = 0;        ///< Number of elements.
  DType dtype = DType::f32;          ///< Element type.
  /// Size in bytes.
  std::uint64_t bytes() const { return elements * dtype_size(dtype); }
};

/// Memory statistics of a device.
struct MemoryStats {
  std::uint64_t live_bytes = 0;    ///< allocated to storages, rounded up to size classes
  std::uint64_t cached_bytes = 0;  ///< cached for reuse
  std::uint64_t peak_bytes = 0;    ///< maximum of live + cached
  std::uint64_t limit_bytes = 0;   ///< the budget; 0: only the device's own limit
  std::string bound;               ///< the limit that applies: "TESSERA_MEMORY_LIMIT", "the device's memory"
  std::uint64_t allocations = 0;   ///< number of allocations from the driver
  std::uint64_t reuses = 0;        ///< number of allocations from the pool
};
MemoryStats memory_stats(Device device);  ///< Returns the statistics of `device`.
/// Resets `peak_bytes` to the current use.
void reset_peak_memory(Device device);
/// Frees cached memory; returns the bytes freed.
std::uint64_t trim(Device device);
/// Sets a device's memory budget in bytes, overriding TESSERA_MEMORY_LIMIT ("512M", per device); 0 removes it.
void set_memory_limit(Device device, std::uint64_t bytes);

/// Returns the vendor's context of this device's memory and queues: a CUcontext (the primary one), HIP's device index,
/// a ze_context_handle_t, a cl_context; null on cpu and interp. Opens the device.
void* native_context(Device device);

/// A point in a queue: everything enqueued before `Queue::record`. Storages order their users automatically; events are
/// for waiting, and for ordering work on memory that Tessera does not manage. Copies refer to the same point; an event
/// may outlive its queue.
class Event {
 public:
  Event() = default;  ///< an event that has completed
  /// Returns whether the work has ended, successfully or not. Does not block.
  bool done() const;
  /// Blocks until the work has ended.
  /// Throws the error of the queue's failed work if it was not reported yet, as `Queue::finish` does; DeviceError if
  /// the device is lost; ArgumentError while this thread records a Sequence.
  void wait() const;

 private:
  friend class Queue;
  struct Point;
  std::shared_ptr<const Point> point_;
};

/// An in-order queue of a device. Launches and copies return immediately (on cpu and interp when they have finished);
/// host reads block.
class Queue {
 public:
  /// Returns the device's default queue, which is current outside of any QueueScope. Created on first use and never
  /// destroyed.
  static Queue& of(Device device);
  explicit Queue(Device device);  ///< Creates a queue. Throws DeviceError if the device cannot be used.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// The queue's device.
  Device device() const { return device_; }
  // Throw ArgumentError for views beyond their storage and DeviceError for storages of other devices. Pending readers
  // of a storage are flushed before it is written.
  void upload(const BufferView& to, const void* from);      ///< copies to.bytes() bytes; `from` may be reused on return
  void download(void* to, const BufferView& from);          ///< blocks until the data is copied
  void copy(const BufferView& to, const BufferView& from);  ///< equal sizes; devices may differ
  void fill(const BufferView& to, std::uint64_t bits);      ///< sets every element to these bits
  void finish();  ///< Blocks until all submitted work has finished; throws the error of failed work.
  /// Returns an event after all work so far; on a wrapped queue this includes work enqueued by others. Throws
  /// ArgumentError while this thread records a Sequence.
  Event record();
  /// Makes later work on this queue start after the event, which must be of the same device. Does not block the host.
  /// Throws DeviceError if the event is of another device, ArgumentError while this thread records a Sequence, and
  /// errors of the event's work that are already known, as `Event::wait` does.
  void wait(const Event& event);
  /// Returns the work enqueued so far, for `Storage::after_write`.
  QueueUse mark();

  // Interoperability with the vendor's API.
  /// Wraps a CUstream, hipStream_t or cl_command_queue, which must outlive the returned queue. Work from both sides
  /// runs in order. Throws DeviceError on devices without such queues.
  static std::unique_ptr<Queue> wrap(Device device, void* native);
  /// Returns the vendor's queue (CUstream, hipStream_t, ze_command_list_handle_t, cl_command_queue), valid during this
  /// queue's lifetime; null on cpu and interp.
  void* native_handle();
  /// Calls `enqueue(native_handle())`, which enqueues work that reads and writes the given views, and must not wait for
  /// it. Other uses of these storages are ordered around it, and pending expressions that read what it writes are
  /// computed first. On cpu and interp the work must be done when `enqueue` returns. `enqueue` may destroy kernels and
  /// storages but not this queue, and must not wait for threads that use this queue. `name` is for error messages.
  /// Throws ArgumentError if `enqueue` uses this queue through Tessera. Exceptions of `enqueue` propagate.
  void submit_native(std::string_view name, std::span<const BufferView> reads, std::span<const BufferView> writes,
                     const Callback<void(void* native)>& enqueue);
  /// State shared with events; for internal use.
  QueueCore& core() { return *core_; }

 private:
  Queue(Device device, std::shared_ptr<QueueCore> core) : device_(device), core_(std::move(core)) {}
  Device device_;
  std::shared_ptr<QueueCore> core_;
};

/// Returns the queue for work on `device` that names no queue: that of the thread's innermost QueueScope for this
/// device, else `Queue::of(device)`.
Queue& current_queue(Device device);

/// Makes a queue the current one of its device on this thread for the scope's lifetime. Does not change the current
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
