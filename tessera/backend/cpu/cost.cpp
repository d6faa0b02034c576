// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/cost.h"

#include <algorithm>
#include <array>

namespace tessera::cpu {

using namespace ir;

Cost::Cost(const Function& lowered) {
  Loop& kernel = loops_.emplace_back();
  kernel.rounds.base = lowered.kind == KernelKind::block ? static_cast<double>(lowered.threads_per_block()) : 1;
  kernel.operations = 1;
  add_block(lowered, 0, 0);
}

void Cost::add_block(const Function& fn, BlockId block, std::uint32_t loop) {
  for (const NodeId id : fn.blocks[block]) {
    const Node& n = fn[id];
    loops_[loop].operations += n.op == Op::math ? 8 : n.op == Op::atomic ? 32 : 1;
    std::uint32_t inner = loop;
    if ((n.op == Op::for_ || n.op == Op::while_) && loops_.size() < most_loops) {
      inner = static_cast<std::uint32_t>(loops_.size());
      loops_.push_back({loop, trip_count(fn, n), 0});
    }
    for_each_nested(n, [&](BlockId nested) { add_block(fn, nested, inner); });
  }
}

/// Returns (end - begin) / step. If `begin` is unknown, it is assumed to be 0.
Cost::Affine Cost::trip_count(const Function& fn, const Node& loop) {
  constexpr double unknown = 64, of_while = 16;
  if (loop.op == Op::while_) return {.base = of_while};
  const std::optional<Affine> begin = affine_of(fn, loop.args[0]), end = affine_of(fn, loop.args[1]),
                              step = affine_of(fn, loop.args[2]);
  if (!end || !step || step->from != Affine::nothing || step->base == 0) return {.base = unknown};
  Affine rounds = *end;
  if (begin && begin->from == Affine::nothing) rounds.base -= begin->base;
  rounds.base /= step->base, rounds.factor /= step->base;
  return rounds;
}

std::optional<Cost::Affine> Cost::affine_of(const Function& fn, NodeId id, int depth) {
  if (depth > 8) return {};  // nodes share operands, so the number of paths may double at each level
  const Node& n = fn[id];
  const auto param = [&](Affine::From from) { return Affine{from, static_cast<std::uint32_t>(n.imm), 0, 1}; };
  if (n.op == Op::index)
    return static_cast<IndexKind>(n.sub) == IndexKind::buffer_size ? std::optional(param(Affine::size)) : std::nullopt;
  if (!is_int(n.type.dtype)) return {};
  if (n.op == Op::constant) return Affine{.base = static_cast<double>(static_cast<std::int64_t>(n.imm))};
  if (n.op == Op::param) return param(Affine::scalar);
  if (n.op == Op::cast) return affine_of(fn, n.args[0], depth + 1);
  if (n.op != Op::binary) return {};
  const auto op = static_cast<BinaryOp>(n.sub);
  std::optional<Affine> a = affine_of(fn, n.args[0], depth + 1), b = affine_of(fn, n.args[1], depth + 1);
  if (op == BinaryOp::min || op == BinaryOp::max) {  // prefers the operand that depends on the launch
    if (!a || (b && b->from == Affine::nothing)) std::swap(a, b);
    return a;
  }
  if (!a || !b) return {};
  if (op == BinaryOp::mul && a->from == Affine::nothing) std::swap(a, b);
  if (b->from != Affine::nothing) {
    if (op != BinaryOp::add || a->from != Affine::nothing) return {};
    std::swap(a, b);
  }
  switch (op) {
    case BinaryOp::add: a->base += b->base; return a;
    case BinaryOp::sub: a->base -= b->base; return a;
    case BinaryOp::mul: a->base *= b->base, a->factor *= b->base; return a;
    case BinaryOp::div:
      if (b->base == 0) return {};
      a->base /= b->base, a->factor /= b->base;
      return a;
    default: return {};
  }
}

double Cost::operator()(std::span<const Argument> arguments) const {
  std::array<double, most_loops> times;
  double sum = 0;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    const Loop& l = loops_[i];
    times[i] = std::max(l.rounds(arguments), 0.0) * (i == 0 ? 1 : times[l.outer]);
    sum += l.operations * times[i];
  }
  return sum;
}

void Cost::pack(Packer& out) const {
  out << std::uint64_t{loops_.size()};
  for (const auto& [outer, rounds, operations] : loops_)
    out << outer << static_cast<std::uint8_t>(rounds.from) << rounds.param << rounds.base << rounds.factor
        << operations;
}

Cost::Cost(Unpacker& in) {
  for (auto loops = in.take<std::uint64_t>(); loops > 0; --loops) {
    Loop& l = loops_.emplace_back();
    l.outer = in.take<std::uint32_t>();
    l.rounds.from = static_cast<Affine::From>(in.take<std::uint8_t>()), l.rounds.param = in.take<std::uint32_t>();
    l.rounds.base = in.take<double>(), l.rounds.factor = in.take<double>(), l.operations = in.take<double>();
  }
}

}  // namespace tessera::cpu
