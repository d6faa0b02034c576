// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_check.h"
#include "tessera/device/placement/placement.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace {
const std::string recorded_copy_name = "(copy)", recorded_fill_name = "(fill)";
}

const std::string& RecordedPiece::name() const {
  if (counter != nullptr) return counter->name;
  return from_memory >= 0 ? recorded_copy_name : recorded_fill_name;
}

Recording::Recording(Queue& queue, SequenceMemory& pool, RecordedGraph& lists, AtRefusal at_refusal)
    : device_(queue.device()),
      core_(queue.core()),
      pool_(pool),
      current_(queue),
      lists_(lists),
      at_refusal_(at_refusal) {
  pool_.begin(queue);
  thread_context.recorder = this;
}

Recording::~Recording() {
  thread_context.recorder = nullptr;
  if (ended_) return;
  pool_.abandon();
  for (const RecordedStream& s : lists_.streams) *s.state = s.first;
}

std::vector<SequenceMemory::DetachedBlock> Recording::end() {
  auto left = pool_.end();
  ended_ = true;
  return left;
}

std::shared_ptr<Storage> Recording::allocate(Device device, std::size_t bytes, const std::string& label) {
  return device == device_ && !ended_ ? pool_.allocate_block(bytes, label) : nullptr;
}

void Recording::launched(const Kernel& kernel, LoadedKernel& loaded, LaunchCounter& counter, bool index64,
                         std::array<std::uint64_t, 3> shape, std::span<const LaunchArgument> arguments,
                         std::span<const Argument> given, const KernelFacts& facts) {
  if (ended_) return;
  RecordedWork& w = lists_.work.emplace_back();
  w.kernel = &loaded, w.shape = shape;
  w.arguments.assign(given.begin(), given.end());
  RecordedPiece& p = lists_.pieces.emplace_back();
  p.kernel = kernel, p.counter = &counter, p.index64 = index64;
  p.arguments.assign(arguments.begin(), arguments.end());
  p.memory.assign(arguments.size(), -1);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].view.storage)
      p.memory[i] = note(p.arguments[i].view, facts.reads[i] != 0, facts.writes[i] != 0);
    else
      w.changing = w.changing || arguments[i].slot >= 0;
  }
}

void Recording::multiplied(std::shared_ptr<const RecordedProduct> product, LaunchCounter& counter,
                           std::span<const BufferView> operands) {
  if (ended_) return;
  RecordedWork& w = lists_.work.emplace_back();
  w.kind = RecordedWork::product;
  w.vendor_product = std::move(product);
  RecordedPiece& p = lists_.pieces.emplace_back();
  p.counter = &counter;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool written = i == 2 || i == 4;  // the result and the workspace
    w.arguments.push_back({.byte_offset = operands[i].byte_offset, .elements = operands[i].elements});
    p.arguments.push_back(LaunchArgument(operands[i]));
    p.memory.push_back(operands[i].storage ? note(p.arguments.back().view, !written, written) : -1);
  }
}

void Recording::copied(const BufferView& to, const BufferView& from) {
  if (ended_) return;
  RecordedWork& w = lists_.work.emplace_back();
  w.kind = RecordedWork::copy;
  w.to_offset = to.byte_offset, w.from_offset = from.byte_offset, w.bytes = to.bytes();
  RecordedPiece& p = lists_.pieces.emplace_back();
  p.to = to, p.from = from;
  p.from_memory = note(p.from, true, false);
  p.to_memory = note(p.to, false, true);
}

void Recording::filled(const BufferView& to, std::span<const std::byte> pattern) {
  if (ended_) return;
  RecordedWork& w = lists_.work.emplace_back();
  w.kind = RecordedWork::fill;
  w.to_offset = to.byte_offset, w.bytes = to.bytes();
  std::ranges::copy(pattern, w.pattern.begin());
  w.pattern_bytes = static_cast<std::uint8_t>(pattern.size());
  RecordedPiece& p = lists_.pieces.emplace_back();
  p.to = to;
  p.to_memory = note(p.to, false, true);
}

