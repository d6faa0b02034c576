// SPDX-License-Identifier: Apache-2.0
// Finds races and reads of uninitialised memory: records which threads have accessed each element since the last
// barrier. Memory that the launch never writes is not tracked.
#pragma once

#include <memory>
#include <unordered_map>

#include "tessera/ir/interpreter/machine.h"

namespace tessera::ir::engine {

enum class AccessKind : std::uint8_t { read, write, atomic };

/// The threads that accessed one element in one way. Two different threads since the last barrier (the epoch) are
/// enough to detect a conflict with any third thread. One thread of an earlier block represents all threads of earlier
/// blocks.
struct AccessHistory {
  static constexpr std::uint16_t none = 0xffff;
  std::uint32_t block = ~0u, earlier_block = ~0u, epoch = 0;
  std::uint16_t lane = none, other_lane = none, earlier_lane = none;
  NodeId node = no_node, other_node = no_node, earlier_node = no_node;
};
static_assert(sizeof(AccessHistory) <= 32);
struct Cell {
  std::array<AccessHistory, 3> touches;  // indexed by AccessKind
};

/// Access histories for a range of memory. They are allocated on first access. Overlapping buffers share one Shadow.
class Shadow {
 public:
  Shadow(const std::byte* begin, std::size_t bytes, std::size_t granule, bool across_blocks)
      : begin_(begin),
        granule_(granule),
        pages_((bytes / granule + page_cells - 1) / page_cells + 1),
        across_(across_blocks) {}
  std::size_t cell_of(const std::byte* p) const { return static_cast<std::size_t>(p - begin_) / granule_; }
  std::size_t granule() const { return granule_; }
  bool across_blocks() const { return across_; }
  Cell& operator[](std::size_t cell) {
    auto& page = pages_[cell / page_cells];
    if (!page) page = std::make_unique<Cell[]>(page_cells);
    return page[cell % page_cells];
  }

 private:
  static constexpr std::size_t page_cells = 512;
  const std::byte* begin_;
  std::size_t granule_;
  std::vector<std::unique_ptr<Cell[]>> pages_;
  bool across_;
};

class Checker {
 public:
  /// Keeps a reference to the machine, so the machine must outlive the checker. Block numbers are stored in 32 bits.
  explicit Checker(Machine& machine);

  void barrier() { ++epoch_; }
  /// Forgets the asynchronous copies of the previous block.
  void begin_block();
  /// Starts a copy of i.imm elements from `source`, which is a number of Machine::memories. See AsyncOp.
  void copy_async(const Instruction& i, std::uint32_t lane, std::uint64_t to, std::uint32_t source, std::uint64_t from);
  void commit(std::uint32_t lane) { ++groups_[lane]; }
  void wait(std::uint32_t lane, std::uint32_t groups);
  /// Records that a lane accesses `width` elements, and reports conflicts.
  void touch(const Instruction& i, std::uint32_t lane, std::uint64_t element, std::uint32_t width, AccessKind how);

 private:
  struct Copy {
    const Instruction* instruction;
    std::uint32_t lane, source, group;
    std::uint64_t to, from;
  };
  static std::uint64_t key(std::uint32_t memory, std::uint64_t element) {
    return std::uint64_t{memory} << 40 | element;
  }
  void check_complete(const Instruction& i, std::uint32_t lane, std::uint64_t element, const char* how);
  void touch_written(const Instruction& i, std::uint32_t lane, std::uint64_t element, AccessKind how);
  void uninitialised(const Instruction& i, std::uint32_t lane, std::uint64_t element, const char* wrong,
                     const char* remedy);
  bool touch_cell(const Instruction& i, std::uint16_t lane, std::uint64_t element, Cell& cell, AccessKind how,
                  bool across);
  void race(const Instruction& i, std::uint32_t lane, std::uint64_t element, AccessKind how, AccessKind other_how,
            std::uint32_t other_block, std::uint16_t other_lane, NodeId other);

  Machine& machine_;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> groups_;  ///< number of groups that each thread has committed
  std::vector<Copy> copies_;           ///< incomplete copies, in the order in which they started
  std::unordered_map<std::uint64_t, std::uint32_t> incomplete_;  ///< the thread that copies an element, by `key`
  std::vector<std::unique_ptr<Shadow>> shadows_;
  std::vector<Shadow*> of_memory_;  // null for memory that is never written
};

}  // namespace tessera::ir::engine
