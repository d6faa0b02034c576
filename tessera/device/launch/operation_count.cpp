// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/launch/operation_count.h"

#include <algorithm>
#include <array>

namespace tessera {

namespace {

/// Estimates the time of a node in units of a simple operation.
double weight_of(const ir::Node& n, OperationCount::Nodes nodes) {
  // A lane's part of a product of fragments is 128 multiply-adds, which matrix units compute 16 times as fast as
  // others.
  if (n.op == ir::Op::mma && n.kind<ir::MmaOp>() == ir::MmaOp::multiply) return 8;
  const bool simple = n.op != ir::Op::math || n.kind<ir::MathOp>() == ir::MathOp::fma;
  if (nodes == OperationCount::Nodes::arithmetic)
    return n.op == ir::Op::math                                                          ? simple ? 1 : 8
           : n.op == ir::Op::dot4                                                        ? 1
           : (n.op == ir::Op::binary || n.op == ir::Op::unary) && is_float(n.type.dtype) ? n.type.lanes
                                                                                         : 0;
  return n.op == ir::Op::math ? 8 : n.op == ir::Op::atomic ? 32 : 1;
}

}  // namespace

OperationCount::OperationCount(const ir::Function& fn, Nodes nodes) {
  Loop& kernel = loops_.emplace_back();
  kernel.rounds.base = fn.kind == ir::KernelKind::block ? static_cast<double>(fn.threads_per_block()) : 1;
  kernel.operations = 1;
  add_block(fn, 0, 0, nodes);
}

void OperationCount::add_block(const ir::Function& fn, ir::BlockId block, std::uint32_t loop, Nodes nodes) {
  for (const ir::NodeId id : fn.blocks[block]) {
    const ir::Node& n = fn[id];
    loops_[loop].operations += weight_of(n, nodes);
    std::uint32_t inner = loop;
    if ((n.op == ir::Op::for_ || n.op == ir::Op::while_) && loops_.size() < most_loops) {
      inner = static_cast<std::uint32_t>(loops_.size());
      loops_.push_back({loop, trip_count(fn, n), 0});
    }
    ir::for_each_nested(n, [&](ir::BlockId nested) { add_block(fn, nested, inner, nodes); });
  }
}

/// Returns (end - begin) / step. If `begin` is unknown, it is assumed to be 0.
OperationCount::Affine OperationCount::trip_count(const ir::Function& fn, const ir::Node& loop) {
  constexpr double unknown = 64, of_while = 16;
  if (loop.op == ir::Op::while_) return {.base = of_while};
  const std::optional<Affine> begin = affine_of(fn, loop.args[0]), end = affine_of(fn, loop.args[1]),
                              step = affine_of(fn, loop.args[2]);
  if (!end || !step || step->from != Affine::nothing || step->base == 0) return {.base = unknown};
  Affine rounds = *end;
  if (begin && begin->from == Affine::nothing) rounds.base -= begin->base;
  rounds.base /= step->base, rounds.factor /= step->base;
  return rounds;
}

std::optional<OperationCount::Affine> OperationCount::affine_of(const ir::Function& fn, ir::NodeId id, int depth) {
  if (depth > 8) return {};  // nodes share operands, so the number of paths may double at each level
  const ir::Node& n = fn[id];
  const auto param = [&](Affine::From from) { return Affine{from, static_cast<std::uint32_t>(n.imm), 0, 1}; };
  if (n.op == ir::Op::index)
    return static_cast<ir::IndexKind>(n.sub) == ir::IndexKind::buffer_size ? std::optional(param(Affine::size))
                                                                           : std::nullopt;
  if (!is_int(n.type.dtype)) return {};
  if (n.op == ir::Op::constant) return Affine{.base = static_cast<double>(static_cast<std::int64_t>(n.imm))};
  if (n.op == ir::Op::param) return param(Affine::scalar);
  if (n.op == ir::Op::cast) return affine_of(fn, n.args[0], depth + 1);
  if (n.op != ir::Op::binary) return {};
  const auto op = static_cast<ir::BinaryOp>(n.sub);
  std::optional<Affine> a = affine_of(fn, n.args[0], depth + 1), b = affine_of(fn, n.args[1], depth + 1);
  if (op == ir::BinaryOp::min || op == ir::BinaryOp::max) {  // prefers the operand that depends on the launch
    if (!a || (b && b->from == Affine::nothing)) std::swap(a, b);
    return a;
  }
  if (!a || !b) return {};
  if (op == ir::BinaryOp::mul && a->from == Affine::nothing) std::swap(a, b);
  if (b->from != Affine::nothing) {
    if (op != ir::BinaryOp::add || a->from != Affine::nothing) return {};
    std::swap(a, b);
  }
  switch (op) {
    case ir::BinaryOp::add: a->base += b->base; return a;
    case ir::BinaryOp::sub: a->base -= b->base; return a;
    case ir::BinaryOp::mul: a->base *= b->base, a->factor *= b->base; return a;
    case ir::BinaryOp::div:
      if (b->base == 0) return {};
      a->base /= b->base, a->factor /= b->base;
      return a;
    default: return {};
  }
}

double OperationCount::operator()(std::span<const Argument> arguments) const {
  std::array<double, most_loops> times;
  double sum = 0;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    const Loop& l = loops_[i];
    times[i] = std::max(l.rounds(arguments), 0.0) * (i == 0 ? 1 : times[l.outer]);
    sum += l.operations * times[i];
  }
  return sum;
}

void OperationCount::pack(Packer& out) const {
  out << std::uint64_t{loops_.size()};
  for (const auto& [outer, rounds, operations] : loops_)
    out << outer << static_cast<std::uint8_t>(rounds.from) << rounds.param << rounds.base << rounds.factor
        << operations;
}

OperationCount::OperationCount(Unpacker& in) {
  for (auto loops = in.take<std::uint64_t>(); loops > 0; --loops) {
    Loop& l = loops_.emplace_back();
    l.outer = in.take<std::uint32_t>();
    l.rounds.from = static_cast<Affine::From>(in.take<std::uint8_t>()), l.rounds.param = in.take<std::uint32_t>();
    l.rounds.base = in.take<double>(), l.rounds.factor = in.take<double>(), l.operations = in.take<double>();
  }
}

}  // namespace tessera
