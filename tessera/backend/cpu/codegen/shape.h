// SPDX-License-Identifier: Apache-2.0
// How values vary over the lanes of a vector: what decides between one scalar instruction and a vector one.
// Threads with consecutive linear ids are lanes; `width` of them are a chunk, and the chunks of a block run in turn.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tessera/ir/node.h"

namespace tessera::cpu {

enum class ShapeKind : std::uint8_t {
  none,     ///< not known yet
  uniform,  ///< the same in the whole block
  chunk,    ///< the same in all lanes of a chunk
  linear,   ///< lane 0's value + lane * stride, and times the value of `by` where that is a node
  varying
};
struct Shape {
  ShapeKind kind = ShapeKind::none;
  std::int64_t stride = 0;      ///< of linear
  ir::NodeId by = ir::no_node;  ///< of linear: a number that all lanes share, known when the kernel runs
  friend bool operator==(Shape, Shape) = default;
  bool scalar() const { return kind == ShapeKind::uniform || kind == ShapeKind::chunk; }
  bool varying() const { return kind == ShapeKind::varying; }
  bool constant_stride() const { return kind == ShapeKind::linear && by == ir::no_node; }
};
/// The least shape that holds both.
Shape join(Shape a, Shape b);

/// Whether a lane that has left this for_ could begin again, were its counter counted on: sums of it may wrap. One that
/// begins equally for all lanes and goes up by 1 ends at the greatest end.
bool counter_may_wrap(const ir::Function& fn, const ir::Node& loop, Shape begin);

/// How the threads of a block lie in lanes.
struct LaneLayout {
  unsigned width = 4;
  std::uint32_t threads = 0;       ///< in a block; 0: a map kernel
  std::array<Shape, 3> thread_id;  ///< of map kernels: of global_id
  std::uint32_t chunks() const { return (threads + width - 1) / width; }
  bool tail() const { return threads % width != 0; }
};
/// `native`: lanes that the target likes. Narrower where rows of the block are.
LaneLayout lane_layout(const ir::Function& fn, unsigned native);

/// Properties of every node that code generation asks for.
struct Analysis {
  std::vector<Shape> shapes;      ///< by node; of a local what its elements hold
  std::vector<bool> has_barrier;  ///< by node: the statement is, or contains, something that ends a region
  std::vector<bool> definite;     ///< locals: a store of the one element precedes all other uses
};
/// `noalias`: buffers are disjoint, so that what is read-only stays as it is.
Analysis analyse(const ir::Function& fn, const LaneLayout& layout, bool noalias);

}  // namespace tessera::cpu