void Recording::called(const Callback<void()>& f) {
  if (!ended_) lists_.calls.push_back({lists_.pieces.size(), f});
}

void Recording::drew(const std::shared_ptr<RandomStream>& stream, RandomArguments arguments, std::uint64_t blocks) {
  if (ended_) return;
  auto known = std::ranges::find(lists_.streams, stream, &RecordedStream::state);
  if (known == lists_.streams.end()) known = lists_.streams.insert(known, {stream, *stream});
  RecordedPiece& p = lists_.pieces.back();
  p.stream = static_cast<std::int32_t>(known - lists_.streams.begin());
  p.draws = arguments, p.drawn_before = stream->offset - known->first.offset;
  lists_.work.back().changing = true;
  known->drawn = p.drawn_before + blocks;
  if (stream->seed != known->first.seed) known->followed = false;
}

/// Returns the index of this memory. Removes the storage from the view; otherwise, memory that the work releases would
/// not become free.
std::int32_t Recording::note(BufferView& view, bool read, bool written) {
  const std::shared_ptr<Storage> storage = std::move(view.storage);
  view.storage = nullptr;
  const auto lease = pool_.lease_of(storage.get());
  std::int32_t& known = lease ? lease->memory : others_.try_emplace(storage.get(), -1).first->second;
  if (known < 0) {
    known = static_cast<std::int32_t>(lists_.memory.size());
    RecordedMemory& m = lists_.memory.emplace_back();
    m.lease = lease, m.leased = lease != nullptr;
    if (!lease) m.storage = storage;
  }
  RecordedMemory& m = lists_.memory[static_cast<std::size_t>(known)];
  if (!m.read && !m.written) {
    m.read_first = read;
    if (lease && read && !written) {
      // Its contents are from before the recording. The memory must not be shared, even after it is released.
      lease->keeps = true;
      m.storage = pool_.block(*lease);
    }
  }
  m.read = m.read || read;
  m.written = m.written || written;
  m.extent = std::max(m.extent, view.byte_offset + view.bytes());
  return known;
}

void Recording::refuse_with(const ErrorText& text) {
  if (at_refusal_ == AtRefusal::throws) fail<ArgumentError>(text);
  thread_context.recorder = nullptr;
  if (ended_) return;
  refusal_ = error_text(text);
  ended_ = true;
  leave();
  pool_.abandon();
}

void Recording::refused(const char* asked) {
  refuse_with({.operation = asked,
               .with = {{"recording on", to_string(device_)}},
               .wrong = "this thread is recording a Sequence, and a replay cannot repeat this operation",
               .remedy = "Call it before or after Sequence::record; pass values that change between "
                         "replays in device memory or in a scalar with a slot"});
}

void Recording::checked(const char* asked, QueueCore& core) {
  if (&core == &core_) return;
  refuse_with({.operation = asked,
               .with = {{"recording on", to_string(device_)}, {"other queue", to_string(core.device().device)}},
               .wrong = "this thread is recording a Sequence on a different queue",
               .remedy = "Record a separate sequence for each queue"});
}

