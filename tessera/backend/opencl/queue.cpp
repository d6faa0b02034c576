// SPDX-License-Identifier: Apache-2.0
// The in-order queue and its events.
#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "tessera/backend/opencl/device.h"
#include "tessera/base/error.h"
#include "tessera/device/driver.h"

namespace tessera::cl {

namespace {
// Uploads up to `staged_upload` bytes are copied to a staging buffer, so that the caller does not wait. There are at
// most `most_pieces` staging buffers.
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
  return status <= 0;  // complete or failed; wait() reports the error
}
Code ClEvent::status() const noexcept {
  Code status = success;
  const Code asked = api().get_event_info(event_, event_status, sizeof status, &status, nullptr);
  return asked == success ? status : asked;
}
void ClEvent::wait_end() const {
  const Code waited = api().wait_events(1, &event_);
  if (waited != success && status() > 0) check(waited, "clWaitForEvents", to_string(device_->facts.info.device));
}
void ClEvent::tell() const {
  if (const Code code = status(); code < 0) check(code, "a command", to_string(device_->facts.info.device));
}
void ClEvent::wait_for_all(bool tell_now) {
  const Code waited = api().wait_events(1, &event_);
  const bool reported = before_ && before_->settle(number_, tell_now);  // checked first, because earlier errors are
                                                                        // more specific
  if (reported && status() == failed_before) return;
  tell();
  check(waited, "clWaitForEvents", to_string(device_->facts.info.device));
}

// Commands that may have failed.

void UncheckedCommands::add(std::uint64_t number, std::shared_ptr<ClEvent> command) {
  std::lock_guard guard(lock_);
  commands_.push_back({number, std::move(command)});
  if (commands_.size() < look_at_) return;
  std::erase_if(commands_, [](const Command& c) { return c.event->status() == success; });
  look_at_ = std::max(least_looked_at, 2 * commands_.size());
}
bool UncheckedCommands::settle(std::uint64_t number, bool tell) {
  for (;;) {
    std::shared_ptr<ClEvent> running, failed;
    bool reported = false;
    {
      std::lock_guard guard(lock_);
      const auto past = std::ranges::upper_bound(commands_, number, {}, &Command::number);
      const auto gone = std::remove_if(commands_.begin(), past, [&](const Command& c) {
        const Code status = c.event->status();
        if (status > 0)
          running = c.event;
        else if (status < 0 && c.number <= reported_)
          reported = true;
        else if (status < 0 && !failed)
          failed = c.event;
        return status == success;
      });
      commands_.erase(gone, past);
      if (failed && tell) reported_ = std::max(reported_, number);
    }
    if (failed) failed->tell();
    if (!running) return reported;
    running->wait_end();  // the lock is not held, because the wait may take long
  }
}

// Queue.

ClQueue::ClQueue(DeviceContext& device) : device_(device) {
  Code code = success;
  queue_ = api().create_queue(device.context, device.facts.id, 0, &code);
  check(code, "clCreateCommandQueue", to_string(device.facts.info.device));
}
ClQueue::~ClQueue() {
  if (owned_ || !pieces_.empty()) api().finish(queue_);  // staged data is still being read
  for (Piece& piece : pieces_)
    if (!piece.ordinary) device_.pinned.release(piece.host);
  if (owned_) api().release_queue(queue_);
}

void ClQueue::submitted(std::shared_ptr<ClEvent> command) {
  if (!more_comes_) api().flush(queue_);
  std::lock_guard guard(lock_);
  ++submitted_;
  if (command) unproven_->add(submitted_, std::move(command));
}
void ClQueue::watch(Event event) {
  if (!event) return;
  std::lock_guard guard(lock_);
  unproven_->add(submitted_, command(event));
}
std::byte* ClQueue::room(std::size_t bytes) {
  const auto fits = [&] { return piece_ < pieces_.size() && pieces_[piece_].used + bytes <= piece_bytes; };
  if (!fits() && !pieces_.empty()) {
    const std::size_t next = (piece_ + 1) % pieces_.size();
    // Errors of the upload are reported by waits. Here it only matters that the upload has ended.
    const bool free = !pieces_[next].copied || pieces_[next].copied->status() <= 0;
    if (!free && pieces_.size() < most_pieces) {
      pieces_.emplace(pieces_.begin() + static_cast<std::ptrdiff_t>(++piece_));
    } else {
      if (!free) pieces_[next].copied->wait_end();
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
void ClQueue::check_commands(bool tell) {
  std::shared_ptr<UncheckedCommands> unproven;
  std::uint64_t upto;
  {
    std::lock_guard guard(lock_);
    unproven = unproven_;
    upto = submitted_;
  }
  try {
    unproven->settle(upto, tell);
  } catch (...) {
    auto fresh = std::make_shared<UncheckedCommands>();  // earlier events still refer to the old list
    std::lock_guard guard(lock_);
    unproven_ = std::move(fresh);
    throw;
  }
}

void ClQueue::upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (on_host(to)) {
    empty(true);
    std::memcpy(to.host + offset, from, bytes);
    return;
  }
  if (bytes > staged_upload) {
    const Code code = api().enqueue_write(queue_, memory_of(to), 1, offset, bytes, from, 0, nullptr, nullptr);
    if (code == failed_before) check_commands(true);  // earlier errors are more specific
    check(code, "clEnqueueWriteBuffer");
    return submitted();
  }
  std::byte* const aside = room(bytes);
  std::memcpy(aside, from, bytes);
  Event event = nullptr;
  check(api().enqueue_write(queue_, memory_of(to), 0, offset, bytes, aside, 0, nullptr, &event),
        "clEnqueueWriteBuffer");
  const auto copied = command(event);
  pieces_[piece_].copied = copied;
  pieces_[piece_].used += (bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
  submitted(copied);
}

void ClQueue::download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) {
  if (on_host(from)) {
    empty(true);
    std::memcpy(to, from.host + offset, bytes);
    return;
  }
  Code code = success;
  if (bytes != 0) code = api().enqueue_read(queue_, memory_of(from), 1, offset, bytes, to, 0, nullptr, nullptr);
  check_commands(true);  // checked first, because earlier errors are more specific
  check(code, "clEnqueueReadBuffer");
}

void ClQueue::copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
                   std::size_t bytes) {
  if (bytes == 0) return;
  const Api& cl = api();
  if (on_host(to) && on_host(from)) {
    empty(true);
    std::memmove(to.host + to_offset, from.host + from_offset, bytes);
    return;
  }
  Event event = nullptr;
  if (on_host(from)) {  // the caller does not modify pinned memory before the copy has completed
    check(cl.enqueue_write(queue_, memory_of(to), 0, to_offset, bytes, from.host + from_offset, 0, nullptr, &event),
          "clEnqueueWriteBuffer");
  } else if (on_host(to)) {
    check(cl.enqueue_read(queue_, memory_of(from), 0, from_offset, bytes, to.host + to_offset, 0, nullptr, &event),
          "clEnqueueReadBuffer");
  } else if (to.handle == from.handle && to_offset < from_offset + bytes && from_offset < to_offset + bytes) {
    // OpenCL rejects copies between overlapping ranges, so the data is copied through a temporary buffer.
    if (to_offset == from_offset) return;
    Code code = success;
    const std::shared_ptr<Memory_> between(cl.create_buffer(device_.context, mem_read_write, bytes, nullptr, &code),
                                           [](Memory m) {
                                             if (m) api().release_memory(m);
                                           });
    check(code, "clCreateBuffer");
    check(cl.enqueue_copy(queue_, memory_of(from), between.get(), from_offset, 0, bytes, 0, nullptr, &event),
          "clEnqueueCopyBuffer");
    submitted(command(event));
    event = nullptr;
    check(cl.enqueue_copy(queue_, between.get(), memory_of(to), 0, to_offset, bytes, 0, nullptr, &event),
          "clEnqueueCopyBuffer");
  } else {
    check(cl.enqueue_copy(queue_, memory_of(from), memory_of(to), from_offset, to_offset, bytes, 0, nullptr, &event),
          "clEnqueueCopyBuffer");
  }
  submitted(command(event));
}

void ClQueue::fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) {
  if (bytes == 0) return;
  if (on_host(to)) {
    empty(true);
    for (std::size_t i = 0; i < bytes; ++i) to.host[offset + i] = pattern[i % pattern.size()];
    return;
  }
  Event event = nullptr;
  check(api().enqueue_fill(queue_, memory_of(to), pattern.data(), pattern.size(), offset, bytes, 0, nullptr, &event),
        "clEnqueueFillBuffer");
  submitted(command(event));
}

void ClQueue::launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) {
  Event event = nullptr;
  static_cast<ClKernel&>(kernel).enqueue(queue_, shape, arguments, &event);
  submitted(command(event));
}

