// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/launch_observer.h"
#include "tessera/device/open_device.h"
#include "tessera/device/queue_core.h"
#include "tessera/device/recorder.h"
#include "tessera/device/settings.h"

namespace tessera {

namespace {
struct Recordings {
  std::mutex lock;
  std::uint64_t last = 0;
  std::vector<std::uint64_t> going_on;
  std::atomic<std::size_t> count = 0;  ///< of these, read without the lock
};
Recordings& recordings() {
  static constinit os::PerProcess<Recordings> all;  // never destroyed: threads may record while the process ends
  return all.get();
}
std::uint64_t begin_recording() {
  Recordings& r = recordings();
  std::lock_guard hold(r.lock);
  r.going_on.push_back(r.last + 1);
  r.count = r.going_on.size();
  return ++r.last;
}
}  // namespace

Recorder::Recorder() : number_(begin_recording()) {}
Recorder::~Recorder() {
  Recordings& r = recordings();
  std::lock_guard hold(r.lock);
  std::erase(r.going_on, number_);
  r.count = r.going_on.size();
}
bool Recorder::goes_on(std::uint64_t number) {
  Recordings& r = recordings();
  if (number == 0 || r.count == 0) return false;
  std::lock_guard hold(r.lock);
  return std::ranges::find(r.going_on, number) != r.going_on.end();
}

namespace {

const std::string copy_name = "(copy)", fill_name = "(fill)";

/// What a piece was before it became the driver's: keeps kernel and memory alive, and can be launched again by itself.
struct Piece {
  Kernel kernel;
  LaunchCounter* counter = nullptr;  ///< null: a copy or a fill
  bool index64 = false;
  std::vector<LaunchArgument> arguments;
  BufferView to, from;
  const std::string& name() const { return counter != nullptr ? counter->name : from.storage ? copy_name : fill_name; }
};

struct Memory {
  std::shared_ptr<Storage> storage;
  bool written = false;
  long ours = 1;  ///< references from the sequence, this one included
};

void put(DriverQueue& driver, const RecordedWork& w) {
  switch (w.kind) {
    case RecordedWork::launch: return driver.launch(*w.kernel, w.shape, w.arguments);
    case RecordedWork::copy: return driver.copy(w.to, w.to_offset, w.from, w.from_offset, w.bytes);
    case RecordedWork::fill:
      return driver.fill(w.to, w.to_offset, w.bytes, std::span(w.pattern).first(w.pattern_bytes));
  }
}

}  // namespace

struct Sequence::State {
  explicit State(Queue& q) : device(q.device()), queue(q), core(q.core().shared_from_this()) {}
  ~State();

  /// Memory by who else can reach it, and what is counted.
  void finish_recording();
  void put_all();
  void launch_one_by_one();

  const Device device;
  Queue& queue;  ///< gone if `core` is closed
  const std::shared_ptr<QueueCore> core;
  std::mutex lock;  // guards what follows
  std::vector<RecordedWork> work;
  std::vector<Piece> pieces;  ///< of each, what it is made of
  std::unordered_map<Storage*, Memory> memory;
  std::vector<Storage*> reads, writes;           ///< what others can reach too
  std::vector<std::shared_ptr<Storage>> inside;  ///< what only the sequence has
  std::map<LaunchCounter*, std::uint64_t> launches;
  std::uint64_t copies = 0, copied_bytes = 0;
  std::unique_ptr<DriverSequence> driver;
  std::vector<std::uint32_t> changed;
  const std::string* name = nullptr;
};

namespace {

class Recording final : public Recorder {
 public:
  Recording(Queue& queue, std::vector<RecordedWork>& work, std::vector<Piece>& pieces,
            std::unordered_map<Storage*, Memory>& memory)
      : current_(queue), device_(queue.device()), core_(queue.core()), work_(work), pieces_(pieces), memory_(memory) {
    thread_context.recorder = this;
  }
  ~Recording() override { thread_context.recorder = nullptr; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void launched(const Kernel& kernel, LoadedKernel& loaded, LaunchCounter& counter, bool index64,
                std::array<std::uint64_t, 3> shape, std::span<const LaunchArgument> arguments,
                std::span<const Argument> given, const std::vector<std::uint8_t>& writes) override {
    RecordedWork& w = work_.emplace_back();
    w.kernel = &loaded, w.shape = shape;
    w.arguments.assign(given.begin(), given.end());
    Piece& p = pieces_.emplace_back();
    p.kernel = kernel, p.counter = &counter, p.index64 = index64;
    p.arguments.assign(arguments.begin(), arguments.end());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].view.storage)
        note(arguments[i].view, writes[i] != 0);
      else
        w.changing = w.changing || arguments[i].slot >= 0;
    }
  }
  void copied(const BufferView& to, const BufferView& from) override {
    RecordedWork& w = work_.emplace_back();
    w.kind = RecordedWork::copy;
    w.to = to.storage->allocation(), w.from = from.storage->allocation();
    w.to_offset = to.byte_offset, w.from_offset = from.byte_offset, w.bytes = to.bytes();
    Piece& p = pieces_.emplace_back();
    p.to = to, p.from = from;
    note(to, true), note(from, false);
  }
  void filled(const BufferView& to, std::span<const std::byte> pattern) override {
    RecordedWork& w = work_.emplace_back();
    w.kind = RecordedWork::fill;
    w.to = to.storage->allocation();
    w.to_offset = to.byte_offset, w.bytes = to.bytes();
    std::ranges::copy(pattern, w.pattern.begin());
    w.pattern_bytes = static_cast<std::uint8_t>(pattern.size());
    pieces_.emplace_back().to = to;
    note(to, true);
  }

