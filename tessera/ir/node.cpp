// SPDX-License-Identifier: Apache-2.0
#include "tessera/ir/node.h"

#include <limits>

namespace tessera::ir {

namespace {
template <class K, std::size_t N>
std::string_view pick(const std::string_view (&names)[N], K kind) {
  static_assert(N == static_cast<std::size_t>(K::count_));
  return static_cast<std::size_t>(kind) < N ? names[static_cast<std::size_t>(kind)] : "?";
}
}  // namespace

std::string_view op_name(Op op) {
  static constexpr std::string_view names[] = {
      "none",         "constant",   "param",         "index", "local",   "shared", "unary",  "binary",  "compare",
      "select",       "cast",       "bitcast",       "math",  "vector",  "dot4",   "place",  "mma",     "subgroup",
      "block_reduce", "block_scan", "block_uniform", "load",  "load_if", "store",  "atomic", "barrier", "async",
      "print",        "if",         "for",           "while", "return"};
  static_assert(std::size(names) == static_cast<std::size_t>(Op::count_));
  return names[static_cast<std::size_t>(op)];
}

std::string_view name_of(IndexKind k) {
  static constexpr std::string_view names[] = {"global_id",   "thread_id",     "block_id",       "block_size",
                                               "block_count", "grid_size",     "extent",         "lane_id",
                                               "subgroup_id", "subgroup_size", "subgroup_count", "size",
                                               "counter",     "lane_elements", "lane_rows"};
  return pick(names, k);
}
std::string_view name_of(UnaryOp k) {
  static constexpr std::string_view names[] = {"neg", "abs", "not", "popcount", "clz"};
  return pick(names, k);
}
std::string_view name_of(BinaryOp k) {
  static constexpr std::string_view names[] = {"add", "sub", "mul", "div", "rem", "min",   "max",
                                               "and", "or",  "xor", "shl", "shr", "mul_hi"};
  return pick(names, k);
}
std::string_view name_of(CompareOp k) {
  static constexpr std::string_view names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  return pick(names, k);
}
std::string_view name_of(MathOp k) {
  static constexpr std::string_view names[] = {
      "fma",  "sqrt", "rsqrt", "floor", "ceil", "trunc", "rint", "exp",  "exp2", "log",   "log2",  "sin",  "cos",
      "tanh", "erf",  "pow",   "tan",   "asin", "acos",  "atan", "sinh", "cosh", "log10", "atan2", "hypot"};
  return pick(names, k);
}
std::string_view name_of(VectorOp k) {
  static constexpr std::string_view names[] = {"make", "extract"};
  return pick(names, k);
}
std::string_view name_of(Dot4Signs k) {
  static constexpr std::string_view names[] = {"ss", "us", "uu", "ss127"};
  return pick(names, k);
}
std::string_view name_of(SubgroupOp k) {
  static constexpr std::string_view names[] = {"sum",        "min",          "max",           "any",
                                               "all",        "broadcast",    "shuffle",       "shuffle_xor",
                                               "shuffle_up", "shuffle_down", "inclusive_sum", "exclusive_sum"};
  return pick(names, k);
}
std::string_view name_of(ReduceOp k) {
  static constexpr std::string_view names[] = {"sum", "min", "max", "and", "or"};
  return pick(names, k);
}
std::string_view name_of(AtomicOp k) {
  static constexpr std::string_view names[] = {"add", "min", "max", "exchange", "cas", "and", "or", "xor"};
  return pick(names, k);
}

std::string_view name_of(FragmentRole k) {
  static constexpr std::string_view names[] = {"none", "left", "right", "accumulator"};
  return pick(names, k);
}
std::string_view name_of(MmaOp k) {
  static constexpr std::string_view names[] = {"load", "fill", "multiply", "store", "convert", "reduce_rows"};
  return pick(names, k);
}
std::string_view name_of(PlaceOf k) {
  static constexpr std::string_view names[] = {"row", "column", "slot", "slot_row", "valid"};
  return pick(names, k);
}
std::string_view name_of(AsyncOp k) {
  static constexpr std::string_view names[] = {"copy", "commit", "wait"};
  return pick(names, k);
}

std::string type_name(Type type) {
  std::string out(dtype_name(type.dtype));
  if (type.lanes > 1) out += "x" + std::to_string(type.lanes);
  return out;
}

std::span<const std::uint32_t> operands(const Node& n) {
  std::size_t count = 0;
  switch (n.op) {
    case Op::none:
    case Op::constant:
    case Op::param:
    case Op::index:
    case Op::local:
    case Op::shared:
    case Op::barrier:
    case Op::return_:
    case Op::count_: break;
    case Op::if_:
    case Op::while_: count = 1; break;
    case Op::for_: count = 3; break;
    default:
      while (count < 4 && n.args[count] != no_node) ++count;
  }
  return {n.args.data(), count};
}

std::size_t shared_bytes(const Function& fn) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  std::size_t bytes = 0;
  for (const Node& n : fn.nodes) {
    if (n.op != Op::shared) continue;
    std::size_t size = 0;
    if (bytes > most - 15 || __builtin_mul_overflow(n.imm, dtype_size(n.type.dtype), &size) ||
        __builtin_add_overflow((bytes + 15) & ~std::size_t{15}, size, &bytes))
      return most;
  }
  return bytes;
}

std::size_t NodeHash::operator()(const Node& n) const {
  std::uint64_t h =
      (std::uint64_t(n.op) << 24 | std::uint64_t(n.sub) << 16 | std::uint64_t(n.type.dtype) << 8 | n.type.lanes);
  for (std::uint64_t v : {std::uint64_t(n.extra), std::uint64_t(n.args[0]), std::uint64_t(n.args[1]),
                          std::uint64_t(n.args[2]), std::uint64_t(n.args[3]), n.imm})
    h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
  return h;
}

}  // namespace tessera::ir
