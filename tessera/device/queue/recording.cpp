// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue/recording.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_check.h"
#include "tessera/device/placement/placement.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {

namespace {
const std::string copy_name = "(copy)", fill_name = "(fill)";
}

const std::string& RecordedPiece::name() const {
  if (counter != nullptr) return counter->name;
  return from_memory >= 0 ? copy_name : fill_name;
}

Recording::Recording(Queue& queue, SequenceMemory& pool, std::vector<RecordedWork>& work,
                     std::vector<RecordedPiece>& pieces, std::vector<RecordedMemory>& memory)
    : device_(queue.device()),
      core_(queue.core()),
      pool_(pool),
      current_(queue),
      work_(work),
      pieces_(pieces),
      memory_(memory) {
  pool_.begin(queue);
  thread_context.recorder = this;
}

Recording::~Recording() {
  thread_context.recorder = nullptr;
  if (!ended_) pool_.abandon();
}

std::vector<SequenceMemory::Left> Recording::end() {
  auto left = pool_.end();
  ended_ = true;
  return left;
}

std::shared_ptr<Storage> Recording::allocate(Device device, std::size_t bytes, const std::string& label) {
  return device == device_ ? pool_.lend(bytes, label) : nullptr;
}

void Recording::launched(const Kernel& kernel, LoadedKernel& loaded, LaunchCounter& counter, bool index64,
                         std::array<std::uint64_t, 3> shape, std::span<const LaunchArgument> arguments,
                         std::span<const Argument> given, const KernelFacts& facts) {
  RecordedWork& w = work_.emplace_back();
  w.kernel = &loaded, w.shape = shape;
  w.arguments.assign(given.begin(), given.end());
  RecordedPiece& p = pieces_.emplace_back();
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

void Recording::copied(const BufferView& to, const BufferView& from) {
  RecordedWork& w = work_.emplace_back();
  w.kind = RecordedWork::copy;
  w.to_offset = to.byte_offset, w.from_offset = from.byte_offset, w.bytes = to.bytes();
  RecordedPiece& p = pieces_.emplace_back();
  p.to = to, p.from = from;
  p.from_memory = note(p.from, true, false);
  p.to_memory = note(p.to, false, true);
}

void Recording::filled(const BufferView& to, std::span<const std::byte> pattern) {
  RecordedWork& w = work_.emplace_back();
  w.kind = RecordedWork::fill;
  w.to_offset = to.byte_offset, w.bytes = to.bytes();
  std::ranges::copy(pattern, w.pattern.begin());
  w.pattern_bytes = static_cast<std::uint8_t>(pattern.size());
  RecordedPiece& p = pieces_.emplace_back();
  p.to = to;
  p.to_memory = note(p.to, false, true);
}

/// The number of this memory. Takes the storage out of the view: what the work gives up shall be free.
std::int32_t Recording::note(BufferView& view, bool read, bool written) {
  const std::shared_ptr<Storage> storage = std::move(view.storage);
  view.storage = nullptr;
  const auto lease = pool_.lease_of(storage.get());
  std::int32_t& known = lease ? lease->memory : others_.try_emplace(storage.get(), -1).first->second;
  if (known < 0) {
    known = static_cast<std::int32_t>(memory_.size());
    memory_.emplace_back().lease = lease;
    if (!lease) memory_.back().storage = storage;
  }
  RecordedMemory& m = memory_[static_cast<std::size_t>(known)];
  if (!m.read && !m.written) {
    m.read_first = read;
    if (lease && read && !written) {
      // Nothing here made what it holds, so nobody else may have its memory, even if it is given up.
      lease->keeps = true;
      m.storage = pool_.block(*lease);
    }
  }
  m.read = m.read || read;
  m.written = m.written || written;
  m.extent = std::max(m.extent, view.byte_offset + view.bytes());
  return known;
}

void Recording::refused(const char* asked) {
  fail<ArgumentError>({.asked = asked,
                       .with = {{"recording on", to_string(device_)}},
                       .wrong = "this thread records a Sequence, and a replay could not repeat this",
                       .todo = "Do it before or after Sequence::record; what changes from replay to replay lies in "
                               "device memory that is written before, or in a scalar with a slot"});
}

void Recording::checked(const char* asked, QueueCore& core) {
  if (&core == &core_) return;
  fail<ArgumentError>({.asked = asked,
                       .with = {{"recording on", to_string(device_)}, {"goes to", to_string(core.device().device)}},
                       .wrong = "this thread records a Sequence of one queue, and this is work of another",
                       .todo = "Record a sequence for each queue"});
}

}  // namespace tessera
