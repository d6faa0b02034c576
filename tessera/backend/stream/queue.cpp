// SPDX-License-Identifier: Apache-2.0
// The in-order queue. It consists of one stream, and of pinned memory for uploads and downloads.
#include <algorithm>
#include <cstring>
#include <functional>

#include "tessera/backend/stream/device.h"
#include "tessera/base/error.h"
#include "tessera/device/driver.h"

namespace tessera::stream {

namespace {
Address address_of(const Allocation& a, std::size_t offset) {
  return reinterpret_cast<std::uintptr_t>(a.handle) + offset;
}
bool on_host(const Allocation& a) { return a.handle == nullptr && a.host != nullptr; }
}  // namespace

// Staging. Uploads and small downloads are staged in pinned memory, because drivers do not define how they copy
// pageable memory. According to CUDA's "API synchronization behavior", an asynchronous copy from pageable memory may
// return before the memory was read, or wait for the whole stream. According to HIP's documentation, it may pin the
// pages.

Staging::Chunk* Staging::room(std::size_t bytes, Handle stream) {
  if (at_ < chunks_.size() && chunks_[at_].used + bytes <= chunk_bytes) return &chunks_[at_];
  const Api& api = device_.api();
  if (at_ < chunks_.size()) {  // the chunk is full; it can be reused when its copies have completed
    const Handle event = device_.acquire_event();
    chunks_[at_].copied = std::make_unique<StreamEvent>(event, device_);
    device_.check(api.record_event(event, stream), "recording an event");
    at_ = (at_ + 1) % chunks;
  }
  if (at_ == chunks_.size()) {
    void* host = nullptr;
    const Code code = api.allocate_pinned(&host, chunk_bytes);
    if (api.fault_of(code) == Fault::memory) {
      if (chunks_.empty()) return nullptr;
      at_ = 0;
    } else {
      device_.check(code, "allocating pinned memory");
      chunks_.push_back({static_cast<std::byte*>(host), 0, nullptr});
    }
  }
  Chunk& chunk = chunks_[at_];
  if (chunk.copied) device_.check(device_.wait_for(chunk.copied->get()), "waiting for an upload");
  chunk.copied.reset();
  chunk.used = 0;
  return &chunk;
}

void Staging::take(Chunk& chunk, std::size_t bytes) {
  chunk.used = std::min(chunk_bytes, (chunk.used + bytes + alignment - 1) / alignment * alignment);
}

void Staging::upload(Address to, const std::byte* from, std::size_t bytes, Handle stream) {
  const Api& api = device_.api();
  while (bytes > 0) {
    Chunk* chunk = room(1, stream);
    if (!chunk) {  // pinned memory ran out, so this copies from the caller's memory and waits
      device_.check(api.copy_to_device(to, from, bytes, stream), "copying to the device");
      device_.check(device_.wait_for_stream(stream), "copying to the device");
      return;
    }
    const std::size_t part = std::min(bytes, chunk_bytes - chunk->used);
    std::memcpy(chunk->host + chunk->used, from, part);
    device_.check(api.copy_to_device(to, chunk->host + chunk->used, part, stream), "copying to the device");
    take(*chunk, part);
    to += part, from += part, bytes -= part;
  }
}

const std::byte* Staging::download(Address from, std::size_t bytes, Handle stream) {
  Chunk* const chunk = bytes <= chunk_bytes ? room(bytes, stream) : nullptr;
  if (!chunk) return nullptr;
  std::byte* const to = chunk->host + chunk->used;
  device_.check(device_.api().copy_to_host(to, from, bytes, stream), "copying to the host");
  take(*chunk, bytes);
  return to;
}

void Staging::drained() noexcept {
  for (Chunk& chunk : chunks_) {
    chunk.used = 0;
    chunk.copied.reset();
  }
  at_ = 0;
}
void Staging::release() noexcept {
  for (Chunk& chunk : chunks_) device_.api().release_pinned(chunk.host);
  chunks_.clear();
  at_ = 0;
}

// Queue.

StreamQueue::StreamQueue(DeviceContext& device) : device_(device), staging_(device) {
  const ContextScope in(device_);
  device_.check(device_.api().create_stream(&stream_), "creating a stream");
}
StreamQueue::StreamQueue(DeviceContext& device, void* native)
    : device_(device), staging_(device), owned_(false), busy_(true) {
  const ContextScope in(device_);
  device_.check(device_.api().adopt_stream(native, &stream_), "wrapping the program's stream");
}
StreamQueue::~StreamQueue() {
  try {
    const ContextScope in(device_);
    if (owned_ || !staging_.empty()) device_.wait_for_stream(stream_);  // staged data is still being read
    staging_.release();
    if (owned_)
      device_.api().destroy_stream(stream_);
    else
      device_.api().forget_stream(stream_);
  } catch (...) {  // the device is lost, so there is no stream to destroy
  }
}

void StreamQueue::synchronize(const char* doing) {
  device_.check(device_.wait_for_stream(stream_), doing);
  staging_.drained();
  busy_ = !owned_;  // other code may submit work to the user's stream
}

void StreamQueue::upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const ContextScope in(device_);
  if (on_host(to)) {
    synchronize("waiting for the stream");
    std::memcpy(to.host + offset, from, bytes);
    return;
  }
  busy_ = true;
  staging_.upload(address_of(to, offset), static_cast<const std::byte*>(from), bytes, stream_);
}