 private:
  void note(const BufferView& view, bool written) {
    Memory& m = memory_[view.storage.get()];
    if (!m.storage) m.storage = view.storage;
    m.written = m.written || written;
    ++m.ours;
  }
  void refused(const char* asked) override {
    fail<ArgumentError>({.asked = asked,
                         .with = {{"recording on", to_string(device_)}},
                         .wrong = "this thread records a Sequence, and a replay could not repeat this",
                         .todo = "Do it before or after Sequence::record; what changes from replay to replay lies in "
                                 "device memory that is written before, or in a scalar with a slot"});
  }
  void checked(const char* asked, QueueCore& core) override {
    if (&core == &core_) return;
    fail<ArgumentError>({.asked = asked,
                         .with = {{"recording on", to_string(device_)}, {"goes to", to_string(core.device().device)}},
                         .wrong = "this thread records a Sequence of one queue, and this is work of another",
                         .todo = "Record a sequence for each queue"});
  }

  const QueueScope current_;
  const Device device_;
  QueueCore& core_;
  std::vector<RecordedWork>& work_;
  std::vector<Piece>& pieces_;
  std::unordered_map<Storage*, Memory>& memory_;
};

}  // namespace

void Sequence::State::finish_recording() {
  for (auto& [storage, m] : memory) {
    // What nobody else holds now, nobody can reach later: the queue's order is all the order it needs.
    if (m.storage.use_count() == m.ours)
      inside.push_back(m.storage);
    else
      (m.written ? writes : reads).push_back(storage);
  }
  for (const Piece& p : pieces) {
    if (p.counter != nullptr)
      ++launches[p.counter];
    else if (p.from.storage)
      ++copies, copied_bytes += p.to.bytes();
  }
  name = &interned(work.empty() ? std::string("(empty sequence)")
                                : fmt::format("(sequence of {}, from {} to {})", work.size(), pieces.front().name(),
                                              pieces.back().name()));
}

Sequence::State::~State() {
  if (!core) return;
  try {
    if (!inside.empty() && !core->device().gone()) {
      const QueueUse last = core->last_use();
      for (const auto& storage : inside) storage->after_write(last);  // its memory may be used again only after that
    }
  } catch (...) {}
  if (driver) core->device().retire(std::move(driver));
}

Sequence::Sequence() = default;
Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sequence::~Sequence() = default;
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;

Sequence Sequence::record(Queue& queue, const std::function<void()>& work) {
  Recorder::refuse("Sequence::record");
  auto state = std::make_unique<State>(queue);
  State& s = *state;
  {
    const Recording recording(queue, s.work, s.pieces, s.memory);
    work();
  }
  s.finish_recording();
  // With TESSERA_SYNC=1 each piece is waited for by itself, so that a fault names it.
  if (!s.work.empty() && !settings().sync)
    s.core->submit(*s.name, [&](DriverQueue& driver) { s.driver = driver.capture(s.work); });
  return Sequence(std::move(state));
}

void Sequence::State::put_all() {
  const auto note = [&](const QueueUse& use) {
    for (Storage* s : reads) s->after_read(use);
    for (Storage* s : writes) s->after_write(use);
  };
  if (settings().sync) [[unlikely]] {
    for (std::size_t i = 0; i < work.size(); ++i)
      core->submit(
          pieces[i].name(), [&](DriverQueue& d) { put(d, work[i]); }, note);
    return;
  }
  core->submit(
      *name,
      [&](DriverQueue& d) {
        if (driver)
          d.replay(*driver, work, changed);
        else
          d.together([&] {
            for (const RecordedWork& w : work) put(d, w);
          });
      },
      note);
  changed.clear();
}

