// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/error.h"

namespace tessera::cpu {

using namespace ir;

namespace {

constexpr double unknown_rounds = 64, while_rounds = 16;
constexpr std::uint32_t most_loops = 64;  // further ones count as part of those around them

double number_of(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::i8: return static_cast<std::int8_t>(bits);
    case DType::i16: return static_cast<std::int16_t>(bits);
    case DType::i32: return static_cast<std::int32_t>(bits);
    case DType::u8: return static_cast<std::uint8_t>(bits);
    case DType::u16: return static_cast<std::uint16_t>(bits);
    case DType::u32: return static_cast<std::uint32_t>(bits);
    case DType::u64: return static_cast<double>(bits);
    default: return static_cast<double>(static_cast<std::int64_t>(bits));
  }
}

}  // namespace

Cost::Cost(const Function& lowered) {
  loops_.push_back({});
  steps_.push_back({.value = lowered.kind == KernelKind::block ? static_cast<double>(lowered.threads_per_block()) : 1});
  loops_[0].steps = 1;
  loops_[0].operations = 1;
  walk(lowered, 0, 0);
}

void Cost::walk(const Function& fn, BlockId block, std::uint32_t loop) {
  for (const NodeId id : fn.blocks[block]) {
    const Node& n = fn[id];
    loops_[loop].operations += n.op == Op::math ? 8 : n.op == Op::atomic ? 32 : 1;
    std::uint32_t inner = loop;
    if ((n.op == Op::for_ || n.op == Op::while_) && loops_.size() < most_loops) {
      inner = static_cast<std::uint32_t>(loops_.size());
      rounds_of(fn, n);
      loops_.push_back({loop, static_cast<std::uint32_t>(steps_.size()), 0});
    }
    for_each_nested(n, [&](BlockId nested) { walk(fn, nested, inner); });
  }
}

/// ceil((end - begin) / step), a begin that is not known being 0.
void Cost::rounds_of(const Function& fn, const Node& loop) {
  const std::size_t before = steps_.size();
  const auto binary = [&](BinaryOp op) {
    steps_.push_back({.kind = Step::binary, .what = static_cast<std::uint8_t>(op)});
  };
  if (loop.op == Op::for_ && write(fn, loop.args[1], 0)) {
    const std::size_t end = steps_.size();
    if (write(fn, loop.args[0], 1))
      binary(BinaryOp::sub);
    else
      steps_.resize(end);
    if (write(fn, loop.args[2], 1)) return binary(BinaryOp::div);
  }
  steps_.resize(before);
  steps_.push_back({.value = loop.op == Op::for_ ? unknown_rounds : while_rounds});
}

bool Cost::write(const Function& fn, NodeId id, std::size_t depth) {
  if (depth == deepest || steps_.size() > 4 * most_loops) return false;
  const Node& n = fn[id];
  switch (n.op) {
    case Op::constant:
      if (!is_int(n.type.dtype)) return false;
      steps_.push_back({.value = number_of(n.type.dtype, n.imm)});
      return true;
    case Op::param:
      if (!is_int(n.type.dtype)) return false;
      steps_.push_back({.kind = Step::scalar,
                        .what = static_cast<std::uint8_t>(n.type.dtype),
                        .param = static_cast<std::uint32_t>(n.imm)});
      return true;
    case Op::index:
      if (static_cast<IndexKind>(n.sub) != IndexKind::buffer_size) return false;
      steps_.push_back({.kind = Step::size, .param = static_cast<std::uint32_t>(n.imm)});
      return true;
    case Op::cast:
      return is_int(n.type.dtype) && is_int(fn[n.args[0]].type.dtype) && write(fn, n.args[0], depth);
    case Op::binary: {
      const auto op = static_cast<BinaryOp>(n.sub);
      switch (op) {
        case BinaryOp::add:
        case BinaryOp::sub:
        case BinaryOp::mul:
        case BinaryOp::div:
        case BinaryOp::min:
        case BinaryOp::max: break;
        default: return false;
      }
      if (!write(fn, n.args[0], depth) || !write(fn, n.args[1], depth + 1)) return false;
      steps_.push_back({.kind = Step::binary, .what = n.sub});
      return true;
    }
    default: return false;
  }
}

double Cost::operator()(std::span<const Argument> arguments) const {
  std::array<double, most_loops> times;
  std::array<double, deepest + 2> stack;
  double sum = 0;
  std::size_t step = 0;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    std::size_t top = 0;
    for (; step < loops_[i].steps; ++step) {
      const Step& s = steps_[step];
      if (s.kind == Step::number) {
        stack[top++] = s.value;
      } else if (s.kind == Step::scalar) {
        stack[top++] = number_of(static_cast<DType>(s.what), arguments[s.param].bits);
      } else if (s.kind == Step::size) {
        stack[top++] = static_cast<double>(arguments[s.param].elements);
      } else {
        const double b = stack[--top];
        double& a = stack[top - 1];
        switch (static_cast<BinaryOp>(s.what)) {
          case BinaryOp::add: a += b; break;
          case BinaryOp::sub: a -= b; break;
          case BinaryOp::mul: a *= b; break;
          case BinaryOp::div: a = b == 0 ? 0 : a / b; break;
          case BinaryOp::min: a = std::min(a, b); break;
          default: a = std::max(a, b); break;
        }
      }
    }
    times[i] = std::max(stack[0], 0.0) * (i == 0 ? 1 : times[loops_[i].outer]);
    sum += loops_[i].operations * times[i];
  }
  return sum;
}

void Cost::pack(Packer& out) const {
  out << std::uint64_t{loops_.size()};
  for (const Loop& l : loops_) out << l.outer << l.steps << l.operations;
  for (const Step& s : steps_) out << static_cast<std::uint8_t>(s.kind) << s.what << s.param << s.value;
}

Cost::Cost(Unpacker& in) {
  for (auto loops = in.take<std::uint64_t>(); loops > 0; --loops) {
    Loop& l = loops_.emplace_back();
    l.outer = in.take<std::uint32_t>(), l.steps = in.take<std::uint32_t>(), l.operations = in.take<double>();
  }
  for (std::uint32_t steps = loops_.empty() ? 0 : loops_.back().steps; steps > 0; --steps) {
    Step& s = steps_.emplace_back();
    s.kind = static_cast<Step::Kind>(in.take<std::uint8_t>()), s.what = in.take<std::uint8_t>();
    s.param = in.take<std::uint32_t>(), s.value = in.take<double>();
  }
}

}  // namespace tessera::cpu
