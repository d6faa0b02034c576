// SPDX-License-Identifier: Apache-2.0
// How values vary across the lanes of a vector, which decides between scalar and vector instructions.
// Threads with consecutive linear ids are lanes; `width` of them form a chunk; the chunks of a block run one after the
// other.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tessera/ir/node.h"

namespace tessera::cpu {

enum class ShapeKind : std::uint8_t {
  none,     ///< not known yet
  uniform,  ///< equal in the whole block
  chunk,    ///< equal in all lanes of a chunk
  linear,   ///< lane 0's value + lane * stride, times the value of `by` if that is a node
  varying
};
struct Shape {
  ShapeKind kind = ShapeKind::none;
  std::int64_t stride = 0;      ///< of linear
  ir::NodeId by = ir::no_node;  ///< of linear: a factor that is equal in all lanes and known at launch
  friend bool operator==(Shape, Shape) = default;
  bool scalar() const { return kind == ShapeKind::uniform || kind == ShapeKind::chunk; }
  bool varying() const { return kind == ShapeKind::varying; }
  bool constant_stride() const { return kind == ShapeKind::linear && by == ir::no_node; }
};
/// The most specific shape that covers both.
Shape join(Shape a, Shape b);

/// Whether a lane that has left this for_ could become active again if its counter kept counting, because sums may
/// wrap. A loop whose begin is equal in all lanes and whose step is 1 stops at the largest end.
bool counter_may_wrap(const ir::Function& fn, const ir::Node& loop, Shape begin);

/// How the threads of a block map to lanes.
struct LaneLayout {
  unsigned width = 4;
  std::uint32_t threads = 0;       ///< in a block; 0: a map kernel
  std::array<Shape, 3> thread_id;  ///< for map kernels: of global_id
  std::uint32_t chunks() const { return (threads + width - 1) / width; }
  bool tail() const { return threads % width != 0; }
};
/// `native`: the target's preferred number of lanes. Fewer if the block's rows are shorter.
LaneLayout lane_layout(const ir::Function& fn, unsigned native);

/// Properties of each node that code generation needs.
struct Analysis {
  std::vector<Shape> shapes;      ///< by node; for a local, the shape of its elements
  std::vector<bool> has_barrier;  ///< by node: the statement is, or contains, the end of a region
  std::vector<bool> definite;     ///< locals: a store of the only element precedes all other uses
};
/// `noalias`: buffers are disjoint, so that read-only buffers do not change.
Analysis analyse(const ir::Function& fn, const LaneLayout& layout, bool noalias);

}  // namespace tessera::cpu
