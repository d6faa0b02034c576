// SPDX-License-Identifier: Apache-2.0
// Analyses how values vary across the lanes of a vector, to choose between scalar and vector instructions. Threads with
// consecutive linear ids become lanes. `width` lanes form a chunk. The chunks of a block run one after another.
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
  linear,   ///< value of lane 0 + lane * stride; the stride is multiplied by the value of `by` if there is one
  varying
};
struct Shape {
  ShapeKind kind = ShapeKind::none;
  std::int64_t stride = 0;      ///< linear shapes only
  ir::NodeId by = ir::no_node;  ///< linear shapes only: a factor that is equal in all lanes and known at launch
  friend bool operator==(Shape, Shape) = default;
  bool scalar() const { return kind == ShapeKind::uniform || kind == ShapeKind::chunk; }
  bool varying() const { return kind == ShapeKind::varying; }
  bool constant_stride() const { return kind == ShapeKind::linear && by == ir::no_node; }
};
/// Returns the most specific shape that covers both shapes.
Shape join(Shape a, Shape b);

/// Returns true if the counter of this for_ may wrap while other lanes continue the loop. A lane that has left the loop
/// would then become active again. The counter cannot wrap if the step is 1 and all lanes have the same begin, because
/// the loop stops at the largest end.
bool counter_may_wrap(const ir::Function& fn, const ir::Node& loop, Shape begin);

/// The mapping of the threads of a block to lanes.
struct LaneLayout {
  unsigned width = 4;
  std::uint32_t threads = 0;       ///< threads in a block; 0 for map kernels
  std::array<Shape, 3> thread_id;  ///< map kernels: the shape of global_id
  std::uint32_t chunks() const { return (threads + width - 1) / width; }
  bool tail() const { return threads % width != 0; }
};
/// Chooses the layout. `native` is the preferred number of lanes of the target. The layout has fewer lanes if the rows
/// of a block are shorter.
LaneLayout lane_layout(const ir::Function& fn, unsigned native);

/// The properties of nodes that code generation needs.
struct Analysis {
  std::vector<Shape> shapes;      ///< indexed by node; for a local, the shape of its elements
  std::vector<bool> has_barrier;  ///< by node: true if the statement ends a region or contains a statement that does
  std::vector<bool> definite;     ///< by node: true for a local with one element that is stored before all other uses
};
/// Analyses a function. If `noalias` is true, the buffers do not overlap, so read-only buffers do not change.
Analysis analyse(const ir::Function& fn, const LaneLayout& layout, bool noalias);

}  // namespace tessera::cpu