std::shared_ptr<DriverEvent> ClQueue::record() {
  std::shared_ptr<UncheckedCommands> before;
  std::uint64_t upto;
  {
    std::lock_guard guard(lock_);
    if (owned_ && submitted_ == finished_) return nullptr;  // other code may have submitted work to the user's queue
    before = unproven_;
    upto = submitted_;
  }
  Event event = nullptr;
  check(api().enqueue_marker(queue_, 0, nullptr, &event), "clEnqueueMarkerWithWaitList");
  api().flush(queue_);  // another queue may wait for this event
  return std::make_shared<ClEvent>(event, &device_, std::move(before), upto);
}

void ClQueue::wait(DriverEvent& event) {
  auto& other = static_cast<ClEvent&>(event);
  // If the event is from another context, the host must wait.
  if (other.device() != &device_) return other.wait_and_throw();
  const Event raw = other.get();
  check(api().enqueue_barrier(queue_, 1, &raw, nullptr), "clEnqueueBarrierWithWaitList");
  submitted();
}

void ClQueue::with_native(const std::function<void(void*)>& use) {
  try {
    use(queue_);
  } catch (...) {
    submitted();  // the callback may have submitted work
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

void ClQueue::empty(bool tell) {
  std::uint64_t before;
  {
    std::lock_guard guard(lock_);
    before = submitted_;
  }
  const Code code = api().finish(queue_);
  check_commands(tell);  // checked first, because earlier errors are more specific
  check(code, "clFinish", to_string(device_.facts.info.device));
  std::lock_guard guard(lock_);
  finished_ = std::max(finished_, before);
}

}  // namespace tessera::cl
