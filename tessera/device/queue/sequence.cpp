// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/device/placement/placement.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/queue/recording.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"

namespace tessera {

namespace {

void put(DriverQueue& driver, const RecordedWork& w) {
  switch (w.kind) {
    case RecordedWork::launch: return driver.launch(*w.kernel, w.shape, w.arguments);
    case RecordedWork::product: return w.vendor_product->enqueue(driver, w.arguments);
    case RecordedWork::copy: return driver.copy(w.to, w.to_offset, w.from, w.from_offset, w.bytes);
    case RecordedWork::fill:
      return driver.fill(w.to, w.to_offset, w.bytes, std::span(w.pattern).first(w.pattern_bytes));
  }
}

}  // namespace

struct Sequence::State {
  State(Queue& q, std::shared_ptr<SequenceMemory> p)
      : device(q.device()), queue(q), core(q.core().shared_from_this()), pool(std::move(p)) {}
  ~State();

  void finish_recording(const std::vector<SequenceMemory::DetachedBlock>& left);
  void change(std::size_t piece, std::size_t argument, std::uint64_t bits);
  void set_streams();
  void check_queue(const char* asked) const;
  void sort_memory();
  const std::shared_ptr<Storage>& storage_of(std::int32_t number);
  void hold_blocks();
  void place();
  void capture();
  void note(const QueueUse& use);
  void put_piece(std::size_t i);
  void put_segment(std::size_t number);
  void call_host(std::size_t number);
  void put_all();
  void launch_one_by_one();