void StreamQueue::download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) {
  const ContextScope in(device_);
  if (on_host(from)) {
    synchronize("waiting for the stream");
    if (bytes != 0) std::memcpy(to, from.host + offset, bytes);
    return;
  }
  if (bytes == 0) return synchronize("waiting for the stream");
  busy_ = true;
  const Address source = address_of(from, offset);
  // A copy to pageable memory waits in the driver for all earlier work, usually by polling. In this case, this copies
  // to pinned memory, or waits before the copy.
  const Api& api = device_.api();
  const std::byte* const staged = api.waits_block() ? nullptr : staging_.download(source, bytes, stream_);
  if (!staged) {
    if (!api.waits_block()) synchronize("copying to the host");
    device_.check(api.copy_to_host(to, source, bytes, stream_), "copying to the host");
  }
  synchronize("copying to the host");
  if (staged) std::memcpy(to, staged, bytes);
}

void StreamQueue::copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
                       std::size_t bytes) {
  if (bytes == 0) return;
  const Address to_address = address_of(to, to_offset), from_address = address_of(from, from_offset);
  const bool on_device = !on_host(to) && !on_host(from),
             apart = to_address >= from_address + bytes || from_address >= to_address + bytes;
  const ContextScope in(device_, on_device && apart ? ContextScope::enqueuing : ContextScope::anything);
  const Api& api = device_.api();
  if (on_host(to) && on_host(from)) {
    synchronize("waiting for the stream");
    std::memmove(to.host + to_offset, from.host + from_offset, bytes);
    return;
  }
  busy_ = true;
  if (on_host(from)) {  // the caller does not modify pinned memory before the copy has completed
    device_.check(api.copy_to_device(address_of(to, to_offset), from.host + from_offset, bytes, stream_),
                  "copying to the device");
  } else if (on_host(to)) {
    device_.check(api.copy_to_host(to.host + to_offset, address_of(from, from_offset), bytes, stream_),
                  "copying to the host");
  } else {
    if (!apart) return copy_overlapping(to_address, from_address, bytes);
    device_.check(api.copy_on_device(to_address, from_address, bytes, stream_), "copying on the device");
  }
}

void StreamQueue::copy_from(DriverDevice& owner, const Allocation& to, std::size_t to_offset, const Allocation& from,
                            std::size_t from_offset, std::size_t bytes) {
  if (bytes == 0) return;
  const DeviceContext& peer = static_cast<StreamDevice&>(owner).context();
  const ContextScope in(device_);
  busy_ = true;
  device_.check(
      device_.api().copy_from_peer(address_of(to, to_offset), device_.facts.ordinal, device_.context,
                                   address_of(from, from_offset), peer.facts.ordinal, peer.context, bytes, stream_),
      "copying from another device");
}

