// SPDX-License-Identifier: Apache-2.0
// Memory of a device with what is needed to use it safely from any queue and thread: last write, last reads, and the
// deferred expressions that still want to read it. Pooled per device, counted, and bounded by a budget.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/device/driver.h"
#include "tessera/device/memory/coherence_hook.h"
#include "tessera/device/memory/pending.h"

namespace tessera {

class Queue;
class QueueCore;
class MemoryPool;

/// Work put into a queue, as a storage remembers it: done when the queue has got past `sequence`.
struct QueueUse {
  std::shared_ptr<QueueCore> queue;    ///< null: nothing to wait for
  std::uint64_t sequence = 0;          ///< Number of the last piece of work, counted by the queue.
  std::shared_ptr<DriverEvent> event;  ///< null: recorded when another queue or the host has to wait
};

/// An allocation of a device, shared by the arrays and views on it; goes back to the pool with the last of them.
class Storage {
 public:
  /// `bytes` of the device's memory, undefined contents. OutOfMemory names the largest live storages and their labels.
  static std::shared_ptr<Storage> allocate(Device device, std::size_t bytes, std::string label = {});
  /// Host memory that somebody else owns, as storage of `cpu`; `owner` is kept alive. Nothing is copied.
  static std::shared_ptr<Storage> wrap_host(void* data, std::size_t bytes, std::shared_ptr<void> owner);
  /// The same with memory of `device` as its vendor's API has it: a CUdeviceptr, a pointer from hipMalloc or
  /// zeMemAllocDevice, a cl_mem of `native_context(device)`, for cpu and interp a pointer. ArgumentError if it is null.
  /// Work that others have under way on it is theirs to wait for.
  static std::shared_ptr<Storage> wrap_device(Device device, void* native, std::size_t bytes,
                                              std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// The device that has the memory.
  Device device() const { return device_; }
  /// Size in bytes.
  std::size_t bytes() const { return bytes_; }
  /// The label given when it was made; may be empty.
  const std::string& label() const { return label_; }
  /// For people: "storage 'weights'", or "an unnamed storage of 4 KiB on cpu:0".
  std::string name() const;
  /// The memory, as the driver knows it.
  const Allocation& allocation() const { return allocation_; }
  /// No other storage has this memory while it lives.
  bool from_pool() const { return pool_ != nullptr && !owned_by_recording_; }
  /// What `wrap_device` takes, of this memory; it is not deferred on from now on. Use it in `Queue::submit_native`, or
  /// after `Queue::finish`.
  void* native_handle() {
    expose();
    return allocation_.handle;
  }

  // Ordering between queues: around each use on a queue of this device, without holding the queue's lock.
  void before_read(Queue& queue);   ///< orders after the last write
  void before_write(Queue& queue);  ///< orders after the last write and all reads since
  void before_read(QueueCore& queue);
  void before_write(QueueCore& queue);
  /// Nobody is told of other queues' faults: these stay theirs. False if the order could not be made.
  bool try_before_write(Queue& queue) noexcept;
  /// Notes that a queue reads the memory; called after the work was submitted.
  void after_read(const QueueUse& use);
  /// Notes that a queue writes the memory; called after the work was submitted.
  void after_write(const QueueUse& use);
  void wait_readable();  ///< the host waits for the last write
  void wait_writable();  ///< the host waits for every use

  // Deferred readers: `add_reader` and `reader_gone` under the books' lock.
  void add_reader(ReaderLink& link);  ///< Adds a deferred reader.
  /// Notes that a deferred reader was removed from the list.
  void reader_gone() {  ///< its link was taken out
    reader_count_.store(reader_count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }
  void flush_readers();  ///< whatever writes this storage calls it first
  /// How often it has been written, as far as this library knows: to see that what was read from it is outdated.
  std::uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }
  /// The array operation that wrote it last, if one said so: for messages.
  void set_writer(const char* operation) { writer_.store(operation, std::memory_order_relaxed); }
  /// The array operation that wrote it last; null if unknown.
  const char* writer() const { return writer_.load(std::memory_order_relaxed); }
  /// While somebody holds an address and may write through it, nothing is deferred on this storage; it counts as
  /// written when that begins and when it ends. Calls pair up; of memory that others own it never ends.
  void expose();
  void unexpose();  ///< Ends what expose() began.
  /// True between expose() and unexpose().
  bool exposed() const {
    if (exposures_.load(std::memory_order_relaxed) != 0) return true;
    const CoherenceHook* const e = coherence_hook();
    return e != nullptr && e->has_other_writers();
  }
  /// What is asked before each use; null: nothing.
  CoherenceHook* coherence_hook() const {
    CoherenceHook* const e = coherence_hook_.load(std::memory_order_acquire);
    return e == nullptr || bypassed_ == this ? nullptr : e;
  }
  /// While it lives, what this thread does with the storage is asked of nobody, and is no change of its contents: they
  /// are taken elsewhere, or brought back.
  class CoherenceBypass {
   public:
    /// Marks the storage as moving on this thread until the object is destroyed.
    explicit CoherenceBypass(const Storage& storage) : before_(std::exchange(bypassed_, &storage)) {}
    ~CoherenceBypass() { bypassed_ = before_; }
    CoherenceBypass(const CoherenceBypass&) = delete;
    CoherenceBypass& operator=(const CoherenceBypass&) = delete;

   private:
    const Storage* const before_;
  };
  /// Unless there is one: the storage's from now on, and the one that there is.
  CoherenceHook& set_coherence_hook(std::unique_ptr<CoherenceHook> fresh);

  /// A recording made it, so that a sequence may write it without a reference that others could count.
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
  Storage *before_ = nullptr, *after_ = nullptr;  ///< the pool's list of live storages, under its lock
  std::mutex lock_;
  /// There has been a use to wait for. Queues whose work is done when a call returns leave none, and the lock free.
  std::atomic<bool> used_ = false;
  QueueUse last_write_{};
  std::vector<QueueUse> reads_;                  ///< since the last write, one a queue
  ReaderLink* readers_ = nullptr;                ///< under the books' lock
  std::atomic<std::uint32_t> reader_count_ = 0;  ///< changed under the books' lock, read without
  std::atomic<std::uint64_t> writes_ = 0;
  std::atomic<const char*> writer_ = nullptr;
  std::atomic<std::uint32_t> exposures_ = 0;
  bool owned_by_recording_ = false;                       ///< set before anybody else has it
  std::atomic<CoherenceHook*> coherence_hook_ = nullptr;  ///< owned
  static constinit thread_local const Storage* bypassed_;
};

/// Part of a storage as a kernel sees it: elements of one dtype from a byte offset.
struct BufferView {
  std::shared_ptr<Storage> storage;  ///< The memory; null for no buffer.
  std::uint64_t byte_offset = 0;     ///< Where the elements begin.
  std::uint64_t elements = 0;        ///< The number of elements.
  DType dtype = DType::f32;          ///< The type of the elements.
  /// The size of the elements in bytes.
  std::uint64_t bytes() const { return elements * dtype_size(dtype); }
};

/// Figures of a device's memory.
struct MemoryStats {
  std::uint64_t live_bytes = 0;    ///< in storages, with the rounding to size classes
  std::uint64_t cached_bytes = 0;  ///< kept for reuse
  std::uint64_t peak_bytes = 0;    ///< highest live + cached
  std::uint64_t limit_bytes = 0;   ///< the budget; 0: none but the device's own
  std::string bound;  ///< what bounds memory most tightly now: "TESSERA_MEMORY_LIMIT", "the device's memory"
  std::uint64_t allocations = 0;  ///< from the driver so far
  std::uint64_t reuses = 0;       ///< from the pool so far
};
MemoryStats memory_stats(Device device);  ///< The figures of `device`.
/// `peak_bytes` counts from now on.
void reset_peak_memory(Device device);
/// Gives cached memory back to the driver; returns the bytes given back.
std::uint64_t trim(Device device);
/// A budget in bytes for a device, in place of what TESSERA_MEMORY_LIMIT says ("512M", for each device); 0 removes it.
void set_memory_limit(Device device, std::uint64_t bytes);

/// The vendor's context in which this device's memory and queues are: a CUcontext (the primary one), the number of
/// HIP's device, a ze_context_handle_t, a cl_context; null on cpu and interp. Opens the device.
void* native_context(Device device);

/// A point in a queue's work: what was put into it before `Queue::record`. Storages order work on them by themselves;
/// an event tells when it has ended, and orders what storages do not see, such as memory of others. Copies are the same
/// point; it may outlive its queue.
class Event {
 public:
  Event() = default;  ///< nothing to wait for
  /// Whether the work has ended, also if it failed or its device is lost: `wait` tells. Waits for nothing.
  bool done() const;
  /// The host waits. Throws what the queue's work failed with, unless somebody was told, as `Queue::finish` does;
  /// DeviceError if the device is lost; ArgumentError while this thread records a Sequence.
  void wait() const;

