// SPDX-License-Identifier: Apache-2.0
// Loops in which each lane reads one row. Four iterations together load a tile of four columns, with one 16-byte load
// per lane (two for 8-byte elements). The tile is transposed within the 16-byte parts of registers, so no shuffle
// crosses these parts. Each lane computes the same values in the same order. Stores of four adjacent elements are
// transposed in the same way.
#include <algorithm>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

// Returns how much an index grows per iteration of the loop, or std::nullopt if this is unknown.
std::optional<std::int64_t> Emitter::per_round(NodeId id, const Node& loop, int& steps) const {
  if (id == loop.args[3]) return 1;
  const Node& n = fn_[id];
  if (--steps < 0) return {};
  if (is_leaf(n.op) || std::ranges::find(fn_.blocks[loop.extra], id) == fn_.blocks[loop.extra].end()) return 0;
  if (!is_pure(n.op)) return {};
  std::vector<std::int64_t> parts;
  for (NodeId a : operands(n)) {
    const auto part = per_round(a, loop, steps);
    if (!part) return {};
    parts.push_back(*part);
  }
  if (std::ranges::all_of(parts, [](std::int64_t part) { return part == 0; })) return 0;
  if (n.op != Op::binary) return {};
  switch (n.kind<BinaryOp>()) {
    case BinaryOp::add: return parts[0] + parts[1];
    case BinaryOp::sub: return parts[0] - parts[1];
    default: return {};
  }
}

// One step of a transposition of square tiles with `each` rows. The first step interleaves single elements of two rows.
// The second step interleaves pairs of elements.
Emitter::Value* Emitter::unpacked(Value* a, Value* b, unsigned each, unsigned size, bool high) {
  std::vector<int> from;
  for (unsigned i = 0; i < width_; i += each)
    for (unsigned k = 0; k < each; k += size) {
      const unsigned at = i + (high ? each / 2 : 0) + k / (2 * size) * size;
      for (unsigned j = 0; j < size; ++j) from.push_back(static_cast<int>((k / size % 2 ? width_ : 0) + at + j));
    }
  return b_.CreateShuffleVector(a, b, from);
}
// Transposes all 4 x 4 tiles.
std::array<Emitter::Value*, 4> Emitter::transposed(const std::array<Value*, 4>& rows) {
  Value *low01 = unpacked(rows[0], rows[1], 4, 1, false), *high01 = unpacked(rows[0], rows[1], 4, 1, true);
  Value *low23 = unpacked(rows[2], rows[3], 4, 1, false), *high23 = unpacked(rows[2], rows[3], 4, 1, true);
  return {unpacked(low01, low23, 4, 2, false), unpacked(low01, low23, 4, 2, true),
          unpacked(high01, high23, 4, 2, false), unpacked(high01, high23, 4, 2, true)};
}

// Returns true if the loop has no control flow and at least one load can be tiled. The lanes of such a load read
// different rows, and the loop does not store to this memory.
bool Emitter::reads_rows(const Node& loop) {
  tiles_.clear();
  const auto& body = fn_.blocks[loop.extra];
  if (body.size() > 48) return false;
  for (NodeId id : body) {
    const Node& n = fn_[id];
    if (!is_pure(n.op) && !is_load(n.op) && n.op != Op::store) return false;
    if (n.op != Op::load || fn_[n.args[0]].op == Op::local) continue;
    const Shape shape = analysis_.shapes[n.args[1]];
    const std::size_t bytes = bytes_of(n.type.dtype);
    if (shape.kind != ShapeKind::linear || accesses_.places[id].window != Place::none) continue;
    if ((shape.constant_stride() && shape.stride == 1) || (bytes != 4 && bytes != 8)) continue;
    if (width_ * bytes % 16 != 0) continue;
    int steps = 48;
    if (per_round(n.args[1], loop, steps) == 1) tiles_.try_emplace(id);
  }
  const auto stored = [&](const auto& tile) {
    return std::ranges::any_of(body, [&](NodeId id) {
      return fn_[id].op == Op::store && fn_[fn_[id].args[0]].op != Op::local &&
             !disjoint(fn_[id].args[0], fn_[tile.first].args[0]);
    });
  };
  std::erase_if(tiles_, stored);
  return !tiles_.empty();
}

