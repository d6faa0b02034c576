// SPDX-License-Identifier: Apache-2.0
// Streams (implemented as threads), events, and the order between them.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "tests/drivers/machine.h"

namespace tessera::fake {

Code Machine::create_stream(Context& context, bool blocking, Stream** out) {
  auto* stream = new Stream{Handle{.kind = Kind::stream, .context = &context}};
  {
    std::lock_guard hold(lock_);
    stream->id = ++streams_;
    stream->blocking = blocking;
    stream->random.seed(settings_.seed * 7919 + stream->id);
    keep(stream);
    context.streams.push_back(stream);
  }
  std::thread([this, stream] { serve(*stream); }).detach();
  *out = stream;
  return ok;
}

Stream* Machine::stream_of(Context& context, void* handle, Code* code, bool of_this_context) {
  std::lock_guard hold(lock_);
  *code = ok;
  if (handle == nullptr) return context.null_stream;
  auto* stream = static_cast<Stream*>(handle_of(handle, Kind::stream, code));
  if (stream == nullptr) return nullptr;
  if (of_this_context && stream->context != &context) {
    *code = breach_locked("the stream belongs to device " + std::to_string(stream->context->device) + ", and device " +
                              std::to_string(context.device) + " is current",
                          invalid_handle);
    return nullptr;
  }
  return stream;
}

Code Machine::destroy(Stream* stream) {
  {
    std::lock_guard hold(lock_);
    if (stream->capture != nullptr && stream->capturer != 0)
      breach_locked("a stream is destroyed while it is captured", ok);
    if (stream->context->sticky == ok && stream->context->deferred == ok) {
      if (stream->completed < stream->submitted)
        breach_locked("a stream is destroyed with work in it", ok);
      else if (host_clock_[stream->id] < stream->submitted)
        breach_locked("a stream is destroyed before the host has waited for its work", ok);
    }
    stream->live = false;
    std::erase(stream->context->streams, stream);
    std::erase(global_captures_, stream);
  }
  changed_.notify_all();
  return ok;
}

bool Machine::ready(const Stream& stream) const {
  if (held_ || stream.work.empty()) return false;
  for (const auto& [other, sequence] : stream.work.front().after)
    if (other->completed < sequence) return false;
  return true;
}

/// Runs a work item. If kernels have a duration on this device, they run one at a time.
Code Machine::run(const Work& work, int device) {
  const std::size_t d = static_cast<std::size_t>(device);
  if (work.module == nullptr || d >= settings_.kernel_us.size() || settings_.kernel_us[d] == 0) return work.run();
  Turns& turns = turns_[d % turns_.size()];
  std::unique_lock hold(turns.lock);
  const std::uint64_t mine = turns.taken++;
  turns.changed.wait(hold, [&] { return turns.done == mine; });
  hold.unlock();
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(settings_.kernel_us[d]);
  const Code code = work.run();
  std::this_thread::sleep_until(until);
  hold.lock();
  ++turns.done;
  turns.changed.notify_all();
  return code;
}

void Machine::serve(Stream& stream) {
  std::unique_lock hold(lock_);
  while (true) {
    changed_.wait(hold, [&] { return ready(stream) || (!stream.live && stream.work.empty()); });
    if (stream.work.empty()) return;
    Context& context = *stream.context;
    Work work = std::move(stream.work.front());
    stream.work.pop_front();
    Code code = ok;
    if (context.sticky == ok && context.deferred == ok) {
      const std::uint32_t delay = settings_.delay_us != 0 && stream.random() % 4 == 0
                                      ? static_cast<std::uint32_t>(stream.random() % settings_.delay_us)
                                      : 0;
      if (work.module == nullptr && work.run && !work.touches.empty() &&
          kernels_[context.device].done < work.kernels_before)
        ++counts_["copies during kernels"];  // a kernel that was queued earlier has not finished
      hold.unlock();
      if (delay != 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      if (work.late != ok)
        code = work.late;
      else if (work.run)
        code = run(work, context.device);
      work.run = nullptr;
      hold.lock();
    }
    if (code != ok) (work.late != ok ? context.deferred : context.sticky) = code;
    for (const Touch& touch : work.touches) --touch.memory->queued;
    stream.completed = work.sequence;
    if (work.module != nullptr) ++kernels_[context.device].done;
    changed_.notify_all();
  }
}

/// Reports data races: two unordered accesses to the same bytes, one of them a write.
void Machine::check_order(const Stream& stream, const Work& work) {
  for (const Touch& touch : work.touches) {
    Memory& memory = *touch.memory;
    std::erase_if(memory.uses, [&](const Use& use) {
      if (use.end <= touch.begin || use.begin >= touch.end) return false;
      const auto known = work.clock.find(use.stream);
      if (use.stream == stream.id && use.sequence == work.sequence) return false;
      const bool failed = use.context->sticky != ok || use.context->deferred != ok;
      const bool before = failed || (known != work.clock.end() && known->second >= use.sequence);
      if (!before && (use.write || touch.write)) {
        breach_locked(work.what + (touch.write ? " writes" : " reads") + " what " + use.what +
                          (use.write ? " writes" : " reads") +
                          (use.stream == stream.id ? " before it, and no barrier orders them"
                                                   : " on another stream, and no event orders them"),
                      ok);
        return true;
      }
      const bool inside = use.begin >= touch.begin && use.end <= touch.end;
      return before && inside && (touch.write || (!use.write && use.stream == stream.id));
    });
    memory.uses.push_back({stream.id, work.sequence, touch.begin, touch.end, touch.write, work.what, stream.context});
  }
}

Code Machine::enqueue(Stream& stream, Work work, bool waits) {
  if (!execute_) return ok;
  std::unique_lock hold(lock_);
  Context& context = *stream.context;
  if (context.sticky != ok) return context.sticky;
  if (stream.capture != nullptr) return capture(stream, std::move(work), waits);
  if (stream.closed != nullptr)
    return breach_locked(work.what + " is appended to a list that is closed", invalid_value);
  const std::uint64_t n = ++operations_[context.device];
  ++counts_["operations"];
  if (const Code code = faults_.strikes("lost", n, illegal_address, context.device); code != ok) {
    context.sticky = code;
    changed_.notify_all();
    return code;
  }
  work.late = faults_.strikes("late", n, illegal_address, context.device);
  Clock joined;
  for (Event* event : work.order.waits) {
    if (event->stream == nullptr)
      return breach_locked("a wait for an event that no queued work signals", invalid_value);
    work.after.emplace_back(event->stream, event->sequence);
    merge(joined, event->clock);
  }
  if (work.order.signal != nullptr && work.order.signal->stream != nullptr)
    return breach_locked("an event is signalled again without a reset", invalid_value);
  work.sequence = ++stream.submitted;
  Kernels& kernels = kernels_[context.device];
  work.kernels_before = kernels.queued;
  if (work.module != nullptr) ++kernels.queued;
  merge(stream.clock, host_clock_);
  if (stream.ordered || work.order.barrier) merge(stream.clock, joined);
  if (stream.null) {  // the default stream waits for all blocking streams of the context ...
    for (Stream* other : context.streams)
      if (other->blocking && other != &stream) {
        merge(stream.clock, other->clock);
        work.after.emplace_back(other, other->submitted);
      }
  } else if (stream.blocking && context.null_stream->submitted != 0) {  // ... and they wait for the default stream
    merge(stream.clock, context.null_stream->clock);
    work.after.emplace_back(context.null_stream, context.null_stream->submitted);
  }
  if (stream.ordered || work.order.barrier) stream.clock[stream.id] = work.sequence;
  work.clock = stream.clock;
  merge(work.clock, joined);
  check_order(stream, work);
  if (Event* const event = work.order.signal) {
    event->stream = &stream;
    event->sequence = work.sequence;
    event->clock = work.clock;
    event->clock[stream.id] = std::max(event->clock[stream.id], work.sequence);
  }
  for (const Touch& touch : work.touches) ++touch.memory->queued;
  if (work.module != nullptr) work.module->used[stream.id] = work.sequence;
  const std::uint64_t sequence = work.sequence;
  if (waits && stream.completed + 1 < sequence) ++counts_["polling waits"];
  const Clock clock = work.clock;
  stream.work.push_back(std::move(work));
  changed_.notify_all();
  if (!waits) return ok;
  return wait_for(hold, stream, sequence, clock);
}

Code Machine::wait_for(std::unique_lock<std::mutex>& hold, Stream& stream, std::uint64_t sequence, const Clock& clock) {
  Clock reached = clock;
  changed_.wait(hold, [&] { return stream.completed >= sequence; });
  if (stream.ordered) reached[stream.id] = std::max(reached[stream.id], sequence);
  merge(host_clock_, reached);
  const Context& context = *stream.context;
  return context.sticky != ok ? context.sticky : context.deferred;
}

Code Machine::synchronise(Stream& stream) {
  if (stream.null) return synchronise(*stream.context);
  std::unique_lock hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  if (stream.capture != nullptr) {
    stream.spoilt = true;
    return breach_locked("a wait for a stream that is being captured", capture_unsupported);
  }
  if (stream.completed < stream.submitted) ++counts_["polling waits"];
  Clock all = stream.clock;
  all[stream.id] = stream.submitted;
  return wait_for(hold, stream, stream.submitted, all);
}

Code Machine::mark(Stream& stream, const Order& order) {
  Work work;
  work.what = order.barrier ? "a barrier" : "an event";
  work.order = order;
  return enqueue(stream, std::move(work), false);
}

Code Machine::reset(Event& event) {
  std::lock_guard hold(lock_);
  if (event.stream != nullptr && event.stream->completed < event.sequence)
    return breach_locked("an event is reset before it was signalled", invalid_value);
  for (const Context* context : primaries_)
    for (const Stream* stream : context->streams)
      for (const Work& work : stream->work)
        if (std::ranges::find(work.order.waits, &event) != work.order.waits.end())
          return breach_locked("an event is reset while queued work waits for it", invalid_value);
  event.stream = nullptr;
  return ok;
}

Code Machine::synchronise(Context& context) {
  std::unique_lock hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  const std::vector<Stream*> streams = context.streams;
  Code code = ok;
  for (Stream* stream : streams) code = wait_for(hold, *stream, stream->submitted, stream->clock);
  return code;
}

Code Machine::query(Stream& stream) {
  std::lock_guard hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  const Context& context = *stream.context;
  if (context.sticky != ok) return context.sticky;
  if (stream.completed < stream.submitted) return not_ready;
  merge(host_clock_, stream.clock);
  return context.deferred;
}

Code Machine::create_event(Context& context, bool timing, Event** out) {
  auto* event = new Event{Handle{.kind = Kind::event, .context = &context}};
  event->timing = timing;
  std::lock_guard hold(lock_);
  keep(event);
  *out = event;
  return ok;
}

Event* Machine::event_of(void* handle, Code* code) {
  std::lock_guard hold(lock_);
  return static_cast<Event*>(handle_of(handle, Kind::event, code));
}

Code Machine::destroy(Event* event) {
  std::lock_guard hold(lock_);
  event->live = false;
  return ok;
}

Code Machine::record(Context& context, Event& event, Stream& stream) {
  if (event.context != stream.context)
    return breach("the event belongs to device " + std::to_string(event.context->device) + ", the stream to device " +
                      std::to_string(stream.context->device),
                  invalid_handle);
  (void)context;
  Work work;
  work.what = "an event";
  if (const Code code = enqueue(stream, std::move(work), false); code != ok) return code;
  std::lock_guard hold(lock_);
  if (stream.capture != nullptr) return ok;  // already reported
  event.stream = &stream;
  event.sequence = stream.submitted;
  event.clock = stream.clock;
  return ok;
}

Code Machine::wait(Stream& stream, Event& event) {
  Work work;
  work.what = "a wait for an event";
  {
    std::lock_guard hold(lock_);
    if (event.stream == nullptr) return ok;
    work.after.emplace_back(event.stream, event.sequence);
    merge(stream.clock, event.clock);
  }
  return enqueue(stream, std::move(work), false);
}

Code Machine::synchronise(Event& event) {
  std::unique_lock hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  if (event.stream == nullptr) return ok;
  if (event.stream->completed < event.sequence) ++counts_[event.blocking ? "blocking waits" : "polling waits"];
  return wait_for(hold, *event.stream, event.sequence, event.clock);
}

Code Machine::query(Event& event) {
  std::lock_guard hold(lock_);
  if (const Code code = outside_of_capture_locked(); code != ok) return code;
  const Context& context = event.stream != nullptr ? *event.stream->context : *event.context;
  if (context.sticky != ok) return context.sticky;
  if (event.stream == nullptr) return opencl ? not_ready : ok;  // in Level Zero, the event is not signalled
  if (event.stream->completed < event.sequence) return not_ready;
  merge(host_clock_, event.clock);
  return context.deferred;
}

}  // namespace tessera::fake