 private:
  friend class Queue;
  struct Point;
  std::shared_ptr<const Point> point_;
};

/// Work in order on one device. Launches and copies return at once (on cpu and interp when they are done); host reads
/// wait.
class Queue {
 public:
  /// The device's default queue: the current one where no QueueScope is; made on first use, lives as long as the
  /// process.
  static Queue& of(Device device);
  explicit Queue(Device device);  ///< A new queue of the device. Throws DeviceError if the device cannot be used.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// The device.
  Device device() const { return device_; }
  // Views that do not lie in their storage are an ArgumentError, storages of other devices a DeviceError. What writes a
  // storage flushes its pending readers first.
  void upload(const BufferView& to, const void* from);      ///< to.bytes() bytes; `from` may be reused on return
  void download(void* to, const BufferView& from);          ///< waits
  void copy(const BufferView& to, const BufferView& from);  ///< equal bytes; devices may differ
  void fill(const BufferView& to, std::uint64_t bits);      ///< every element gets these bits
  void finish();  ///< Blocks until all submitted work is done; throws the error of work that failed.
  /// An event after everything so far; on a wrapped queue also after what others have put into it by now.
  /// ArgumentError while this thread records a Sequence.
  Event record();
  /// What is put into this queue from now on starts after the event, which is of the same device; the host goes on.
  /// DeviceError if it is another device's; ArgumentError while this thread records a Sequence. What the event's
  /// work is known to have failed with by now is thrown as `Event::wait` does.
  void wait(const Event& event);
  /// What was put into this queue so far, for `Storage::after_write`.
  QueueUse mark();

