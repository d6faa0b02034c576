// SPDX-License-Identifier: Apache-2.0
// Streams as immediate command lists, and events that can be recorded repeatedly. A Level Zero event is signalled until
// the host resets it, which is allowed only after all waits for it have completed. So each recording uses a new event.
// Command lists that signal the event or wait for it hold a reference until the command has completed.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "tessera/backend/oneapi/ze_objects.h"
#include "tessera/backend/stream/errors.h"

namespace tessera::oneapi {

using stream::Address;
using stream::Handle;

namespace {
constexpr std::uint32_t pool_events = 64;
constexpr std::size_t look_from = 8,  ///< number of retained events at which completed ones are released
    mark_from = 64;                   ///< number of waits since the last signal after which a signal is added
ZeStream& stream_of(Handle handle) { return *static_cast<ZeStream*>(handle); }
}  // namespace

// Events.

Code ZeDriver::acquire_event(std::shared_ptr<Event_>* event) {
  std::lock_guard guard(lock_);
  if (free_.empty()) {  // pools are never destroyed
    PoolDesc desc;
    desc.flags = pool_host_visible;
    desc.count = pool_events;
    Pool pool = nullptr;
    if (const Code code = call_.create_pool(context, &desc, 0, nullptr, &pool)) return code;
    for (std::uint32_t i = 0; i < pool_events; ++i) {
      EventDesc one;
      one.index = i;
      one.signal = one.wait = scope_host;  // "sufficient for device and host access"
      Event made = nullptr;
      const Code code = call_.create_event(pool, &one, &made);
      if (code == 0) free_.push_back(made);
      if (code != 0 && free_.empty()) return code;
      if (code != 0) break;
    }
  }
  const Event raw = free_.back();
  free_.pop_back();
  *event = std::shared_ptr<Event_>(raw, [this](Event e) { release_event(e); });
  return 0;
}
void ZeDriver::release_event(Event event) noexcept {
  try {
    if (call_.reset_event(event) != 0) return;  // the device is lost, so the event cannot be reused
    std::lock_guard guard(lock_);
    free_.push_back(event);
  } catch (...) {  // out of memory: the event is leaked
  }
}

Code ZeApi::create_event(Handle* event, bool blocking) const {
  *event = new ZeEvent{.blocking = blocking};
  return 0;
}
Code ZeApi::destroy_event(Handle event) const {
  delete static_cast<ZeEvent*>(event);
  return 0;
}
Code ZeApi::record_event(Handle handle, Handle stream) const {
  std::shared_ptr<Event_> fresh;
  if (const Code code = stream_of(stream).signal(call_, &fresh)) return code;
  auto& event = *static_cast<ZeEvent*>(handle);
  std::lock_guard guard(event.lock);
  event.event = std::move(fresh);
  event.driver = stream_of(stream).device->driver;
  return 0;
}
Code ZeApi::query_event(Handle handle) const {
  const auto [event, driver] = static_cast<ZeEvent*>(handle)->get();
  const Code code = event ? call_.query_event(event.get()) : 0;
  return code == oneapi::not_ready ? stream::not_ready : code;
}
Code ZeApi::synchronize_event(Handle handle) const {
  const auto [event, driver] = static_cast<ZeEvent*>(handle)->get();
  if (!event) return 0;
  if (!static_cast<ZeEvent*>(handle)->blocking) return call_.synchronize_event(event.get(), infinite_timeout);
  // Level Zero has no blocking waits, and zeEventHostSynchronize of Intel's driver polls. So this sleeps between
  // queries, each time for 3 % of the time since the start.
  using namespace std::chrono_literals;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const Code code = call_.query_event(event.get());
    if (code != oneapi::not_ready) return code;
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - start;
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(waited / 32, 20us, 1ms));
  }
}

// Streams.