Emitter::Value* Emitter::tiled_load(NodeId id) {
  auto& columns = tiles_[id];
  if (tile_round_ != 0) return columns[static_cast<std::size_t>(tile_round_)];
  const Node& n = fn_[id];
  const ShapedValue index = shaped_value(n.args[1]);
  // `each` is the number of elements in 16 bytes.
  const unsigned bytes = static_cast<unsigned>(bytes_of(n.type.dtype)), each = 16 / bytes;
  llvm::Type* element = memory_type(n.type.dtype);
  auto* part_type = llvm::FixedVectorType::get(element, each);
  Value *first = element_address(n.args[0], index.value), *step = stride_of(index.shape);
  const auto part = [&](unsigned lane, unsigned column) {
    Value* row = lane_address(first, element, step, lane);
    return b_.CreateAlignedLoad(part_type, b_.CreateConstGEP1_64(element, row, column), llvm::Align(bytes));
  };
  for (unsigned column = 0; column < tile_columns; column += each) {
    // Row r of all tiles consists of the lanes r, r + each, r + 2 * each, ...
    std::vector<Value*> rows;
    for (unsigned r = 0; r < each; ++r) {
      std::vector<Value*> parts;
      for (unsigned lane = r; lane < width_; lane += each) parts.push_back(part(lane, column));
      for (unsigned size = each; parts.size() > 1; size *= 2) {
        std::vector<int> all;
        for (unsigned i = 0; i < 2 * size; ++i) all.push_back(static_cast<int>(i));
        std::vector<Value*> wider;
        for (std::size_t i = 0; i < parts.size(); i += 2)
          wider.push_back(b_.CreateShuffleVector(parts[i], parts[i + 1], all));
        parts = std::move(wider);
      }
      rows.push_back(parts[0]);
    }
    if (each == 2) {
      columns[column] = unpacked(rows[0], rows[1], each, 1, false);
      columns[column + 1] = unpacked(rows[0], rows[1], each, 1, true);
    } else {
      columns = transposed({rows[0], rows[1], rows[2], rows[3]});
    }
  }
  return columns[0];
}

// Stores four adjacent elements of each lane with one store per lane.
void Emitter::store_rows(const PendingStores& w) {
  const Node& n = fn_[w.id];
  const std::size_t bytes = bytes_of(dtype(n.args[0]));
  llvm::Type* element = memory_type(dtype(n.args[0]));
  Value *first = anchors_[w.window], *step = stride_of(analysis_.shapes[n.args[1]]);
  if (w.missing != 0 || (bytes != 4 && bytes != 8)) {
    for (std::size_t m = 0; m < w.members.size(); ++m)
      if (w.members[m]) store_by_lane(w.id, b_.CreateConstGEP1_64(element, first, m), w.members[m]);
    return;
  }
  const auto store = [&](Value* rows, unsigned at, unsigned lane, unsigned column) {
    std::vector<int> part;
    for (unsigned i = 0; i < 16 / bytes; ++i) part.push_back(static_cast<int>(at + i));
    Value* row = lane_address(first, element, step, lane);
    b_.CreateAlignedStore(b_.CreateShuffleVector(rows, part), b_.CreateConstGEP1_64(element, row, column),
                          llvm::Align(bytes));
  };
  if (bytes == 4) {
    const auto rows = transposed({w.members[0], w.members[1], w.members[2], w.members[3]});
    for (unsigned lane = 0; lane < width_; ++lane) store(rows[lane % 4], lane / 4 * 4, lane, 0);
    return;
  }
  for (unsigned column = 0; column < 4; column += 2)
    for (const bool odd : {false, true}) {  // the even lanes, then the odd lanes
      Value* rows = unpacked(w.members[column], w.members[column + 1], 2, 1, odd);
      for (unsigned i = 0; i < width_ / 2; ++i) store(rows, 2 * i, 2 * i + (odd ? 1 : 0), column);
    }
}

}  // namespace tessera::cpu
