// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/launch/operation_count.h"

#include <algorithm>
#include <array>

namespace tessera {

OperationCount::OperationCount(const ir::Function& lowered) {
  Loop& kernel = loops_.emplace_back();
  kernel.rounds.base = lowered.kind == ir::KernelKind::block ? static_cast<double>(lowered.threads_per_block()) : 1;
  kernel.operations = 1;
  const auto time = [](const ir::Node& n) { return n.op == ir::Op::math ? 8.0 : n.op == ir::Op::atomic ? 32.0 : 1.0; };
  add_block(lowered, 0, 0, time, {});
}

OperationCount::OperationCount(const ir::Function& fn, const Weight& weight, double unknown) {
  Loop& kernel = loops_.emplace_back();
  kernel.rounds.base = fn.kind == ir::KernelKind::block ? static_cast<double>(fn.threads_per_block()) : 1;
  add_block(fn, 0, 0, weight, unknown);
}

void OperationCount::add_block(const ir::Function& fn, ir::BlockId block, std::uint32_t loop, const Weight& weight,
                               std::optional<double> unknown_trips) {
  for (const ir::NodeId id : fn.blocks[block]) {
    const ir::Node& n = fn[id];
    loops_[loop].operations += weight(n);
    std::uint32_t inner = loop;
    if ((n.op == ir::Op::for_ || n.op == ir::Op::while_) && loops_.size() < most_loops) {
      inner = static_cast<std::uint32_t>(loops_.size());
      const bool is_while = n.op == ir::Op::while_;
      const Affine unknown{.base = unknown_trips.value_or(is_while ? 16 : 64)};
      loops_.push_back({loop, is_while ? unknown : trip_count(fn, n, !unknown_trips).value_or(unknown), 0});
    }
    ir::for_each_nested(n, [&](ir::BlockId nested) { add_block(fn, nested, inner, weight, unknown_trips); });
  }
}

namespace {

/// Returns whether the value is the number of a thread in its block, or a multiple of it.
bool is_of_thread(const ir::Function& fn, ir::NodeId id) {
  const ir::Node& n = fn[id];
  if (n.op == ir::Op::index) {
    const auto kind = n.kind<ir::IndexKind>();
    return kind == ir::IndexKind::thread_id || kind == ir::IndexKind::lane_id || kind == ir::IndexKind::subgroup_id;
  }
  return n.op == ir::Op::binary && ((fn[n.args[0]].op == ir::Op::constant && is_of_thread(fn, n.args[1])) ||
                                    (fn[n.args[1]].op == ir::Op::constant && is_of_thread(fn, n.args[0])));
}

}  // namespace

/// Returns (end - begin) / step. If `begin` is unknown and not a part of `end`, it is assumed to be 0 if `guesses` is
/// true or if it is the number of a thread.
std::optional<OperationCount::Affine> OperationCount::trip_count(const ir::Function& fn, const ir::Node& loop,
                                                                 bool guesses) {
  const std::optional<Affine> step = affine_of(fn, loop.args[2]);
  if (!step || step->from != Affine::nothing || step->base == 0) return {};
  std::optional<Affine> rounds = difference_of(fn, loop.args[1], loop.args[0], 0);
  // A loop that starts at the part of a block plus the number of a thread.
  if (const ir::Node& begin = fn[loop.args[0]];
      !rounds && begin.op == ir::Op::binary && begin.kind<ir::BinaryOp>() == ir::BinaryOp::add)
    for (const ir::NodeId part : {begin.args[0], begin.args[1]})
      if (!rounds) rounds = difference_of(fn, loop.args[1], part, 0);
  if (!rounds && (guesses || is_of_thread(fn, loop.args[0]))) rounds = affine_of(fn, loop.args[1]);
  if (!rounds) return {};
  rounds->base /= step->base, rounds->factor /= step->base;
  return rounds;
}

/// Returns a - b if it depends on the launch only: both do, or b is an addend of a.
std::optional<OperationCount::Affine> OperationCount::difference_of(const ir::Function& fn, ir::NodeId a, ir::NodeId b,
                                                                    int depth) {
  if (depth > 8) return {};
  if (const std::optional<Affine> begin = affine_of(fn, b); begin && begin->from == Affine::nothing) {
    std::optional<Affine> end = affine_of(fn, a);
    if (end) end->base -= begin->base;
    return end;
  }
  const ir::Node& n = fn[a];
  if (n.op != ir::Op::binary) return {};
  if (n.kind<ir::BinaryOp>() == ir::BinaryOp::add)
    return n.args[0] == b ? affine_of(fn, n.args[1]) : n.args[1] == b ? affine_of(fn, n.args[0]) : std::nullopt;
  if (n.kind<ir::BinaryOp>() != ir::BinaryOp::min) return {};
  const std::optional<Affine> first = difference_of(fn, n.args[0], b, depth + 1);
  return first ? first : difference_of(fn, n.args[1], b, depth + 1);
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
  if (op == ir::BinaryOp::sub && !affine_of(fn, n.args[1], depth + 1))
    return difference_of(fn, n.args[0], n.args[1], depth + 1);
  std::optional<Affine> a = affine_of(fn, n.args[0], depth + 1), b = affine_of(fn, n.args[1], depth + 1);
  if (op == ir::BinaryOp::min || op == ir::BinaryOp::max) {  // prefers the operand that depends on the launch
    if (op == ir::BinaryOp::max && (!a || !b)) return {};
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
