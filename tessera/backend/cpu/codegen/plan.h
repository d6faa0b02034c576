// SPDX-License-Identifier: Apache-2.0
// Fission of a block kernel at its barriers: which statements run once per block, which run in a loop over the block's
// chunks (a region), and which values must be stored per thread between regions.
#pragma once

#include <vector>

#include "tessera/backend/cpu/codegen/shape.h"

namespace tessera::cpu {

/// Statements between two barriers, run chunk by chunk.
struct Region {
  std::vector<ir::NodeId> statements;  ///< block_reduce and block_uniform are included: they read their operands here
  std::vector<ir::NodeId> needed;      ///< pure values of other regions that are recomputed here; operands first
  std::vector<ir::NodeId> reloaded;    ///< values that other regions stored, loaded here
  std::vector<ir::NodeId> locals;      ///< locals that other regions use too
  std::vector<bool> writes;            ///< parallel to `locals`: does this region modify it?
  std::vector<ir::NodeId> cleared;     ///< locals used only in this region that are zeroed at its start
};

struct Step;
using Steps = std::vector<Step>;

/// One step of a block, in order.
struct Step {
  enum Kind { once, region, control } kind = once;
  ir::NodeId node = ir::no_node;  ///< once: a uniform statement; control: if_, for_ or while_
  std::size_t number = 0;         ///< region: index in Plan::regions
  Steps first, second;            ///< control: then and else; body; condition and body of while_
};

/// Where a local is stored.
enum class LocalPlace : std::uint8_t {
  region,   ///< used in one region: registers
  context,  ///< per thread in memory, across regions
  block     ///< one for the block
};

struct Plan {
  Steps steps;
  std::vector<Region> regions;
  std::vector<bool> spilled;       ///< by node: stored per thread (or chunk) when computed
  std::vector<LocalPlace> places;  ///< by node, for locals
  std::vector<ir::NodeId> zeroed;  ///< context and block locals that must be zero when a block starts
};
Plan make_plan(const ir::Function& fn, const Analysis& analysis);

}  // namespace tessera::cpu
