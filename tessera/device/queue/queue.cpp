// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/driver.h"
#include "tessera/device/memory/storage.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/placement/placement.h"
#include "tessera/device/queue/copy_path.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

const std::string upload_name = "(upload)", download_name = "(download)", copy_name = "(copy)", fill_name = "(fill)",
                  mark_name = "(mark)";

std::shared_ptr<QueueCore> make_core(OpenDevice& device, std::unique_ptr<DriverQueue> queue, bool adopted) {
  auto core = std::make_shared<QueueCore>(device, std::move(queue), adopted);
  std::lock_guard hold(device.queues_lock);
  std::erase_if(device.queues, [](const auto& q) { return q.expired(); });
  device.queues.push_back(core);
  device.queue_count.fetch_add(1);
  return core;
}

std::string describe(const BufferView& view) {
  return fmt::format("{} elements of {} from byte {} of a storage of {} bytes on {}", view.elements,
                     dtype_name(view.dtype), view.byte_offset, view.storage->bytes(),
                     to_string(view.storage->device()));
}

/// Checks that the view is within its storage, and that the storage is on the device.
void check_view(const char* asked, const BufferView& view, std::optional<Device> device) {
  if (!view.storage) fail<ArgumentError>({.operation = asked, .wrong = "the view has no storage"});
  const std::size_t size = dtype_size(view.dtype);
  const std::uint64_t bytes = view.storage->bytes();
  if (size == 0 || view.byte_offset > bytes || view.elements > (bytes - view.byte_offset) / size) {
    fail<ArgumentError>(
        {.operation = asked, .with = {{"view", describe(view)}}, .wrong = "the view extends beyond its storage"});
  }
  if (device && view.storage->device() != *device) {
    fail<DeviceError>({.operation = asked,
                       .with = {{"view", describe(view)}, {"queue", to_string(*device)}},
                       .wrong = "the storage is not on the queue's device",
                       .remedy = "Use a queue of the storage's device"});
  }
}

void count(OpenDevice& device, PlacementAccess::Direction direction, std::uint64_t n) {
  using enum PlacementAccess::Direction;
  CopyCounters& c = device.copies;
  auto& bytes = direction == to_device ? c.to_device_bytes
                : direction == to_host ? c.to_host_bytes
                : direction == within  ? c.within_bytes
                                       : c.from_peers_bytes;
  auto& times = direction == to_device ? c.to_device_count
                : direction == to_host ? c.to_host_count
                : direction == within  ? c.within_count
                                       : c.from_peers_count;
  bytes.fetch_add(n, std::memory_order_relaxed);
  times.fetch_add(1, std::memory_order_relaxed);
  PlacementAccess::count(device.device, direction, n);
}

void trace(const char* what, Device device, std::uint64_t bytes) {
  if (traced()) trace_line(fmt::format("{} {} {} bytes", what, to_string(device), bytes));
}

/// Copies on the target's queue if that device can access the source's memory. Does not block either device.
bool copy_from_peer(Queue& target, const BufferView& to, Queue& source, const BufferView& from) {
  OpenDevice &here = target.core().device(), &there = source.core().device();
  if (copy_path(here, there) != CopyPath::direct) return false;
  there.check();  // throws if the memory of the source was lost
  from.storage->before_read(target);
  to.storage->before_write(target);
  trace("copy from a peer to", here.device, to.bytes());
  target.core().submit(
      copy_name,
      [&](DriverQueue& driver) {
        driver.copy_from(*there.driver, to.storage->allocation(), to.byte_offset, from.storage->allocation(),
                         from.byte_offset, to.bytes());
      },
      [&](QueueUse use) {
        if (use.queue) use.queue->record(use);  // so that the source waits only for this copy and not for later work
        from.storage->after_read(use);
        to.storage->after_write(use);
      });
  count(here, PlacementAccess::Direction::from_peers, to.bytes());
  return true;
}

}  // namespace