namespace {

std::string scalar_text(DType dtype, std::uint64_t bits) {
  return ir::with_compute_type(dtype, [&](auto tag) {
    using T = decltype(tag);
    return fmt::format("{}", ir::from_bits<T>(dtype, bits));
  });
}

/// True if the views refer to the same memory: the same storage if it was allocated outside the recordings, otherwise
/// corresponding allocations of the two recordings.
bool same_memory(const RecordedGraph& a, std::int32_t number_a, const BufferView& view_a, const RecordedGraph& b,
                 std::int32_t number_b, const BufferView& view_b) {
  if (number_a != number_b || view_a.byte_offset != view_b.byte_offset || view_a.elements != view_b.elements)
    return false;
  if (number_a < 0) return true;
  const RecordedMemory& m = a.memory[static_cast<std::size_t>(number_a)];
  const RecordedMemory& n = b.memory[static_cast<std::size_t>(number_b)];
  return m.leased == n.leased && (m.leased || m.storage == n.storage);
}

std::string difference_of(const RecordedGraph& lists_a, const RecordedGraph& lists_b, std::size_t i) {
  const RecordedPiece &a = lists_a.pieces[i], &b = lists_b.pieces[i];
  const RecordedWork &u = lists_a.work[i], &v = lists_b.work[i];
  if (u.kind != v.kind || a.name() != b.name()) return fmt::format("{} ran instead of {}", b.name(), a.name());
  if (u.kind == RecordedWork::product) {
    if (u.vendor_product->product != v.vendor_product->product) return fmt::format("{} had different shapes", b.name());
    for (std::size_t k = 0; k < b.arguments.size(); ++k)
      if (!same_memory(lists_a, a.memory[k], a.arguments[k].view, lists_b, b.memory[k], b.arguments[k].view))
        return fmt::format("{} used different memory", b.name());
    return {};
  }
  if (u.kind != RecordedWork::launch) {
    if (u.pattern != v.pattern || u.bytes != v.bytes)
      return fmt::format("{} wrote a different value or length", b.name());
    if (!same_memory(lists_a, a.to_memory, a.to, lists_b, b.to_memory, b.to) ||
        !same_memory(lists_a, a.from_memory, a.from, lists_b, b.from_memory, b.from))
      return fmt::format("{} used different memory", b.name());
    return {};
  }
  if (a.kernel.hash() != b.kernel.hash()) return fmt::format("kernel {} has changed", b.name());
  if (u.shape != v.shape || u.kernel != v.kernel)
    return fmt::format("kernel {} was launched with a different shape", b.name());
  const auto followed = [](const RecordedGraph& lists, const RecordedPiece& p) -> const RecordedStream* {
    if (p.stream < 0) return nullptr;
    const RecordedStream& s = lists.streams[static_cast<std::size_t>(p.stream)];
    return s.followed ? &s : nullptr;
  };
  const RecordedStream *const from_a = followed(lists_a, a), *const from_b = followed(lists_b, b);
  const bool follows = from_a != nullptr && from_b != nullptr && from_a->state == from_b->state;
  if (follows && (a.drawn_before != b.drawn_before || from_a->drawn != from_b->drawn))
    return fmt::format("kernel {} drew different numbers from its Generator", b.name());
  for (std::size_t k = 0; k < b.arguments.size(); ++k) {
    const LaunchArgument &x = a.arguments[k], &y = b.arguments[k];
    const std::string& parameter = b.kernel.function().params[k].name;
    if (!same_memory(lists_a, a.memory[k], x.view, lists_b, b.memory[k], y.view))
      return fmt::format("kernel {} used different memory for {}", b.name(), parameter);
    const bool drawn = follows && (k == b.draws.seed_low || k == b.draws.seed_high || k == b.draws.offset);
    if (b.memory[k] < 0 && x.slot < 0 && !drawn && x.bits != y.bits)
      return fmt::format("kernel {} was called with {} = {} instead of {}", b.name(), parameter,
                         scalar_text(y.dtype, y.bits), scalar_text(x.dtype, x.bits));
  }
  return {};
}

}  // namespace

std::string difference_of(const RecordedGraph& earlier, const RecordedGraph& later) {
  const std::size_t both = std::min(earlier.pieces.size(), later.pieces.size());
  for (std::size_t i = 0; i < both; ++i)
    if (std::string found = difference_of(earlier, later, i); !found.empty()) return found;
  if (earlier.pieces.size() != later.pieces.size())
    return fmt::format("it launched {} kernels and copies instead of {}", later.pieces.size(), earlier.pieces.size());
  if (!std::ranges::equal(earlier.calls, later.calls, {}, &HostCall::before, &HostCall::before))
    return "it called Sequence::between at other places";
  return {};
}

}  // namespace tessera