  const Device device;
  Queue& queue;  ///< must not be used if `core` is closed
  const std::shared_ptr<QueueCore> core;
  const std::shared_ptr<SequenceMemory> pool;  ///< its lock protects the members below
  RecordedGraph lists;
  std::vector<RecordedWork>& work = lists.work;
  std::vector<RecordedPiece>& pieces = lists.pieces;
  std::vector<RecordedMemory>& memory = lists.memory;
  std::vector<std::uint32_t> blocks;             ///< blocks of the pool that this sequence uses
  std::uint64_t placed = 0;                      ///< the pool's generation when the blocks were last looked up
  bool moved = false;                            ///< true if memory has moved since `driver` was created
  std::vector<Storage*> reads, writes;           ///< memory that may also be used outside of the sequence
  std::vector<std::shared_ptr<Storage>> inside;  ///< memory that only this sequence refers to
  std::map<LaunchCounter*, std::uint64_t> launches;
  std::uint64_t copies = 0, copied_bytes = 0;
  /// Pieces that are submitted with one call. A call of the host (`lists.calls`) follows each segment except the last.
  struct Segment {
    std::size_t begin, end;
    std::unique_ptr<DriverSequence> driver = nullptr;
    std::vector<std::uint32_t> changed = {};  ///< relative to `begin`
  };
  std::vector<Segment> segments;
  std::span<RecordedWork> work_of(const Segment& s) { return std::span(work).subspan(s.begin, s.end - s.begin); }
  const std::string* name = nullptr;
};

/// Determines the final memory of each lease.
void Sequence::State::finish_recording(const std::vector<SequenceMemory::DetachedBlock>& left) {
  for (RecordedMemory& m : memory) {
    if (!m.lease) continue;
    const SequenceMemory::DetachedBlock& l = left[m.lease->block];
    if (l.lease == m.lease) {
      m.storage = l.storage;  // still referenced
    } else if (!m.lease->keeps) {
      // Data that only this sequence stored there earlier can stay in the detached storage, because a replay overwrites
      // it later with the final contents. This requires that the storage contains no data that is still needed when the
      // replay begins.
      const RecordedMemory* after =
          l.lease && l.lease->memory >= 0 ? &memory[static_cast<std::size_t>(l.lease->memory)] : nullptr;
      if (after != nullptr && !after->read_first && m.extent <= l.storage->bytes())
        m.storage = l.storage;
      else
        m.block = static_cast<std::int32_t>(m.lease->block);
    }
  }
  for (RecordedMemory& m : memory) m.lease.reset();
  for (RecordedStream& s : lists.streams)
    s.followed = s.followed && s.state.use_count() > 1;  // otherwise, the generator was destroyed
  for (const RecordedPiece& p : pieces) {
    if (p.counter != nullptr)
      ++launches[p.counter];
    else if (p.from_memory >= 0)
      ++copies, copied_bytes += p.to.bytes();
  }
  std::size_t begin = 0;
  for (const HostCall& call : lists.calls) segments.push_back({begin, call.before}), begin = call.before;
  segments.push_back({begin, work.size()});
  name = &interned(work.empty() ? std::string("(empty sequence)")
                                : fmt::format("(sequence of {}, from {} to {})", work.size(), pieces.front().name(),
                                              pieces.back().name()));
}

/// Separates storages that can be used outside of the sequence from those that cannot. A storage without other
/// references cannot gain any later. Once its earlier uses have ended, the order of the queue is therefore sufficient.
void Sequence::State::sort_memory() {
  struct Held {
    std::shared_ptr<Storage> storage;
    long ours = 1;
    bool written = false;
  };
  std::unordered_map<Storage*, Held> held;
  for (const RecordedMemory& m : memory) {
    if (m.block >= 0) continue;
    Held& h = held[m.storage.get()];
    h.storage = m.storage;
    h.written = h.written || m.written;
    ++h.ours;
  }
  for (auto& [storage, h] : held) {
    if (h.storage.use_count() == h.ours && !storage->is_owned_by_recording()) {
      storage->before_write(*core);
      inside.push_back(std::move(h.storage));
    } else {
      (h.written ? writes : reads).push_back(storage);
    }
  }
}

const std::shared_ptr<Storage>& Sequence::State::storage_of(std::int32_t number) {
  const RecordedMemory& m = memory[static_cast<std::size_t>(number)];
  return m.block >= 0 ? pool->storage_of(static_cast<std::uint32_t>(m.block)) : m.storage;
}

void Sequence::State::hold_blocks() {
  std::vector<std::uint32_t> all;
  for (const RecordedMemory& m : memory)
    if (m.block >= 0) all.push_back(static_cast<std::uint32_t>(m.block));
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  pool->hold(all);
  blocks = std::move(all);
}

/// Stores the current memory addresses in the recorded work.
void Sequence::State::place() {
  for (RecordedMemory& m : memory) {
    if (m.block < 0) continue;
    const auto& now = pool->storage_of(static_cast<std::uint32_t>(m.block));
    if (m.placed.lock() == now) continue;
    now->before_write(*core);  // wait for earlier uses outside of any sequence
    moved = true;
    m.placed = now;
  }
  const auto allocation = [&](std::int32_t number) -> const Allocation& { return storage_of(number)->allocation(); };
  for (std::size_t i = 0; i < work.size(); ++i) {
    const RecordedPiece& p = pieces[i];
    for (std::size_t a = 0; a < p.memory.size(); ++a)
      if (p.memory[a] >= 0) work[i].arguments[a].allocation = &allocation(p.memory[a]);
    if (p.to_memory >= 0) work[i].to = allocation(p.to_memory);
    if (p.from_memory >= 0) work[i].from = allocation(p.from_memory);
  }
  placed = pool->generation();
}

void Sequence::State::capture() {
  for (Segment& s : segments) {
    if (s.driver) core->device().retire(std::move(s.driver));
    // With TESSERA_SYNC=1, each operation is waited for individually, so that errors contain its name.
    if (s.begin != s.end && !settings().sync)
      core->submit(*name, [&](DriverQueue& d) { s.driver = d.capture(work_of(s)); });
    s.changed.clear();
  }
  moved = false;
}

Sequence::State::~State() {
  try {
    if (!inside.empty() && !core->device().gone()) {
      const QueueUse last = core->last_use();
      // Prevents the memory from being reused before the last replay has ended.
      for (const auto& storage : inside) storage->after_write(last);
    }
  } catch (...) {}
  for (Segment& s : segments)
    if (s.driver) core->device().retire(std::move(s.driver));
  pool->release(blocks);
}

Sequence::Sequence() = default;
Sequence::Sequence(detail::Owner<State> state) : state_(std::move(state)) {}
Sequence::~Sequence() = default;
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;

SequencePool::SequencePool() : memory_(std::make_shared<SequenceMemory>()) {}

/// A recording that may become a sequence.
struct Sequence::Attempt {
  detail::Owner<State> state;
  std::string refusal;  ///< why the recording failed; empty if it succeeded