const std::string& interned(std::string_view name) {
  struct Names {
    std::mutex lock;
    std::set<std::string, std::less<>> all;
  };
  static constinit os::PerProcess<Names> names;
  Names& n = names.get();
  std::lock_guard hold(n.lock);
  const auto it = n.all.find(name);
  return it != n.all.end() ? *it : *n.all.emplace(name).first;
}

Queue& Queue::of(Device device) {
  OpenDevice& open = open_device(device);
  if (Queue* queue = open.default_queue.load(std::memory_order_acquire)) return *queue;
  static constinit os::PerProcess<std::mutex> making;
  std::lock_guard hold(making.get());
  if (Queue* queue = open.default_queue.load(std::memory_order_acquire)) return *queue;
  auto* queue = new Queue(device);  // leaked, because it is valid until the process ends
  open.default_queue.store(queue, std::memory_order_release);
  return *queue;
}

Queue::Queue(Device device) : device_(device) {
  OpenDevice& open = open_device(device);
  core_ = make_core(open, open.driver->make_queue(), false);
}

std::unique_ptr<Queue> Queue::wrap(Device device, void* native) {
  OpenDevice& open = open_device(device);
  return std::unique_ptr<Queue>(new Queue(device, make_core(open, open.driver->wrap_queue(native), true)));
}

void* native_context(Device device) { return open_device(device).driver->native_context(); }

void* Queue::native_handle() { return core_->native_handle(); }

void Queue::submit_native(std::string_view name, std::span<const BufferView> reads, std::span<const BufferView> writes,
                          const Callback<void(void* native)>& enqueue) {
  Recorder::refuse("submit_native");
  for (const auto views : {reads, writes})
    for (const BufferView& view : views) check_view("submit_native", view, device_);
  const std::string& kept = interned(name);
  PlacementAccess::check("submit_native", kept, device_);
  for (const BufferView& view : writes) view.storage->flush_readers();
  for (const BufferView& view : reads) view.storage->before_read(*this);
  for (const BufferView& view : writes) view.storage->before_write(*this);
  const bool on_host = holds_data(device_) && core_->native_handle() == nullptr;
  if (on_host) {  // the caller computes on the host, so pending work must have finished
    for (const BufferView& view : reads) view.storage->wait_readable();
    for (const BufferView& view : writes) view.storage->wait_writable();
  }
  core_->submit_native(kept, enqueue, [&](const QueueUse& use) {
    for (const BufferView& view : reads) view.storage->after_read(use);
    for (const BufferView& view : writes) view.storage->after_write(use);
  });
}

Queue::~Queue() {
  core_->close();
  core_->device().queue_count.fetch_sub(1);
}

void Queue::finish() {
  Recorder::refuse("finish");
  core_->finish();
}

struct Event::Point {
  explicit Point(QueueUse u) : use(std::move(u)) {}
  ~Point() {
    if (use.queue->device().gone()) QueueCore::leave(std::move(use.event));
  }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;
  QueueUse use;
};

bool Event::done() const { return !point_ || point_->use.queue->ended(point_->use); }

void Event::wait() const {
  Recorder::refuse("waiting for an event");
  if (!point_) return;
  point_->use.queue->device().check();  // throws if the device is lost, even if the work had ended before
  point_->use.queue->wait(point_->use);
}

Event Queue::record() {
  Recorder::refuse("Queue::record");
  Event event;
  event.point_ = std::make_shared<const Event::Point>(core_->recorded());
  return event;
}

void Queue::wait(const Event& event) {
  Recorder::refuse("Queue::wait");
  core_->device().check();
  if (!event.point_) return;
  const QueueUse& use = event.point_->use;
  if (const Device theirs = use.queue->device().device; theirs != device_)
    fail<DeviceError>({.operation = "Queue::wait",
                       .with = {{"queue", to_string(device_)}, {"event", to_string(theirs)}},
                       .wrong = "the event belongs to another device, and this queue cannot wait for it",
                       .remedy = "Wait on the host with Event::wait"});
  core_->order_after(use);
}

QueueUse Queue::mark() {
  return core_->submit(mark_name, [](DriverQueue&) {});
}

