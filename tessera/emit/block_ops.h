// SPDX-License-Identifier: Apache-2.0
// Reductions and scans over a block. They use shared memory, barriers and, if the device supports them, subgroup
// operations. They are correct for every subgroup width and block size. The order of float additions depends on both.
#pragma once

#include <functional>
#include <map>

#include "tessera/ir/builder.h"

namespace tessera::emit {

/// Expands the block operations of a function. Operations on the same dtype share scratch memory.
class BlockOperations {
 public:
  /// `subgroups` is true if the target supports subgroup nodes and its subgroups have more than one lane.
  BlockOperations(ir::Builder& b, DType index, bool subgroups, std::uint32_t threads)
      : b_(b), index_(index), subgroups_(subgroups), threads_(threads) {}

  ir::NodeId reduce(ir::ReduceOp op, ir::NodeId value);
  ir::NodeId scan(ir::NodeId value, bool exclusive);

 private:
  struct Scratch {
    ir::NodeId values = ir::no_node;    ///< one element per thread
    ir::NodeId partials = ir::no_node;  ///< one element per worker or subgroup
  };
  Scratch& scratch(DType dtype, bool values);
  std::uint32_t workers() const;  ///< about the square root of the number of threads
  ir::NodeId linear_id();
  ir::NodeId combine(ir::ReduceOp op, ir::NodeId x, ir::NodeId y);
  void loop(ir::NodeId begin, ir::NodeId end, std::uint32_t step, const std::function<void(ir::NodeId)>& body);
  ir::NodeId index_of(std::int64_t v) { return b_.constant_of(index_, v); }

  ir::Builder& b_;
  DType index_;
  bool subgroups_;
  std::uint32_t threads_;
  std::map<DType, Scratch> scratch_;
};

/// Returns the linear id of the thread in its block. x varies fastest.
ir::NodeId linear_thread_id(ir::Builder& b, const std::array<std::uint32_t, 3>& block, DType index);

}  // namespace tessera::emit
