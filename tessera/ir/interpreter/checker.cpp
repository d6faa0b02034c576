// SPDX-License-Identifier: Apache-2.0
#include "tessera/ir/interpreter/checker.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera::ir::engine {

namespace {

bool collide(AccessKind a, AccessKind b) { return a == AccessKind::write || b == AccessKind::write || a != b; }

const char* verb(AccessKind how) {
  return how == AccessKind::read ? "reads" : how == AccessKind::write ? "writes" : "updates atomically";
}

}  // namespace

Checker::Checker(Machine& machine)
    : machine_(machine), groups_(machine.program.lanes), of_memory_(machine.memories.size()) {
  std::vector<bool> written(machine.memories.size());
  for (const auto& block : machine.program.blocks)
    for (const Instruction& i : block) {
      if (written_memory(machine.program.fn[i.node])) written[i.memory] = true;
    }
  std::vector<std::size_t> buffers;
  for (std::size_t k = 0; k < machine.memories.size(); ++k) {
    const Memory& memory = machine.memories[k];
    if (memory.slot->kind == MemorySlot::shared) {
      shadows_.push_back(
          std::make_unique<Shadow>(memory.data, memory.slot->bytes, dtype_size(memory.slot->dtype), false));
      of_memory_[k] = shadows_.back().get();
    } else if (memory.slot->kind == MemorySlot::buffer && memory.elements != 0) {
      buffers.push_back(k);
    }
  }
  // Overlapping buffers share one Shadow. Its cells are small enough that each element covers a whole number of cells.
  std::ranges::sort(buffers, {}, [&](std::size_t k) { return machine.memories[k].data; });
  for (std::size_t first = 0; first < buffers.size();) {
    const std::byte* const begin = machine.memories[buffers[first]].data;
    const std::byte* end = begin;
    std::size_t granule = 0, last = first;
    bool any_written = false;
    for (; last < buffers.size(); ++last) {
      const Memory& memory = machine.memories[buffers[last]];
      if (last > first && memory.data >= end) break;
      const std::size_t size = dtype_size(memory.slot->dtype);
      granule = std::gcd(granule, std::gcd(size, static_cast<std::size_t>(memory.data - begin)));
      end = std::max<const std::byte*>(end, memory.data + memory.elements * size);
      any_written = any_written || written[buffers[last]];
    }
    if (any_written) {
      shadows_.push_back(std::make_unique<Shadow>(begin, static_cast<std::size_t>(end - begin), granule, true));
      for (std::size_t k = first; k < last; ++k) of_memory_[buffers[k]] = shadows_.back().get();
    }
    first = last;
  }
}

void Checker::begin_block() {
  std::ranges::fill(groups_, 0u);
  copies_.clear(), incomplete_.clear();
}

void Checker::check_complete(const Instruction& i, std::uint32_t lane, std::uint64_t element, const char* how) {
  const auto it = incomplete_.find(key(i.memory, element));
  if (it == incomplete_.end()) return;
  const Memory& memory = machine_.memories[i.memory];
  machine_.found({.kind = Finding::Kind::race,
                  .node = i.node,
                  .lane = lane,
                  .wrong = machine_.thread_text(machine_.block, lane) + " " + how + " " + memory.slot->name + "[" +
                           std::to_string(element) + "] before an asynchronous copy to it by " +
                           machine_.thread_text(machine_.block, it->second) + " is complete",
                  .remedy = "Call async_wait in the thread that copies, followed by a barrier if others use the data",
                  .memory = &memory,
                  .element = static_cast<std::int64_t>(element)});
}

void Checker::copy_async(const Instruction& i, std::uint32_t lane, std::uint64_t to, std::uint32_t source,
                         std::uint64_t from) {
  // The copy writes at any time until the wait ends, so both ends of this time are checked.
  touch(i, lane, to, static_cast<std::uint32_t>(i.imm), AccessKind::write);
  for (std::uint64_t c = 0; c < i.imm; ++c) incomplete_[key(i.memory, to + c)] = lane;
  copies_.push_back({&i, lane, source, groups_[lane], to, from});
}

void Checker::wait(std::uint32_t lane, std::uint32_t groups) {
  std::erase_if(copies_, [&](const Copy& copy) {
    if (copy.lane != lane || copy.group + groups >= groups_[lane]) return false;
    const Instruction& i = *copy.instruction;
    const Memory &to = machine_.memories[i.memory], &from = machine_.memories[copy.source];
    const std::size_t size = dtype_size(to.slot->dtype);
    for (std::uint64_t c = 0; c < i.imm; ++c) incomplete_.erase(key(i.memory, copy.to + c));
    touch(i, lane, copy.to, static_cast<std::uint32_t>(i.imm), AccessKind::write);
    std::memcpy(to.data + copy.to * size, from.data + copy.from * size, i.imm * size);
    return true;
  });
}

