// SPDX-License-Identifier: Apache-2.0
// Streams (command queues) and events. Kernels and copies are encoded into a command buffer. It is committed before a
// wait, or when it contains `longest` commands. Buffers are shared by several commands because creating a buffer costs
// as much as several launches.
#include <algorithm>
#include <mutex>

#include "tessera/backend/metal/metal_api.h"

namespace tessera::metal {

using stream::Handle;

namespace {
constexpr unsigned longest = 64;      ///< maximum number of commands in a buffer
constexpr std::size_t look_from = 8,  ///< number of committed buffers at which completed ones are released
    wait_from = 48;                   ///< a queue with 64 buffers blocks the caller (MTLCommandQueue)
MetalStream& stream_of(Handle handle) { return *static_cast<MetalStream*>(handle); }
}  // namespace

// Encoding.

Id MetalApi::writing(MetalStream& stream) const {
  if (!stream.buffer) {
    const Id made = runtime_.send<Id>(stream.queue.get(), runtime_.selectors.command_buffer);
    if (made == nullptr) return nullptr;
    stream.buffer = Owned::retained(runtime_, made);
    stream.commands = 0;
  }
  return stream.buffer.get();
}
Id MetalApi::encoder(MetalStream& stream, bool computes) const {
  if (stream.encoder && stream.computes == computes) return stream.encoder.get();
  end_encoder(stream);
  const Id buffer = writing(stream);
  if (buffer == nullptr) return nullptr;
  const Id made =
      runtime_.send<Id>(buffer, computes ? runtime_.selectors.compute_encoder : runtime_.selectors.blit_encoder);
  if (made == nullptr) return nullptr;
  stream.encoder = Owned::retained(runtime_, made);
  stream.computes = computes;
  return made;
}
void MetalApi::end_encoder(MetalStream& stream) const {
  if (!stream.encoder) return;
  runtime_.send(stream.encoder.get(), runtime_.selectors.end_encoding);
  stream.encoder = Owned();
}
void MetalApi::commit(MetalStream& stream) const {
  if (!stream.buffer) return;
  end_encoder(stream);
  runtime_.send(stream.buffer.get(), runtime_.selectors.commit);
  stream.committed.push_back(std::move(stream.buffer));
  stream.buffer = Owned();
}
void MetalApi::count_command(MetalStream& stream) const {
  if (++stream.commands < longest) return;
  commit(stream);
  if (stream.committed.size() >= wait_from)
    runtime_.send(stream.committed[stream.committed.size() / 2].get(), runtime_.selectors.wait_completed);
}

/// Releases committed buffers that have completed, and returns the first failure among them.
Code MetalApi::retire_completed(MetalStream& stream, bool all) const {
  if (!all && stream.committed.size() < look_from) return 0;
  std::size_t done = 0;
  Code code = 0;
  while (done < stream.committed.size() && code == 0) {
    code = code_of(stream.committed[done].get());
    if (code == 0) ++done;
  }
  stream.committed.erase(stream.committed.begin(), stream.committed.begin() + static_cast<std::ptrdiff_t>(done));
  return code == not_ready ? 0 : code;
}

// Streams.

Code MetalApi::create_stream(Handle* stream) const {
  const Pool pool(runtime_);
  MetalDevice& device = current_metal_device();
  auto made = std::make_unique<MetalStream>();
  made->device = &device;
  made->queue = Owned(runtime_, runtime_.send<Id>(device.device, runtime_.selectors.new_queue));
  if (!made->queue) return out_of_memory;
  *stream = made.release();
  return 0;
}
Code MetalApi::destroy_stream(Handle stream) const {
  const Pool pool(runtime_);
  end_encoder(stream_of(stream));  // an encoder must end before it is released
  delete &stream_of(stream);
  return 0;
}
Code MetalApi::adopt_stream(void* native, Handle* stream) const {
  const Pool pool(runtime_);
  auto made = std::make_unique<MetalStream>();
  made->device = &current_metal_device();
  made->queue = Owned::retained(runtime_, native);
  made->shared = true;
  *stream = made.release();
  return 0;
}
void MetalApi::forget_stream(Handle stream) const {
  const Pool pool(runtime_);
  commit(stream_of(stream));
  delete &stream_of(stream);
}
void* MetalApi::native_stream(Handle stream) const {
  const Pool pool(runtime_);
  commit(stream_of(stream));  // before the user's own work
  stream_of(stream).shared = true;
  return stream_of(stream).queue.get();
}
Code MetalApi::synchronize_stream(Handle handle) const {
  const Pool pool(runtime_);
  MetalStream& stream = stream_of(handle);
  // Waiting for an empty buffer also waits for the program's own work.
  if (stream.shared && writing(stream) == nullptr) return out_of_memory;
  commit(stream);
  if (stream.committed.empty()) return 0;
  runtime_.send(stream.committed.back().get(), runtime_.selectors.wait_completed);
  return retire_completed(stream, true);
}
Code MetalApi::stream_wait_event(Handle handle, Handle waited) const {
  const Pool pool(runtime_);
  MetalStream& stream = stream_of(handle);
  auto& event = *static_cast<MetalEvent*>(waited);
  std::lock_guard guard(event.lock);
  if (!event.buffer) return 0;
  // A failed buffer never signals its event, so a wait for the event would never end.
  if (const Code code = code_of(event.buffer.get()); code != not_ready) return code;
  end_encoder(stream);
  const Id buffer = writing(stream);
  if (buffer == nullptr) return out_of_memory;
  runtime_.send(buffer, runtime_.selectors.wait_event, event.event.get(), event.value);
  count_command(stream);
  return 0;
}

// An event is a counter that a command buffer sets. Its state is read from the command buffer, which also stores
// errors. All waits for command buffers block.

Code MetalApi::create_event(Handle* event, bool) const {
  const Pool pool(runtime_);
  auto made = std::make_unique<MetalEvent>();
  made->event = Owned(runtime_, runtime_.send<Id>(current_metal_device().device, runtime_.selectors.new_shared_event));
  if (!made->event) return out_of_memory;
  made->device = &current_metal_device();
  *event = made.release();
  return 0;
}
Code MetalApi::destroy_event(Handle event) const {
  const Pool pool(runtime_);
  delete static_cast<MetalEvent*>(event);
  return 0;
}
Code MetalApi::record_event(Handle handle, Handle stream_handle) const {
  const Pool pool(runtime_);
  MetalStream& stream = stream_of(stream_handle);
  auto& event = *static_cast<MetalEvent*>(handle);
  std::lock_guard guard(event.lock);
  end_encoder(stream);
  const Id buffer = writing(stream);
  if (buffer == nullptr) return out_of_memory;
  runtime_.send(buffer, runtime_.selectors.signal_event, event.event.get(), ++event.value);
  event.buffer = Owned::retained(runtime_, buffer);
  commit(stream);
  return retire_completed(stream, false);
}
Code MetalApi::query_event(Handle handle) const {
  const Pool pool(runtime_);
  auto& event = *static_cast<MetalEvent*>(handle);
  std::lock_guard guard(event.lock);
  return event.buffer ? code_of(event.buffer.get()) : 0;
}
Code MetalApi::synchronize_event(Handle handle) const {
  const Pool pool(runtime_);
  auto& event = *static_cast<MetalEvent*>(handle);
  Owned buffer;
  {
    std::lock_guard guard(event.lock);
    if (!event.buffer) return 0;
    buffer = Owned::retained(runtime_, event.buffer.get());
  }
  runtime_.send(buffer.get(), runtime_.selectors.wait_completed);
  return code_of(buffer.get());
}

}  // namespace tessera::metal