// Drivers do not define copies between overlapping ranges. If the distance between the ranges is large enough, copies
// pieces of this size, in an order in which no piece overwrites data that has not been copied. Otherwise copies through
// a temporary buffer.
void StreamQueue::copy_overlapping(Address to, Address from, std::size_t bytes) {
  if (to == from) return;
  const Api& api = device_.api();
  const std::size_t apart = to > from ? to - from : from - to;
  if (bytes / apart <= 16) {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t part = std::min(apart, bytes - done);
      const std::size_t at = to < from ? done : bytes - done - part;
      device_.check(api.copy_on_device(to + at, from + at, part, stream_), "copying on the device");
      done += part;
    }
    return;
  }
  Address between = 0;
  device_.check(api.allocate(&between, bytes), "allocating a temporary buffer");
  Code code = api.copy_on_device(between, from, bytes, stream_);
  if (code == success) code = api.copy_on_device(to, between, bytes, stream_);
  if (code == success) code = device_.wait_for_stream(stream_);
  api.release(between);
  device_.check(code, "copying on the device");
}

void StreamQueue::fill(const Allocation& to, std::size_t offset, std::size_t bytes,
                       std::span<const std::byte> pattern) {
  if (bytes == 0) return;
  const ContextScope in(device_, on_host(to) ? ContextScope::anything : ContextScope::enqueuing);
  if (on_host(to)) {
    synchronize("waiting for the stream");
    for (std::size_t i = 0; i < bytes; ++i) to.host[offset + i] = pattern[i % pattern.size()];
    return;
  }
  busy_ = true;
  std::uint64_t word = 0;
  std::memcpy(&word, pattern.data(), std::min(pattern.size(), sizeof word));
  unsigned size = static_cast<unsigned>(pattern.size());
  if (size == 8 && word >> 32 == (word & 0xffffffff)) size = 4;
  if (size == 8) return fill_pairs(address_of(to, offset), bytes, word);
  device_.check(
      device_.api().fill(address_of(to, offset), static_cast<std::uint32_t>(word), size, bytes / size, stream_),
      "filling");
}

// No driver can fill with 8-byte patterns. So this fills the first 8 bytes in two halves, and then repeatedly copies
// the filled part to the memory behind it.
void StreamQueue::fill_pairs(Address to, std::size_t bytes, std::uint64_t pattern) {
  const Api& api = device_.api();
  device_.check(api.fill(to, static_cast<std::uint32_t>(pattern), 4, 1, stream_), "filling");
  device_.check(api.fill(to + 4, static_cast<std::uint32_t>(pattern >> 32), 4, 1, stream_), "filling");
  for (std::size_t done = 8; done < bytes;) {
    const std::size_t part = std::min(done, bytes - done);
    device_.check(api.copy_on_device(to + done, to, part, stream_), "filling");
    done += part;
  }
}

void StreamQueue::launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape,
                         std::span<const Argument> arguments) {
  auto& known = static_cast<StreamKernel&>(kernel);
  const ContextScope in(device_, known.launching());
  busy_ = true;
  known.enqueue(stream_, shape, arguments);
}

std::shared_ptr<DriverEvent> StreamQueue::record() {
  if (!busy_) return nullptr;
  const ContextScope in(device_);
  auto event = std::make_shared<StreamEvent>(device_.acquire_event(), device_);
  device_.check(device_.api().record_event(event->get(), stream_), "recording an event");
  return event;
}

// The stream waits for the most recent recording, even if the event is recorded again later.
void StreamQueue::wait(DriverEvent& event) {
  const ContextScope in(device_);
  busy_ = true;
  device_.check(device_.api().stream_wait_event(stream_, static_cast<StreamEvent&>(event).get()),
                "waiting for another stream");
}

void StreamQueue::with_native(const std::function<void(void*)>& use) {
  const ContextScope in(device_);
  struct Afterwards {  // `use` may synchronise the stream, and submit work after that
    bool& busy;
    ~Afterwards() { busy = true; }
  } const afterwards{busy_};
  use(device_.api().native_stream(stream_));
}

void StreamQueue::finish() {
  const ContextScope in(device_);
  synchronize("waiting for the stream");
}

}  // namespace tessera::stream