  Attempt(Queue& queue, const Callback<void()>& work, std::shared_ptr<SequenceMemory> pool, AtRefusal at_refusal)
      : state(std::make_unique<State>(queue, std::move(pool))) {
    Recorder::refuse("Sequence::record");
    Recording recording(queue, *state->pool, state->lists, at_refusal);
    work();
    refusal = recording.refusal();
    if (refusal.empty()) state->finish_recording(recording.end());
  }
  /// Replaces `before`. The blocks of `before` are released only after this sequence has acquired the blocks that it
  /// needs.
  detail::Owner<State> finish(detail::Owner<State> before = {}) {
    {
      const auto lock = state->pool->lock("Sequence::record");
      state->hold_blocks();
    }
    before.reset();
    const auto lock = state->pool->lock("Sequence::record");
    state->sort_memory();
    state->pool->order();
    state->place();
    state->capture();
    return std::move(state);
  }
};

Sequence Sequence::record(Queue& queue, const Callback<void()>& work, const SequencePool& pool) {
  return Sequence(Attempt(queue, work, pool.memory_, AtRefusal::throws).finish());
}

Sequence Sequence::record_or_run(Queue& queue, const Callback<void()>& work, std::string& why,
                                 const SequencePool& pool) {
  Attempt attempt(queue, work, pool.memory_, AtRefusal::stops_recording);
  why = attempt.refusal;
  return why.empty() ? Sequence(attempt.finish()) : Sequence();
}

std::string Sequence::record_again(const Callback<void()>& work) {
  if (!state_)
    fail<ArgumentError>({.operation = "record_again", .wrong = "the sequence is empty", .remedy = "Record work first"});
  state_->check_queue("record_again");
  std::vector<RandomStream> before;
  for (const RecordedStream& s : state_->lists.streams) before.push_back(*s.state);
  Attempt attempt(state_->queue, work, state_->pool, AtRefusal::stops_recording);
  detail::Owner<State> last = std::move(state_);
  if (!attempt.refusal.empty()) return attempt.refusal;
  for (RecordedStream& s : attempt.state->lists.streams) {
    const auto known = std::ranges::find(last->lists.streams, s.state, &RecordedStream::state);
    s.followed = s.followed && known != last->lists.streams.end() && known->followed &&
                 s.first == before[static_cast<std::size_t>(known - last->lists.streams.begin())];
  }
  std::string difference = difference_of(last->lists, attempt.state->lists);
  if (difference.empty()) state_ = attempt.finish(std::move(last));
  return difference;
}

void Sequence::State::note(const QueueUse& use) {
  for (Storage* s : reads) s->after_read(use);
  for (Storage* s : writes) s->after_write(use);
}

void Sequence::State::put_piece(std::size_t i) {
  core->submit(
      pieces[i].name(), [&](DriverQueue& d) { put(d, work[i]); }, [&](const QueueUse& use) { note(use); });
}

void Sequence::State::put_segment(std::size_t number) {
  Segment& s = segments[number];
  if (s.begin == s.end) return;
  if (settings().sync) [[unlikely]] {
    for (std::size_t i = s.begin; i < s.end; ++i) put_piece(i);
    return;
  }
  core->submit(
      *name,
      [&](DriverQueue& d) {
        if (s.driver)
          d.replay(*s.driver, work_of(s), s.changed);
        else
          d.together([&] {
            for (const RecordedWork& w : work_of(s)) put(d, w);
          });
      },
      [&](const QueueUse& use) { note(use); });
  s.changed.clear();
}

void Sequence::State::call_host(std::size_t number) {
  if (number < lists.calls.size()) lists.calls[number].function();
}

void Sequence::State::put_all() {
  for (std::size_t i = 0; i < segments.size(); ++i) put_segment(i), call_host(i);
}

/// Replays with individual launches, for interceptors (verify_on).
void Sequence::State::launch_one_by_one() {
  for (std::size_t i = 0, next_call = 0; i <= pieces.size(); ++i) {
    while (next_call < lists.calls.size() && lists.calls[next_call].before == i) call_host(next_call++);
    if (i == pieces.size()) break;
    const RecordedPiece& p = pieces[i];
    const auto of = [&](BufferView view, std::int32_t number) {
      if (number >= 0) view.storage = storage_of(number);
      return view;
    };
    if (work[i].kind == RecordedWork::product) {  // only kernels are intercepted
      put_piece(i);
    } else if (p.counter != nullptr) {
      std::vector<LaunchArgument> arguments = p.arguments;
      for (std::size_t a = 0; a < arguments.size(); ++a) arguments[a].view = of(arguments[a].view, p.memory[a]);
      p.kernel.launch(work[i].shape, arguments, &queue);
    } else if (p.from_memory >= 0) {
      queue.copy(of(p.to, p.to_memory), of(p.from, p.from_memory));
    } else {
      std::uint64_t bits = 0;
      for (std::size_t b = 0; b < work[i].pattern_bytes; ++b)
        bits |= std::to_integer<std::uint64_t>(work[i].pattern[b]) << (8 * b);
      queue.fill(of(p.to, p.to_memory), bits);
    }
  }
}

void Sequence::State::change(std::size_t piece, std::size_t argument, std::uint64_t bits) {
  std::uint64_t& known = pieces[piece].arguments[argument].bits;
  if (known == bits) return;
  known = work[piece].arguments[argument].bits = bits;
  Segment& s = *std::ranges::upper_bound(segments, piece, {}, &Segment::end);
  const auto place = static_cast<std::uint32_t>(piece - s.begin);
  if (std::ranges::find(s.changed, place) == s.changed.end()) s.changed.push_back(place);
}

/// Makes the next replay draw from the generators' current state.
void Sequence::State::set_streams() {
  if (lists.streams.empty()) return;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const RecordedPiece& p = pieces[i];
    if (p.stream < 0) continue;
    const RecordedStream& s = lists.streams[static_cast<std::size_t>(p.stream)];
    if (!s.followed) continue;
    change(i, p.draws.seed_low, s.state->seed & 0xffffffffu);
    change(i, p.draws.seed_high, s.state->seed >> 32);
    change(i, p.draws.offset, s.state->offset + p.drawn_before);
  }
}