void Queue::upload(const BufferView& to, const void* from) {
  check_view("upload", to, device_);
  const std::uint64_t bytes = to.bytes();
  if (bytes == 0) return;
  PlacementAccess::check("copy", upload_name, device_);
  Recorder::refuse("upload");
  if (from == nullptr) fail<ArgumentError>({.operation = "upload", .wrong = "the host pointer is null"});
  to.storage->flush_readers();
  to.storage->before_write(*this);
  trace("upload to", device_, bytes);
  core_->submit(
      upload_name, [&](DriverQueue& driver) { driver.upload(to.storage->allocation(), to.byte_offset, from, bytes); },
      [&](const QueueUse& use) { to.storage->after_write(use); });
  count(core_->device(), PlacementAccess::Direction::to_device, bytes);
}

bool upload_in_place(Queue& queue, const BufferView& to, const Callback<void(std::byte*)>& write) {
  check_view("upload", to, queue.device());
  std::byte* const host = to.storage->allocation().host;
  if (host == nullptr) return false;
  PlacementAccess::check("copy", upload_name, queue.device());
  Recorder::refuse("upload");
  to.storage->flush_readers();
  to.storage->wait_writable();
  trace("upload to", queue.device(), to.bytes());
  queue.core().device().driver->host_writes(to.storage->allocation(), to.byte_offset, to.bytes());
  write(host + to.byte_offset);
  to.storage->after_write({});
  count(queue.core().device(), PlacementAccess::Direction::to_device, to.bytes());
  return true;
}

void Queue::download(void* to, const BufferView& from) {
  check_view("download", from, device_);
  const std::uint64_t bytes = from.bytes();
  if (bytes == 0) return;
  if (to == nullptr) fail<ArgumentError>({.operation = "download", .wrong = "the host pointer is null"});
  PlacementAccess::check("copy", download_name, device_);
  Recorder::refuse("download");
  core_->device().check();
  trace("download from", device_, bytes);
  // Wait without the queue's lock, so that other threads can submit work.
  from.storage->wait_readable();
  if (const std::byte* host = from.storage->allocation().host) {
    core_->device().driver->host_reads(from.storage->allocation(), from.byte_offset, bytes);
    std::memcpy(to, host + from.byte_offset, bytes);
  } else {
    try {
      core_->submit(download_name, [&](DriverQueue& driver) {
        driver.download(to, from.storage->allocation(), from.byte_offset, bytes);
      });
    } catch (...) {  // after a successful download there is nothing to wait for
      if (!core_->device().gone()) from.storage->after_read(core_->last_use());
      throw;
    }
  }
  count(core_->device(), PlacementAccess::Direction::to_host, bytes);
}

bool start_download(StagedDownload& download, Queue& queue, const BufferView& from) {
  check_view("download", from, queue.device());
  if (queue.core().immediate() || from.storage->allocation().host != nullptr) return false;
  PlacementAccess::check("copy", download_name, queue.device());
  Recorder::refuse("download");
  if (!download.start(queue, from, download_name)) return false;
  trace("download from", queue.device(), from.bytes());
  count(queue.core().device(), PlacementAccess::Direction::to_host, from.bytes());
  return true;
}