void Checker::touch(const Instruction& i, std::uint32_t lane, std::uint64_t element, std::uint32_t width,
                    AccessKind how) {
  const Memory& memory = machine_.memories[i.memory];
  if (!incomplete_.empty())
    for (std::uint32_t c = 0; c < width; ++c) check_complete(i, lane, element + c, verb(how));
  if (memory.written)
    for (std::uint32_t c = 0; c < width; ++c) touch_written(i, lane, element + c, how);
  Shadow* shadow = of_memory_[i.memory];
  if (!shadow) return;
  const std::size_t size = dtype_size(memory.slot->dtype), cells = size / shadow->granule();
  for (std::uint32_t c = 0; c < width; ++c) {
    const std::size_t first = shadow->cell_of(memory.data + (element + c) * size);
    for (std::size_t k = 0; k < cells; ++k)
      if (touch_cell(i, static_cast<std::uint16_t>(lane), element + c, (*shadow)[first + k], how,
                     shadow->across_blocks()))
        break;
  }
}

void Checker::touch_written(const Instruction& i, std::uint32_t lane, std::uint64_t element, AccessKind how) {
  const Memory& memory = machine_.memories[i.memory];
  const std::size_t size = dtype_size(memory.slot->dtype);
  std::uint8_t* const flags = memory.written + element * size;
  if (how != AccessKind::write && std::find(flags, flags + size, 0) != flags + size)
    uninitialised(i, lane, element, "which is uninitialised",
                  "New arrays and buffers are not zeroed: fill them or upload data before reading them");
  if (how != AccessKind::read) std::fill_n(flags, size, std::uint8_t{1});
}

void Checker::uninitialised(const Instruction& i, std::uint32_t lane, std::uint64_t element, const char* wrong,
                            const char* remedy) {
  const Memory& memory = machine_.memories[i.memory];
  machine_.found({.kind = Finding::Kind::uninitialised,
                  .node = i.node,
                  .lane = lane,
                  .wrong = machine_.thread_text(machine_.block, lane) + " reads " + memory.slot->name + "[" +
                           std::to_string(element) + "], " + wrong,
                  .remedy = remedy,
                  .memory = &memory,
                  .element = static_cast<std::int64_t>(element)});
}

bool Checker::touch_cell(const Instruction& i, std::uint16_t lane, std::uint64_t element, Cell& cell, AccessKind how,
                         bool across) {
  const std::uint32_t block = static_cast<std::uint32_t>(machine_.block);
  bool bad = false;
  if (!across && how != AccessKind::write && cell.touches[static_cast<int>(AccessKind::write)].block != block &&
      cell.touches[static_cast<int>(AccessKind::atomic)].block != block) {
    uninitialised(i, lane, element, "which no thread of its block has written",
                  "Shared memory is not zeroed: store to it first, and put a barrier before other threads read it");
    bad = true;
  }
  for (int k = 0; k < 3 && !bad; ++k) {
    const AccessKind other = static_cast<AccessKind>(k);
    const AccessHistory& t = cell.touches[static_cast<std::size_t>(k)];
    if (!collide(how, other) || t.lane == AccessHistory::none) continue;
    bad = true;
    if (t.block == block && t.epoch == epoch_ && t.lane != lane)
      race(i, lane, element, how, other, block, t.lane, t.node);
    else if (t.block == block && t.epoch == epoch_ && t.other_lane != AccessHistory::none)
      race(i, lane, element, how, other, block, t.other_lane, t.other_node);
    else if (across && t.block != block)
      race(i, lane, element, how, other, t.block, t.lane, t.node);
    else if (across && t.earlier_lane != AccessHistory::none)
      race(i, lane, element, how, other, t.earlier_block, t.earlier_lane, t.earlier_node);
    else
      bad = false;
  }

  AccessHistory& mine = cell.touches[static_cast<std::size_t>(how)];
  if (mine.block == block && mine.epoch == epoch_ && mine.lane != AccessHistory::none) {
    if (mine.lane != lane && mine.other_lane == AccessHistory::none) mine.other_lane = lane, mine.other_node = i.node;
    return bad;
  }
  if (mine.block != block && mine.lane != AccessHistory::none)
    mine.earlier_block = mine.block, mine.earlier_lane = mine.lane, mine.earlier_node = mine.node;
  mine.block = block, mine.epoch = epoch_;
  mine.lane = lane, mine.node = i.node;
  mine.other_lane = AccessHistory::none, mine.other_node = no_node;
  return bad;
}

void Checker::race(const Instruction& i, std::uint32_t lane, std::uint64_t element, AccessKind how,
                   AccessKind other_how, std::uint32_t other_block, std::uint16_t other_lane, NodeId other) {
  const Memory& memory = machine_.memories[i.memory];
  const bool map = machine_.program.fn.kind == KernelKind::map,
             same_block = other_block == static_cast<std::uint32_t>(machine_.block);
  const std::string where = to_string(machine_.program.fn.sources[other]);
  machine_.found(
      {.kind = Finding::Kind::race,
       .node = i.node,
       .lane = lane,
       .wrong = machine_.thread_text(machine_.block, lane) + " " + verb(how) + " " + memory.slot->name + "[" +
                std::to_string(element) + "], which " + machine_.thread_text(other_block, other_lane) + " " +
                verb(other_how) + (where.empty() ? "" : " at " + where) + ", without synchronisation",
       .remedy = map || !same_block
                     ? "Write each element from one thread only, use atomics, or split the kernel into two launches"
                     : "Put a barrier between the two accesses, or use atomics for both",
       .memory = &memory,
       .element = static_cast<std::int64_t>(element),
       .other = other});
}

}  // namespace tessera::ir::engine