/// Throws DeviceError if the device is lost, ArgumentError if the queue was destroyed.
void Sequence::State::check_queue(const char* asked) const {
  core->device().check();
  if (core->closed())
    fail<ArgumentError>({.operation = asked,
                         .with = {{"device", to_string(device)}},
                         .wrong = "the queue on which the sequence was recorded has been destroyed",
                         .remedy = "Keep the queue alive as long as the sequence"});
}

void Sequence::between(const Callback<void()>& f) {
  if (Recorder* const recorder = Recorder::of_this_thread()) recorder->called(f);
  const Recorder::Pause pause(true);
  f();
}

void Sequence::replay() {
  if (!state_)
    fail<ArgumentError>({.operation = "replay",
                         .wrong = "the sequence is empty",
                         .remedy = "Record work first; deferred arrays are recorded only when eval() computes them"});
  Recorder::refuse("Sequence::replay");
  State& s = *state_;
  const auto lock = s.pool->lock("Sequence::replay");
  s.check_queue("replay");
  if (s.work.empty()) return;
  s.pool->order();
  s.set_streams();
  if (s.placed != s.pool->generation()) s.place();
  if (s.moved) s.capture();
  // Flush before using a queue, because flushing launches kernels.
  for (Storage* w : s.writes) w->flush_readers();
  const auto advance_streams = [&] {
    for (const RecordedStream& stream : s.lists.streams)
      if (stream.followed) stream.state->offset += stream.drawn;
  };
  if (thread_context.launch_interceptor != nullptr) [[unlikely]] {
    s.launch_one_by_one();
    return advance_streams();
  }
  PlacementAccess::check("replay", s.pieces.front().name(), s.device);
  for (Storage* r : s.reads) r->before_read(*s.core);
  for (Storage* w : s.writes) w->before_write(*s.core);
  if (traced()) [[unlikely]]
    trace_line(fmt::format("replay {} on {}{}", *s.name, to_string(s.device), one_call() ? " with one call" : ""));
  s.put_all();
  advance_streams();
  for (const auto& [counter, n] : s.launches) {
    counter->launches.fetch_add(n, std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < n; ++i) PlacementAccess::count(*counter);
  }
  if (s.copies != 0) {
    CopyCounters& c = s.core->device().copies;
    c.within_bytes.fetch_add(s.copied_bytes, std::memory_order_relaxed);
    c.within_count.fetch_add(s.copies, std::memory_order_relaxed);
    for (const RecordedPiece& p : s.pieces)
      if (p.from_memory >= 0) PlacementAccess::count(s.device, PlacementAccess::Direction::within, p.to.bytes());
  }
}