Code ZeStream::begin(const LoaderFunctions& call) {
  if (written) return std::exchange(barrier, true) ? call.append_barrier(written, nullptr, 0, nullptr) : 0;
  if (!in_order && (unordered || adopted))
    if (const Code code = call.append_barrier(handle, nullptr, 0, nullptr)) return code;
  unordered = true;
  return 0;
}
void ZeStream::retain(const LoaderFunctions& call, std::shared_ptr<Event_> event, bool own) {
  retained.push_back({std::move(event), own});
  while (retained.size() >= look_from) {
    std::size_t first = 0;
    while (first < retained.size() && !retained[first].own) ++first;
    if (first == retained.size() || call.query_event(retained[first].event.get()) != 0) break;
    retained.erase(retained.begin(), retained.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  }
}
Code ZeStream::signal(const LoaderFunctions& call, std::shared_ptr<Event_>* event) {
  if (const Code code = device->driver->acquire_event(event)) return code;
  if (const Code code = call.append_barrier(handle, event->get(), 0, nullptr)) return code;
  unordered = false;
  retain(call, *event, true);
  return 0;
}

Code ZeApi::create_stream(Handle* stream) const {
  ZeDevice& device = here();
  QueueDesc desc;
  desc.ordinal = device.compute_group;
  desc.mode = queue_asynchronous;
  auto made = std::make_unique<ZeStream>();
  made->device = &device;
  made->in_order = device.driver->version >= in_order_version;
  if (made->in_order) desc.flags = queue_in_order;
  const Code code = call_.create_list(device.driver->context, device.handle, &desc, &made->handle);
  if (code == 0) *stream = made.release();
  return code;
}
Code ZeApi::destroy_stream(Handle handle) const {
  ZeStream& stream = stream_of(handle);
  const Code code = call_.destroy_list(stream.handle);
  // After a fault, some retained events are never signalled and must not be reused, so they are leaked.
  if (stream.retained.empty()) delete &stream;
  return code;
}
// The program's immediate list may be out-of-order, so barriers are inserted between commands.
Code ZeApi::adopt_stream(void* native, Handle* stream) const {
  auto made = std::make_unique<ZeStream>();
  made->device = &here();
  made->handle = static_cast<List>(native);
  made->adopted = true;
  *stream = made.release();
  return 0;
}
// The list still contains waits and signals. Their events are kept until these commands have completed.
void ZeApi::forget_stream(Handle handle) const {
  ZeStream* const stream = &stream_of(handle);
  ZeDevice& device = *stream->device;
  std::shared_ptr<Event_> end;
  if (stream->signal(call_, &end) != 0) return;  // the device is lost, so the events cannot be reused
  std::lock_guard guard(device.lock);
  device.forgotten.push_back(stream);
  std::erase_if(device.forgotten, [&](ZeStream* old) {
    if (call_.query_event(old->retained.back().event.get()) != 0) return false;
    delete old;
    return true;
  });
}
void* ZeApi::native_stream(Handle stream) const {
  stream_of(stream).unordered = true;  // the program may append commands
  return stream_of(stream).handle;
}
void* ZeApi::native_context(stream::Context context) const {
  return reinterpret_cast<ZeDevice*>(context)->driver->context;
}

Code ZeApi::synchronize_stream(Handle handle) const {
  ZeStream& stream = stream_of(handle);
  std::shared_ptr<Event_> end;
  Code code = 0;
  if (!stream.adopted && !stream.unordered && !stream.retained.empty() && stream.retained.back().own)
    end = stream.retained.back().event;  // no command follows the newest signal
  else
    code = stream.signal(call_, &end);
  if (code == 0) code = call_.synchronize_event(end.get(), infinite_timeout);
  if (code == 0) stream.retained.clear();
  return code;
}
Code ZeApi::stream_wait_event(Handle handle, Handle waited) const {
  ZeStream& stream = stream_of(handle);
  auto [event, driver] = static_cast<ZeEvent*>(waited)->get();
  if (!event) return 0;
  if (driver != stream.device->driver) return synchronize_event(waited);  // the event belongs to another context
  Event raw = event.get();
  if (const Code code = call_.append_wait(stream.handle, 1, &raw)) return code;
  stream.unordered = true;
  stream.retain(call_, std::move(event), false);
  std::shared_ptr<Event_> mark;
  if (stream.retained.size() >= mark_from && !stream.retained.back().own) {
    std::size_t waits = 0;
    for (auto it = stream.retained.rbegin(); it != stream.retained.rend() && !it->own; ++it) ++waits;
    if (waits >= mark_from) return stream.signal(call_, &mark);
  }
  return 0;
}

// Graphs. Commands are recorded into a separate list. Barriers between the commands make it in-order without flags that
// only newer versions have.

bool ZeApi::graphs() const { return here().driver->lists; }
Code ZeApi::begin_capture(Handle handle) const {
  ZeStream& stream = stream_of(handle);
  ListDesc desc;
  desc.ordinal = stream.device->compute_group;
  stream.barrier = false;
  return call_.create_closed_list(stream.device->driver->context, stream.device->handle, &desc, &stream.written);
}
Code ZeApi::end_capture(Handle handle, Handle* graph) const {
  const List list = std::exchange(stream_of(handle).written, nullptr);
  const Code code = call_.close_list(list);
  if (code == 0)
    *graph = list;
  else
    call_.destroy_list(list);
  return code;
}
void ZeApi::drop_capture(Handle handle) const {
  if (const List list = std::exchange(stream_of(handle).written, nullptr)) call_.destroy_list(list);
}
Code ZeApi::instantiate(Handle graph, Handle* executable) const {
  *executable = graph;
  return 0;
}
Code ZeApi::destroy_executable(Handle executable) const { return call_.destroy_list(static_cast<List>(executable)); }
Code ZeApi::launch_graph(Handle executable, Handle handle) const {
  ZeStream& stream = stream_of(handle);
  if (const Code code = stream.begin(call_)) return code;
  List list = static_cast<List>(executable);
  return call_.append_lists(stream.handle, 1, &list, nullptr, 0, nullptr);
}

// Copies and fills.

Code ZeApi::copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) const {
  if (const Code code = stream_of(stream).begin(call_)) return code;
  return call_.append_copy(stream_of(stream).target(), pointer_of(to), from, bytes, nullptr, 0, nullptr);
}
Code ZeApi::copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) const {
  if (const Code code = stream_of(stream).begin(call_)) return code;
  return call_.append_copy(stream_of(stream).target(), to, pointer_of(from), bytes, nullptr, 0, nullptr);
}
Code ZeApi::copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) const {
  return copy_to_device(to, pointer_of(from), bytes, stream);
}
// A context contains all devices of a driver. Devices that can access each other can use all memory of the context.
Code ZeApi::enable_peer(int ordinal, int peer_ordinal, stream::Context, bool* can) const {
  ZeDevice &here = device(ordinal), &peer = device(peer_ordinal);
  std::uint8_t answer = 0;
  if (here.driver == peer.driver)
    if (const Code code = call_.can_access_peer(here.handle, peer.handle, &answer)) return code;
  *can = answer != 0;
  return 0;
}
Code ZeApi::copy_from_peer(Address to, int, stream::Context, Address from, int, stream::Context, std::size_t bytes,
                           Handle stream) const {
  return copy_on_device(to, from, bytes, stream);
}
Code ZeApi::fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle stream) const {
  if (const Code code = stream_of(stream).begin(call_)) return code;
  return call_.append_fill(stream_of(stream).target(), pointer_of(to), &word, word_bytes, word_bytes * count, nullptr,
                           0, nullptr);
}

}  // namespace tessera::oneapi
