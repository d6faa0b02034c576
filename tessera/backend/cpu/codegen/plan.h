// SPDX-License-Identifier: Apache-2.0
// Splits a block kernel at its barriers (loop fission). Decides which statements run once per block, which run in a
// loop over the chunks of the block (a region), and which values are stored per thread between regions.
#pragma once

#include <vector>

#include "tessera/backend/cpu/codegen/shape.h"

namespace tessera::cpu {

/// The statements between two barriers, which run in a loop over the chunks.
struct Region {
  std::vector<ir::NodeId> statements;  ///< includes block_reduce and block_uniform, whose operands are read here
  std::vector<ir::NodeId> needed;      ///< pure values of other regions that are recomputed here; operands come first
  std::vector<ir::NodeId> reloaded;    ///< values that other regions stored and that are loaded here
  std::vector<ir::NodeId> locals;      ///< locals that other regions use too
  std::vector<bool> writes;            ///< parallel to `locals`: true if this region writes the local
  std::vector<ir::NodeId> cleared;     ///< locals used only in this region that are zeroed at its start
};

struct Step;
using Steps = std::vector<Step>;

/// One step in the execution of a block.
struct Step {
  enum Kind { once, region, control } kind = once;
  ir::NodeId node = ir::no_node;  ///< once: a uniform statement; control: an if_, for_ or while_ node
  std::size_t number = 0;         ///< region: index in Plan::regions
  Steps first, second;            ///< if_: then and else; for_: body; while_: condition and body
};

/// Where a local is stored.
enum class LocalPlace : std::uint8_t {
  region,   ///< used in one region: in registers
  context,  ///< used in several regions: in memory, per thread
  block     ///< one value for the whole block
};

struct Plan {
  Steps steps;
  std::vector<Region> regions;
  std::vector<bool> spilled;       ///< by node: true if the value is stored in memory, per thread or chunk
  std::vector<LocalPlace> places;  ///< by node; only valid for locals
  std::vector<ir::NodeId> zeroed;  ///< locals in context or block memory that are zeroed when a block starts
};
Plan make_plan(const ir::Function& fn, const Analysis& analysis);

}  // namespace tessera::cpu