void Sequence::set(std::uint32_t slot, const LaunchArgument& value) {
  if (!state_)
    fail<ArgumentError>({.operation = "set", .wrong = "the sequence is empty", .remedy = "Record work first"});
  State& s = *state_;
  const auto lock = s.pool->lock("Sequence::set");
  const auto refuse = [&](std::string wrong) {
    fail<ArgumentError>(
        {.operation = "Sequence::set", .with = {{"slot", std::to_string(slot)}}, .wrong = std::move(wrong)});
  };
  constexpr std::int64_t limit = (std::int64_t{1} << 31) - 65536;  // same limit as for launches
  bool found = false;
  for (const bool check : {true, false}) {  // check everything before changing anything
    for (std::size_t i = 0; i < s.work.size(); ++i) {
      if (!s.work[i].changing) continue;
      for (std::size_t a = 0; a < s.pieces[i].arguments.size(); ++a) {
        const LaunchArgument& known = s.pieces[i].arguments[a];
        if (known.slot != static_cast<std::int32_t>(slot)) continue;
        found = true;
        if (check) {
          if (value.view.storage || value.dtype != known.dtype)
            refuse(fmt::format("kernel {} expects a scalar of {} in this slot", s.pieces[i].name(),
                               dtype_name(known.dtype)));
          const auto number = static_cast<std::int64_t>(value.bits);
          if (known.dtype == DType::index && !s.pieces[i].index64 && (number >= limit || number < -limit))
            refuse(fmt::format("kernel {} was compiled with 32-bit indices, and {} is too large for them",
                               s.pieces[i].name(), number));
          continue;
        }
        s.change(i, a, value.bits);
      }
    }
  }
  if (!found) refuse("no scalar of the sequence has this slot");
}

Device Sequence::device() const {
  if (!state_) fail<ArgumentError>({.operation = "Sequence::device", .wrong = "the sequence is empty"});
  return state_->device;
}
std::size_t Sequence::size() const { return state_ ? state_->work.size() : 0; }
bool Sequence::one_call() const {
  return state_ && state_->segments.size() == 1 && state_->segments[0].driver != nullptr;
}

}  // namespace tessera
