// SPDX-License-Identifier: Apache-2.0
// The in-order queue and its events.
#include <algorithm>
#include <cstring>

#include "tessera/backend/opencl/device.h"
#include "tessera/base/error.h"

namespace tessera::cl {

namespace {
// Uploads up to this size are copied aside so that the caller need not wait, into so many pieces of pinned memory.
constexpr std::size_t staged_upload = std::size_t{1} << 20, piece_bytes = 2 * staged_upload, most_pieces = 8,
                      piece_alignment = 64;

Memory memory_of(const Allocation& a) { return static_cast<Memory>(a.handle); }
bool on_host(const Allocation& a) { return a.handle == nullptr && a.host != nullptr; }
}  // namespace

// Events.

ClEvent::~ClEvent() { api().release_event(event_); }

bool ClEvent::done() {
  Code status = success;
  check(api().get_event_info(event_, event_status, sizeof status, &status, nullptr), "clGetEventInfo");
  return status <= 0;  // complete, or failed: wait() tells
}
bool ClEvent::succeeded() const noexcept {
  Code status = success;
  constexpr Code complete = 0;
  return api().get_event_info(event_, event_status, sizeof status, &status, nullptr) == success && status == complete;
}
void ClEvent::wait() {
  const Code waited = api().wait_events(1, &event_);
  Code status = success;
  if (api().get_event_info(event_, event_status, sizeof status, &status, nullptr) == success && status < 0)
    check(status, "a command", to_string(device_->facts.info.device));
  check(waited, "clWaitForEvents", to_string(device_->facts.info.device));
}

// Queue.

ClQueue::ClQueue(DeviceContext& device) : device_(device) {
  Code code = success;
  queue_ = api().create_queue(device.context, device.facts.id, 0, &code);
  check(code, "clCreateCommandQueue", to_string(device.facts.info.device));
}
ClQueue::~ClQueue() {
  if (owned_ || !pieces_.empty()) api().finish(queue_);  // what is staged is still being read
  launched_.clear();
  for (Piece& piece : pieces_)
    if (!piece.ordinary) device_.pinned.release(piece.host);
  if (owned_) api().release_queue(queue_);
}

void ClQueue::submitted(Event event) {
  if (!more_comes_) api().flush(queue_);
  std::lock_guard guard(lock_);
  ++submitted_;
  if (!event) return;
  launched_.push_back(std::make_unique<ClEvent>(event, &device_));
  if (launched_.size() < look_at_) return;
  std::erase_if(launched_, [](const auto& launch) { return launch->succeeded(); });
  look_at_ = std::max(least_looked_at, 2 * launched_.size());
}
std::byte* ClQueue::room(std::size_t bytes) {
  const auto fits = [&] { return piece_ < pieces_.size() && pieces_[piece_].used + bytes <= piece_bytes; };
  if (!fits() && !pieces_.empty()) {
    const std::size_t next = (piece_ + 1) % pieces_.size();
    const bool free = !pieces_[next].copied || pieces_[next].copied->done();
    if (!free && pieces_.size() < most_pieces) {
      pieces_.emplace(pieces_.begin() + static_cast<std::ptrdiff_t>(++piece_));
    } else {
      if (!free) pieces_[next].copied->wait();
      pieces_[next].copied.reset();
      pieces_[next].used = 0;
      piece_ = next;
    }
  }
  if (pieces_.empty()) pieces_.emplace_back();
  Piece& piece = pieces_[piece_];
  if (!piece.host) piece.host = device_.pinned.allocate(device_.context, device_.facts, piece_bytes);
  if (!piece.host) {
    piece.ordinary = std::make_unique_for_overwrite<std::byte[]>(piece_bytes);
    piece.host = piece.ordinary.get();
  }
  return piece.host + piece.used;
}
void ClQueue::check_launches() {
  std::vector<std::unique_ptr<ClEvent>> launched;
  {
    std::lock_guard guard(lock_);
    launched.swap(launched_);
    look_at_ = least_looked_at;
  }
  for (const auto& launch : launched)
    if (!launch->succeeded()) launch->wait();
}

void ClQueue::upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (on_host(to)) {
    finish();
    std::memcpy(to.host + offset, from, bytes);
    return;
  }
  if (bytes > staged_upload) {
    check(api().enqueue_write(queue_, memory_of(to), 1, offset, bytes, from, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
    return submitted();
  }
  std::byte* const aside = room(bytes);
  std::memcpy(aside, from, bytes);
  Event event = nullptr;
  check(api().enqueue_write(queue_, memory_of(to), 0, offset, bytes, aside, 0, nullptr, &event),
        "clEnqueueWriteBuffer");
  pieces_[piece_].copied = std::make_unique<ClEvent>(event, &device_);
  pieces_[piece_].used += (bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
  submitted();
}

void ClQueue::download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) {
  if (on_host(from)) {
    finish();
    std::memcpy(to, from.host + offset, bytes);
    return;
  }
  Code code = success;
  if (bytes != 0) code = api().enqueue_read(queue_, memory_of(from), 1, offset, bytes, to, 0, nullptr, nullptr);
  check_launches();  // first: they know better what went wrong
  check(code, "clEnqueueReadBuffer");
}

void ClQueue::copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
                   std::size_t bytes) {
  if (bytes == 0) return;
  const Api& cl = api();
  if (on_host(to) && on_host(from)) {
    finish();
    std::memmove(to.host + to_offset, from.host + from_offset, bytes);
    return;
  }
  if (on_host(from)) {  // pinned memory stays as it is until its owner has waited
    check(cl.enqueue_write(queue_, memory_of(to), 0, to_offset, bytes, from.host + from_offset, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  } else if (on_host(to)) {
    check(cl.enqueue_read(queue_, memory_of(from), 0, from_offset, bytes, to.host + to_offset, 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
  } else if (to.handle == from.handle && to_offset < from_offset + bytes && from_offset < to_offset + bytes) {
    // OpenCL refuses to copy within overlapping ranges: by way of a third one.
    if (to_offset == from_offset) return;
    Code code = success;
    const std::shared_ptr<Memory_> between(cl.create_buffer(device_.context, mem_read_write, bytes, nullptr, &code),
                                           [](Memory m) {
                                             if (m) api().release_memory(m);
                                           });
    check(code, "clCreateBuffer");
    check(cl.enqueue_copy(queue_, memory_of(from), between.get(), from_offset, 0, bytes, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
    submitted();
    check(cl.enqueue_copy(queue_, between.get(), memory_of(to), 0, to_offset, bytes, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
    submitted();
    return;
  } else {
    check(cl.enqueue_copy(queue_, memory_of(from), memory_of(to), from_offset, to_offset, bytes, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
  }
  submitted();
}

void ClQueue::fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) {
  if (bytes == 0) return;
  if (on_host(to)) {
    finish();
    for (std::size_t i = 0; i < bytes; ++i) to.host[offset + i] = pattern[i % pattern.size()];
    return;
  }
  check(api().enqueue_fill(queue_, memory_of(to), pattern.data(), pattern.size(), offset, bytes, 0, nullptr, nullptr),
        "clEnqueueFillBuffer");
  submitted();
}

void ClQueue::launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) {
  Event event = nullptr;
  static_cast<ClKernel&>(kernel).enqueue(queue_, shape, arguments, &event);
  submitted(event);
}

std::shared_ptr<DriverEvent> ClQueue::record() {
  {
    std::lock_guard guard(lock_);
    if (owned_ && submitted_ == finished_) return nullptr;  // into another's, work comes without our knowing
  }
  Event event = nullptr;
  check(api().enqueue_marker(queue_, 0, nullptr, &event), "clEnqueueMarkerWithWaitList");
  api().flush(queue_);  // another queue may wait for it
  return std::make_shared<ClEvent>(event, &device_);
}

void ClQueue::wait(DriverEvent& event) {
  auto& other = static_cast<ClEvent&>(event);
  if (other.device() != &device_) return other.wait();  // of another context: only the host can wait for both
  const Event raw = other.get();
  check(api().enqueue_barrier(queue_, 1, &raw, nullptr), "clEnqueueBarrierWithWaitList");
  submitted();
}

void ClQueue::with_native(const std::function<void(void*)>& use) {
  try {
    use(queue_);
  } catch (...) {
    submitted();  // it may have put something in
    throw;
  }
  submitted();
}

void ClQueue::together(const std::function<void()>& put) {
  more_comes_ = true;
  try {
    put();
  } catch (...) {
    more_comes_ = false;
    api().flush(queue_);
    throw;
  }
  more_comes_ = false;
  api().flush(queue_);
}

void ClQueue::finish() {
  std::uint64_t before;
  {
    std::lock_guard guard(lock_);
    before = submitted_;
  }
  const Code code = api().finish(queue_);
  check_launches();  // first: they know better what went wrong
  check(code, "clFinish", to_string(device_.facts.info.device));
  std::lock_guard guard(lock_);
  finished_ = std::max(finished_, before);
}

}  // namespace tessera::cl