  // Together with code that calls the vendor's API itself.
  /// A queue over a CUstream, hipStream_t or cl_command_queue that somebody else made and keeps longer than this
  /// object. What both put into it runs in order. DeviceError on devices without such queues.
  static std::unique_ptr<Queue> wrap(Device device, void* native);
  /// The vendor's queue behind this one (CUstream, hipStream_t, ze_command_list_handle_t, cl_command_queue), valid as
  /// long as this object; null on cpu and interp.
  void* native_handle();
  /// Calls `enqueue(native_handle())`, which puts work into it that reads and writes these views and may not wait for
  /// it; all else that uses these storages is ordered around it, and expressions that read what it writes are computed
  /// before. On cpu and interp the work is done when `enqueue` returns. It may drop kernels and storages, not this
  /// queue; if it uses this queue through Tessera, that throws an ArgumentError, and what it computes on other queues
  /// may wait forever for a thread that waits for this one. What it throws passes unchanged. `name` is for faults.
  void submit_native(std::string_view name, std::span<const BufferView> reads, std::span<const BufferView> writes,
                     const std::function<void(void* native)>& enqueue);
  /// The state shared with events; used by the library.
  QueueCore& core() { return *core_; }

 private:
  Queue(Device device, std::shared_ptr<QueueCore> core) : device_(device), core_(std::move(core)) {}
  Device device_;
  std::shared_ptr<QueueCore> core_;
};

/// The queue that arrays, kernels and whatever else names none use on this device: that of the thread's innermost
/// QueueScope of this device, else `Queue::of(device)`.
Queue& current_queue(Device device);

/// Makes a queue the current one of its device on this thread for as long as it lives. Which device is current stays as
/// it is. The queue outlives the scope.
class QueueScope {
 public:
  /// Makes `queue` this thread's queue for its device until the object is destroyed.
  explicit QueueScope(Queue& queue);
  ~QueueScope();
  QueueScope(const QueueScope&) = delete;
  QueueScope& operator=(const QueueScope&) = delete;

 private:
  std::shared_ptr<struct QueueLink> link_;
};

}  // namespace tessera