void Queue::copy(const BufferView& to, const BufferView& from) {
  check_view("copy", to, std::nullopt);
  check_view("copy", from, std::nullopt);
  if (to.bytes() != from.bytes()) {
    fail<ArgumentError>(
        {.operation = "copy", .with = {{"to", describe(to)}, {"from", describe(from)}}, .wrong = "the sizes differ"});
  }
  const std::uint64_t bytes = to.bytes();
  if (bytes == 0) return;
  const Device to_device = to.storage->device(), from_device = from.storage->device();
  if (to_device != device_ && from_device != device_) {
    fail<DeviceError>({.operation = "copy",
                       .with = {{"to", describe(to)}, {"from", describe(from)}, {"queue", to_string(device_)}},
                       .wrong = "neither storage is on the queue's device",
                       .remedy = "Use a queue of one of the two devices"});
  }
  for (const Device device : {to_device, from_device}) PlacementAccess::check("copy", copy_name, device);
  if (to_device == from_device) {
    if (to.storage == from.storage) {
      if (to.byte_offset == from.byte_offset) return;
      if (to.byte_offset < from.byte_offset + bytes && from.byte_offset < to.byte_offset + bytes) {
        fail<ArgumentError>({.operation = "copy",
                             .with = {{"to", describe(to)}, {"from", describe(from)}},
                             .wrong = "the source and the target overlap",
                             .remedy = "Copy through another storage"});
      }
    }
    to.storage->flush_readers();
    Recorder::check("copy", *core_);
    from.storage->before_read(*this);
    to.storage->before_write(*this);
    trace("copy within", device_, bytes);
    core_->submit(
        copy_name,
        [&](DriverQueue& driver) {
          driver.copy(to.storage->allocation(), to.byte_offset, from.storage->allocation(), from.byte_offset, bytes);
        },
        [&](const QueueUse& use) {
          from.storage->after_read(use);
          to.storage->after_write(use);
        });
    count(core_->device(), PlacementAccess::Direction::within, bytes);
    if (Recorder* const recorder = Recorder::of_this_thread()) [[unlikely]]
      recorder->copied(to, from);
    return;
  }
  Recorder::refuse("copy between devices");
  // Copies between devices are direct if possible. Otherwise they go through the host. If either memory is
  // host-addressable, one copy is sufficient. If not, the data is copied in parts, so that large arrays are never
  // duplicated.
  to.storage->flush_readers();
  Queue& source = from_device == device_ ? *this : current_queue(from_device);
  Queue& target = to_device == device_ ? *this : current_queue(to_device);
  if (copy_from_peer(target, to, source, from)) return;
  if (const std::byte* host = from.storage->allocation().host) {
    from.storage->wait_readable();
    target.upload(to, host + from.byte_offset);
    count(source.core().device(), PlacementAccess::Direction::to_host, bytes);
    return;
  }
  if (std::byte* host = to.storage->allocation().host) {
    to.storage->wait_writable();
    target.core().device().driver->host_writes(to.storage->allocation(), to.byte_offset, bytes);
    source.download(host + to.byte_offset, from);
    trace("upload to", to_device, bytes);
    count(target.core().device(), PlacementAccess::Direction::to_device, bytes);
    return;
  }
  trace("copy from", from_device, bytes);
  if (copy_through_pinned(target, to, source, from, copy_name)) {
    count(source.core().device(), PlacementAccess::Direction::to_host, bytes);
    return;
  }
  std::vector<std::byte> staging(std::min<std::uint64_t>(bytes, StagingPool::piece_bytes));
  const std::uint64_t piece = staging.size();
  for (std::uint64_t done = 0; done < bytes; done += piece) {
    const std::uint64_t n = std::min(piece, bytes - done);
    source.download(staging.data(), {from.storage, from.byte_offset + done, n, DType::u8});
    target.upload({to.storage, to.byte_offset + done, n, DType::u8}, staging.data());
  }
}

void Queue::fill(const BufferView& to, std::uint64_t bits) {
  check_view("fill", to, device_);
  const std::uint64_t bytes = to.bytes();
  if (bytes == 0) return;
  PlacementAccess::check("fill", fill_name, device_);
  to.storage->flush_readers();
  Recorder::check("fill", *core_);
  to.storage->before_write(*this);
  trace("fill on", device_, bytes);
  const auto pattern = std::as_bytes(std::span(&bits, 1)).first(dtype_size(to.dtype));  // little endian
  core_->submit(
      fill_name, [&](DriverQueue& driver) { driver.fill(to.storage->allocation(), to.byte_offset, bytes, pattern); },
      [&](const QueueUse& use) { to.storage->after_write(use); });
  if (Recorder* const recorder = Recorder::of_this_thread()) [[unlikely]]
    recorder->filled(to, pattern);
}

}  // namespace tessera
