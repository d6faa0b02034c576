// SPDX-License-Identifier: Apache-2.0
// Fission of a block kernel at its barriers: which statements run once a block, which run in a loop over the block's
// chunks (a region), and what must be kept per thread from one region to the next.
#pragma once

#include <vector>

#include "tessera/backend/cpu/codegen/shape.h"

namespace tessera::cpu {

/// Statements between two barriers, run chunk by chunk.
struct Region {
  std::vector<ir::NodeId> statements;  ///< block_reduce and block_uniform among them: they take their operand here
  std::vector<ir::NodeId> needed;      ///< pure values of other regions that are computed again here; operands first
  std::vector<ir::NodeId> reloaded;    ///< values of other regions that are loaded from where those kept them
  std::vector<ir::NodeId> locals;      ///< locals that live on in other regions
  std::vector<bool> writes;            ///< beside `locals`: does this region change it?
  std::vector<ir::NodeId> cleared;     ///< locals of this region alone that start as zero here
};

struct Step;
using Steps = std::vector<Step>;

/// One step of a block, in order.
struct Step {
  enum Kind { once, region, control } kind = once;
  ir::NodeId node = ir::no_node;  ///< once: a uniform statement; control: if_, for_ or while_
  std::size_t number = 0;         ///< region: position in Plan::regions
  Steps first, second;            ///< control: if true, if false; body; condition and body of while_
};

/// Where a local lives.
enum class LocalPlace : std::uint8_t {
  region,   ///< in one region: registers
  context,  ///< per thread in memory, across regions
  block     ///< one for the block
};

struct Plan {
  Steps steps;
  std::vector<Region> regions;
  std::vector<bool> spilled;       ///< by node: stored per thread (or chunk) when computed
  std::vector<LocalPlace> places;  ///< by node, of locals
  std::vector<ir::NodeId> zeroed;  ///< context and block locals that must be zero when a block starts
};
Plan make_plan(const ir::Function& fn, const Analysis& analysis);

}  // namespace tessera::cpu
