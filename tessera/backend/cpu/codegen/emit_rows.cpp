// SPDX-License-Identifier: Apache-2.0
// Loops along rows, a row a lane: four rounds read a tile of four columns with one load of 16 bytes (two of 8-byte
// elements) a lane, and transpose it within the parts of 16 bytes of a register, which no shuffle across them has to
// do. Each lane computes what it would have done, in the same order.
#include <algorithm>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

// By how much an index grows with each round of a loop; nothing if that is not known.
std::optional<std::int64_t> Emitter::per_round(NodeId id, NodeId counter, int& steps) const {
  if (id == counter) return 1;
  const Node& n = fn_[id];
  if (--steps < 0) return {};
  if (is_leaf(n.op)) return 0;
  if (!is_pure(n.op)) return {};
  std::vector<std::int64_t> parts;
  for (NodeId a : operands(n)) {
    const auto part = per_round(a, counter, steps);
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

// Does the loop do nothing but compute, with at least one load whose lanes go through rows side by side?
bool Emitter::reads_rows(const Node& loop) {
  tiles_.clear();
  const auto& body = fn_.blocks[loop.extra];
  if (body.size() > 48) return false;
  for (NodeId id : body) {
    const Node& n = fn_[id];
    const bool local = (is_load(n.op) || n.op == Op::store) && fn_[n.args[0]].op == Op::local;
    if (!is_pure(n.op) && !is_load(n.op) && !local) return false;
    if (n.op != Op::load || local) continue;
    const Shape shape = analysis_.shapes[n.args[1]];
    const std::size_t bytes = bytes_of(n.type.dtype);
    if (shape.kind != ShapeKind::linear || accesses_.places[id].window != Place::none) continue;
    if ((shape.constant_stride() && shape.stride == 1) || (bytes != 4 && bytes != 8)) continue;
    if (width_ * bytes % 16 != 0) continue;
    int steps = 48;
    if (per_round(n.args[1], loop.args[3], steps) == 1) tiles_.try_emplace(id);
  }
  return !tiles_.empty();
}

Emitter::Value* Emitter::tiled_load(NodeId id) {
  auto& columns = tiles_[id];
  if (tile_round_ != 0) return columns[static_cast<std::size_t>(tile_round_)];
  const Node& n = fn_[id];
  const Held index = held(n.args[1]);
  const unsigned bytes = static_cast<unsigned>(bytes_of(n.type.dtype)), each = 16 / bytes;  // elements of 16 bytes
  llvm::Type* element = memory_type(n.type.dtype);
  auto* part_type = llvm::FixedVectorType::get(element, each);
  Value *first = element_address(n.args[0], index.value), *step = stride_of(index.shape);
  const auto part = [&](unsigned lane, unsigned column) {
    Value* row = lane_address(first, element, step, lane);
    return b_.CreateAlignedLoad(part_type, b_.CreateConstGEP1_64(element, row, column), llvm::Align(bytes));
  };
  for (unsigned column = 0; column < tile_columns; column += each) {
    // Row r of every square: lanes r, r + each, r + 2 each ...
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
    // Squares of `each` columns are transposed by halves: first single elements of rows r and r + each / 2, then pairs.
    const auto unpacked = [&](Value* a, Value* b, unsigned size, bool high) {
      std::vector<int> from;
      for (unsigned i = 0; i < width_; i += each)
        for (unsigned k = 0; k < each; k += size) {
          const unsigned at = i + (high ? each / 2 : 0) + k / (2 * size) * size;
          for (unsigned j = 0; j < size; ++j) from.push_back(static_cast<int>((k / size % 2 ? width_ : 0) + at + j));
        }
      return b_.CreateShuffleVector(a, b, from);
    };
    if (each == 2) {
      columns[column] = unpacked(rows[0], rows[1], 1, false);
      columns[column + 1] = unpacked(rows[0], rows[1], 1, true);
      continue;
    }
    Value *low01 = unpacked(rows[0], rows[1], 1, false), *high01 = unpacked(rows[0], rows[1], 1, true);
    Value *low23 = unpacked(rows[2], rows[3], 1, false), *high23 = unpacked(rows[2], rows[3], 1, true);
    columns[0] = unpacked(low01, low23, 2, false), columns[1] = unpacked(low01, low23, 2, true);
    columns[2] = unpacked(high01, high23, 2, false), columns[3] = unpacked(high01, high23, 2, true);
  }
  return columns[0];
}

}  // namespace tessera::cpu