/// For those who look at each launch (verify_on).
void Sequence::State::launch_one_by_one() {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    if (p.counter != nullptr) {
      p.kernel.launch(work[i].shape, p.arguments, &queue);
    } else if (p.from.storage) {
      queue.copy(p.to, p.from);
    } else {
      std::uint64_t bits = 0;
      for (std::size_t b = 0; b < work[i].pattern_bytes; ++b)
        bits |= std::to_integer<std::uint64_t>(work[i].pattern[b]) << (8 * b);
      queue.fill(p.to, bits);
    }
  }
}

void Sequence::replay() {
  if (!state_) fail<ArgumentError>({.asked = "replay", .wrong = "the sequence is empty", .todo = "Record one first"});
  Recorder::refuse("Sequence::replay");
  State& s = *state_;
  std::lock_guard hold(s.lock);
  s.core->device().check();
  if (s.core->closed())
    fail<ArgumentError>({.asked = "replay",
                         .with = {{"device", to_string(s.device)}},
                         .wrong = "the queue that the sequence was recorded on is gone",
                         .todo = "Keep it as long as the sequence"});
  if (s.work.empty()) return;
  // Before any lock or queue is held: a flush launches kernels itself.
  for (Storage* w : s.writes) w->flush_readers();
  if (thread_context.launch_observer != nullptr) [[unlikely]]
    return s.launch_one_by_one();
  PlacementAccess::check("replay", s.pieces.front().name(), s.device);
  for (Storage* r : s.reads) r->before_read(*s.core);
  for (Storage* w : s.writes) w->before_write(*s.core);
  if (traced()) [[unlikely]]
    trace(fmt::format("replay {} on {}{}", *s.name, to_string(s.device), s.driver ? " with one call" : ""));
  s.put_all();
  for (const auto& [counter, n] : s.launches) {
    counter->launches.fetch_add(n, std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < n; ++i) PlacementAccess::count(*counter);
  }
  if (s.copies != 0) {
    CopyCounters& c = s.core->device().copies;
    c.within_bytes.fetch_add(s.copied_bytes, std::memory_order_relaxed);
    c.within_count.fetch_add(s.copies, std::memory_order_relaxed);
    for (const Piece& p : s.pieces)
      if (p.from.storage) PlacementAccess::count(s.device, PlacementAccess::Direction::within, p.to.bytes());
  }
}

void Sequence::set(std::uint32_t slot, const LaunchArgument& value) {
  if (!state_) fail<ArgumentError>({.asked = "set", .wrong = "the sequence is empty", .todo = "Record one first"});
  State& s = *state_;
  std::lock_guard hold(s.lock);
  const auto refuse = [&](std::string wrong) {
    fail<ArgumentError>(
        {.asked = "Sequence::set", .with = {{"slot", std::to_string(slot)}}, .wrong = std::move(wrong)});
  };
  constexpr std::int64_t limit = (std::int64_t{1} << 31) - 65536;  // as launches have it
  bool found = false;
  for (const bool check : {true, false}) {  // all or nothing
    for (std::size_t i = 0; i < s.work.size(); ++i) {
      if (!s.work[i].changing) continue;
      for (std::size_t a = 0; a < s.pieces[i].arguments.size(); ++a) {
        LaunchArgument& known = s.pieces[i].arguments[a];
        if (known.slot != static_cast<std::int32_t>(slot)) continue;
        found = true;
        if (check) {
          if (value.view.storage || value.dtype != known.dtype)
            refuse(fmt::format("kernel {} takes a scalar {} there", s.pieces[i].name(), dtype_name(known.dtype)));
          const auto number = static_cast<std::int64_t>(value.bits);
          if (known.dtype == DType::index && !s.pieces[i].index64 && (number >= limit || number < -limit))
            refuse(fmt::format("kernel {} was compiled for indices of 32 bits, and {} is too large for them",
                               s.pieces[i].name(), number));
          continue;
        }
        if (known.bits == value.bits) continue;
        known.bits = s.work[i].arguments[a].bits = value.bits;
        const auto place = static_cast<std::uint32_t>(i);
        if (std::ranges::find(s.changed, place) == s.changed.end()) s.changed.push_back(place);
      }
    }
  }
  if (!found) refuse("no scalar of the sequence has this number");
}

Device Sequence::device() const {
  if (!state_) fail<ArgumentError>({.asked = "Sequence::device", .wrong = "the sequence is empty"});
  return state_->device;
}
std::size_t Sequence::size() const { return state_ ? state_->work.size() : 0; }
bool Sequence::one_call() const { return state_ && state_->driver != nullptr; }

}  // namespace tessera
