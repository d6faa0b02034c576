// SPDX-License-Identifier: Apache-2.0
// The text of values. Signed overflow is undefined in C, so signed additions, subtractions and multiplications are
// computed in an unsigned type, which wraps. Index arithmetic does not overflow. Lowering marks it, so that it is
// written in the signed type.
#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "tessera/emit/c_writer.h"
#include "tessera/emit/metal.h"

namespace tessera::emit {

using namespace ir;

namespace {

std::string at_least(const Text& t, Binding level) { return t.binding < level ? "(" + t.s + ")" : t.s; }
bool narrow(DType t) { return is_int(t) && dtype_size(t) < 4; }

}  // namespace

Text CWriter::infix(const Text& a, const char* op, const Text& b, Binding level) const {
  const Binding above = static_cast<Binding>(static_cast<int>(level) + 1);
  // C does not require parentheses for nested comparisons or bit operations, but they make the text easier to read.
  const bool plain = level == Binding::sum || level == Binding::product || level == Binding::logical_and ||
                     level == Binding::logical_or;
  const Binding left = plain                                                                          ? level
                       : level == Binding::shift || level == Binding::less || level == Binding::equal ? Binding::sum
                                                                                                      : Binding::unary;
  const bool comparison = level == Binding::less || level == Binding::equal;
  const Binding right = plain ? above : comparison ? Binding::sum : Binding::unary;
  return {at_least(a, level == Binding::shift ? Binding::unary : left) + " " + op + " " + at_least(b, right), level,
          a.loads || b.loads};
}

Text CWriter::call(const std::string& function, std::initializer_list<Text> arguments) const {
  Text t{function + "("};
  bool first = true;
  for (const Text& a : arguments) {
    t.s += (first ? "" : ", ") + a.s;
    t.loads = t.loads || a.loads;
    first = false;
  }
  t.s += ")";
  return t;
}

Text CWriter::take(NodeId id) {
  const Node& n = fn_[id];
  if (n.op == Op::constant) {
    Text t{constant_text(dialect_, n.type.dtype, n.imm)};
    if (t.s[0] == '-' || (t.s[0] == '(' && t.s.find(' ') == t.s.npos)) t.binding = Binding::unary;
    if (is_signed_int(n.type.dtype)) t.wrapping = unsigned_constant_text(dialect_, n.type.dtype, n.imm);
    return t;
  }
  if (!names_[id].empty()) {
    // A bool argument is passed as one byte.
    if (n.op == Op::param && n.type.dtype == DType::boolean) return {names_[id] + " != 0", Binding::equal};
    return {names_[id]};
  }
  const auto it = std::ranges::find(pending_order_, id);
  if (it != pending_order_.end()) pending_order_.erase(it);
  return pending_[id];
}

std::string CWriter::element(NodeId memory, NodeId index, bool* loads) {
  const Node& m = fn_[memory];
  const Text at = take(index);
  if (loads) *loads = at.loads;
  if (m.op == Op::local && m.imm == 1) return names_[memory];
  return fmt::format("{}[{}]", names_[memory], at.s);
}

Text CWriter::expression(NodeId id) {
  const Node& n = fn_[id];
  switch (n.op) {
    case Op::unary: return unary(n);
    case Op::binary: return binary(n);
    case Op::compare: return compare(n);
    case Op::select: {
      const Text c = take(n.args[0]), x = take(n.args[1]), y = take(n.args[2]);
      return {at_least(c, Binding::logical_or) + " ? " + at_least(x, Binding::logical_or) + " : " +
                  at_least(y, Binding::conditional),
              Binding::conditional, c.loads || x.loads || y.loads};
    }
    case Op::cast: return cast(n.type.dtype, fn_[n.args[0]].type.dtype, take(n.args[0]));
    case Op::bitcast: {
      const Text a = take(n.args[0]);
      Text t{bitcast_text(dialect_, n.type.dtype, fn_[n.args[0]].type.dtype, a.s), Binding::primary, a.loads};
      if (t.s[0] == '(') t.binding = Binding::unary;
      return t;
    }
    case Op::math: return math(n);
    case Op::vector: return vector(n);
    case Op::dot4: return call(prelude_.dot4(n.kind<Dot4Signs>()), {take(n.args[0]), take(n.args[1]), take(n.args[2])});
    case Op::block_uniform: return take(n.args[0]);
    case Op::subgroup: return subgroup(n);
    case Op::load: return load(n);
    case Op::load_if: {
      const Text mask = take(n.args[2]), other = take(n.args[3]);
      bool loads;
      std::string from = element(n.args[0], n.args[1], &loads);
      const bool flag = n.type.dtype == DType::boolean && fn_[n.args[0]].op != Op::local;
      if (flag) from += " != 0";
      return {at_least(mask, Binding::logical_or) + " ? " + from + " : " + at_least(other, Binding::conditional),
              Binding::conditional, true};
    }
    default: refuse(id, std::string(op_name(n.op)));
  }
}

std::string CWriter::unsigned_operand(const Text& t, DType type, NodeId, Binding level) {
  if (!t.wrapping.empty()) return t.wrapping_binding < level ? "(" + t.wrapping + ")" : t.wrapping;
  return fmt::format("({}){}", unsigned_text(dialect_, type), at_least(t, Binding::unary));
}

Text CWriter::wrapping(const Node& n, const char* op, Binding level, const Text& a, const Text& b) {
  const DType t = n.type.dtype;
  const Binding above = static_cast<Binding>(static_cast<int>(level) + 1);
  Text out;
  out.loads = a.loads || b.loads;
  const std::string x = unsigned_operand(a, t, n.args[0], level), y = unsigned_operand(b, t, n.args[1], above);
  out.wrapping = x + " " + op + " " + y;
  out.wrapping_binding = level;
  out.s = fmt::format("({})({})", type_text(dialect_, t), out.wrapping);
  out.binding = Binding::unary;
  if (narrow(t)) out.wrapping.clear();  // the high bits are not part of the value
  return out;
}

Text CWriter::unary(const Node& n) {
  const DType t = n.type.dtype;
  const Text a = take(n.args[0]);
  switch (n.kind<UnaryOp>()) {
    case UnaryOp::neg:
      if (is_float(t) || n.extra || (is_unsigned_int(t) && !narrow(t)))
        return {"-" + (a.s[0] == '-' ? "(" + a.s + ")" : at_least(a, Binding::unary)), Binding::unary, a.loads};
      return wrapping(n, "-", Binding::sum, {"0", Binding::primary, false, unsigned_constant_text(dialect_, t, 0)}, a);
    case UnaryOp::abs:
      if (is_float(t)) return call(uses_opencl_names(dialect_) || t == DType::f64 ? "fabs" : "fabsf", {a});
      if (is_unsigned_int(t)) return a;
      return call(prelude_.absolute(t), {a});
    case UnaryOp::not_:
      if (t == DType::boolean) return {"!" + at_least(a, Binding::unary), Binding::unary, a.loads};
      if (narrow(t))
        return {fmt::format("({})~{}", type_text(dialect_, t), at_least(a, Binding::unary)), Binding::unary, a.loads};
      return {"~" + at_least(a, Binding::unary), Binding::unary, a.loads};
    default: {  // popcount and clz use the width of the operand's type
      const bool pop = n.kind<UnaryOp>() == UnaryOp::popcount;
      static constexpr DType widths[] = {DType::u8, DType::u16, DType::u32, DType::u64};
      const DType own = widths[dtype_size(t) == 1 ? 0 : dtype_size(t) == 2 ? 1 : dtype_size(t) == 4 ? 2 : 3];
      const bool wide = dtype_size(t) == 8;
      std::string value = fmt::format("({}){}", type_text(dialect_, own), at_least(a, Binding::unary));
      if (narrow(t)) value = fmt::format("({}){}", type_text(dialect_, DType::u32), value);
      std::string counted;
      if (metal(dialect_) && wide)
        counted = fmt::format("{}({})", prelude_.metal_wide(pop ? "popcount" : "clz"), value);
      else if (uses_opencl_names(dialect_))
        counted = fmt::format("{}({})", pop ? "popcount" : "clz", value);
      else if (pop)
        counted = fmt::format("{}({})", wide ? "__popcll" : "__popc", value);
      else
        counted = fmt::format("{}(({}){})", wide ? "__clzll" : "__clz", wide ? "long long" : "int", value);
      if (narrow(t) && !pop) counted = fmt::format("({} - {})", counted, 32 - 8 * dtype_size(t));
      return {fmt::format("({}){}", type_text(dialect_, t), counted), Binding::unary, a.loads};
    }
  }
}

Text CWriter::binary(const Node& n) {
  const DType t = n.type.dtype;
  const BinaryOp op = n.kind<BinaryOp>();
  const Text a = take(n.args[0]), b = take(n.args[1]);
  const Node& divisor = fn_[n.args[1]];
  if (t == DType::boolean) {
    if (op == BinaryOp::and_) return infix(a, "&&", b, Binding::logical_and);
    if (op == BinaryOp::or_) {
      const Text left = a.binding == Binding::logical_and ? Text{"(" + a.s + ")", Binding::primary, a.loads} : a;
      const Text right = b.binding == Binding::logical_and ? Text{"(" + b.s + ")", Binding::primary, b.loads} : b;
      return infix(left, "||", right, Binding::logical_or);
    }
    return infix(a, "!=", b, Binding::equal);
  }
  const bool real = is_float(t);
  const bool plain = real || n.extra || (is_unsigned_int(t) && !narrow(t));
  const std::string f = !uses_opencl_names(dialect_) && t == DType::f32 ? "f" : "";
  switch (op) {
    case BinaryOp::add: return plain ? infix(a, "+", b, Binding::sum) : wrapping(n, "+", Binding::sum, a, b);
    case BinaryOp::sub: return plain ? infix(a, "-", b, Binding::sum) : wrapping(n, "-", Binding::sum, a, b);
    case BinaryOp::mul: return plain ? infix(a, "*", b, Binding::product) : wrapping(n, "*", Binding::product, a, b);
    case BinaryOp::div:
    case BinaryOp::rem: {
      const bool quotient = op == BinaryOp::div;
      if (real) return quotient ? infix(a, "/", b, Binding::product) : call("fmod" + f, {a, b});
      const bool harmless =
          divisor.op == Op::constant && divisor.imm != 0 && (is_unsigned_int(t) || divisor.imm != ~std::uint64_t{0});
      if (harmless && !narrow(t)) return infix(a, quotient ? "/" : "%", b, Binding::product);
      return call(quotient ? prelude_.divide(t) : prelude_.remainder(t), {a, b});
    }
    case BinaryOp::min:
      if (real) return call("fmin" + f, {a, b});
      return call(uses_opencl_names(dialect_) && !narrow(t) ? "min" : prelude_.minimum(t), {a, b});
    case BinaryOp::max:
      if (real) return call("fmax" + f, {a, b});
      return call(uses_opencl_names(dialect_) && !narrow(t) ? "max" : prelude_.maximum(t), {a, b});
    case BinaryOp::and_: return infix(a, "&", b, Binding::bit_and);
    case BinaryOp::or_: return infix(a, "|", b, Binding::bit_or);
    case BinaryOp::xor_: return infix(a, "^", b, Binding::bit_xor);
    case BinaryOp::shl:
    case BinaryOp::shr: {
      const std::uint64_t mask = 8 * dtype_size(t) - 1;
      Text count;
      if (divisor.op == Op::constant)
        count = {std::to_string(divisor.imm & mask)};
      else
        count = {fmt::format("({} & {})", at_least(b, Binding::unary), mask), Binding::primary, b.loads};
      if (op == BinaryOp::shr) return infix(a, ">>", count, Binding::shift);
      if (is_unsigned_int(t) && !narrow(t)) return infix(a, "<<", count, Binding::shift);
      const std::string x = fmt::format("({}){}", unsigned_text(dialect_, t), at_least(a, Binding::unary));
      return {fmt::format("({})({} << {})", type_text(dialect_, t), x, count.s), Binding::unary,
              a.loads || count.loads};
    }
    default: {
      if (opencl(dialect_)) return call("mul_hi", {a, b});
      if (metal(dialect_) && dtype_size(t) == 4) return call("mulhi", {a, b});
      if (metal(dialect_)) return metal_mul_high(t, a, b);
      return call(t == DType::i32   ? "__mulhi"
                  : t == DType::u32 ? "__umulhi"
                  : t == DType::i64 ? "__mul64hi"
                                    : "__umul64hi",
                  {a, b});
    }
  }
}

Text CWriter::compare(const Node& n) {
  static constexpr const char* ops[] = {"==", "!=", "<", "<=", ">", ">="};
  const Binding level = n.kind<CompareOp>() <= CompareOp::ne ? Binding::equal : Binding::less;
  const Text a = take(n.args[0]), b = take(n.args[1]);
  return infix(a, ops[n.sub], b, level);
}

Text CWriter::cast(DType to, DType from, const Text& a) {
  if (to == DType::boolean) {
    const Text zero{is_float(from) ? constant_text(dialect_, from, 0) : "0"};
    return infix(a, "!=", zero, Binding::equal);
  }
  // Lowering has expanded all other casts of 16-bit floats to casts from or to f32.
  if (from == DType::f16) return call(prelude_.from_half(), {a});
  if (to == DType::f16) return call(prelude_.to_half(), {a});
  if (from == DType::bf16) return call(prelude_.from_bfloat(), {a});
  if (to == DType::bf16) return call(prelude_.to_bfloat(), {a});
  if (is_float(from) && is_int(to)) return call(prelude_.to_integer(to, from), {a});
  // Uses a function instead of a cast, because Intel's CPU compilers (2025.2, 2026.2) compile the cast incorrectly. To
  // widen a vector of lane ids, they count in 64 bits, even if the 32-bit sum wraps.
  if (opencl(dialect_) && from == DType::i32 && dtype_size(to) == 8 && is_int(to))
    return call("convert_" + type_text(dialect_, to), {a});
  return {fmt::format("({}){}", type_text(dialect_, to), at_least(a, Binding::unary)), Binding::unary, a.loads};
}

Text CWriter::math(const Node& n) {
  const MathOp op = n.kind<MathOp>();
  const DType t = n.type.dtype;
  if (op == MathOp::rsqrt) {
    const Text root = call(math_text(dialect_, MathOp::sqrt, t), {take(n.args[0])});
    return infix({t == DType::f32 ? "1.0f" : "1.0"}, "/", root, Binding::product);
  }
  const std::string name = math_text(dialect_, op, t);
  if (op == MathOp::fma) return call(name, {take(n.args[0]), take(n.args[1]), take(n.args[2])});
  if (operand_count(op) == 2) return call(name, {take(n.args[0]), take(n.args[1])});
  return call(name, {take(n.args[0])});
}

Text CWriter::vector(const Node& n) {
  if (n.kind<VectorOp>() == VectorOp::extract) {
    const Text v = take(n.args[0]);
    Text t{fmt::format("{}.s{}", at_least(v, Binding::primary), n.imm), Binding::primary, v.loads};
    if (n.type.dtype == DType::boolean) t.s += " != 0", t.binding = Binding::equal;
    return t;
  }
  const std::string type = value_type(n.type);
  Text t{dialect_.vectors ? "(" + type + ")(" : type + "_of(", dialect_.vectors ? Binding::unary : Binding::primary};
  for (std::uint8_t l = 0; l < n.type.lanes; ++l) {
    const Text v = take(n.args[l]);
    t.s += (l ? ", " : "") + v.s;
    t.loads = t.loads || v.loads;
  }
  t.s += ")";
  return t;
}

Text CWriter::load(const Node& n) {
  const Node& memory = fn_[n.args[0]];
  if (n.type.lanes > 1 && memory.type.lanes == 1) {
    const Text at = take(n.args[1]);
    const std::string pointer = names_[n.args[0]] + (at.s == "0" ? "" : " + " + at_least(at, Binding::sum));
    if (access_lanes(fn_, n) == n.type.lanes)
      return {fmt::format("*({}const {}*)({})", global_space(dialect_), value_type(n.type), pointer), Binding::unary,
              true};
    return {fmt::format("vload{}(0, {})", n.type.lanes, pointer), Binding::primary, true};
  }
  Text t{element(n.args[0], n.args[1]), Binding::primary, true};
  const bool variable = memory.op == Op::local && memory.imm == 1;
  if (n.type == Type{DType::boolean} && !variable) t.s += " != 0", t.binding = Binding::equal;
  return t;
}

Text CWriter::atomic(const Node& n) {
  if (metal(dialect_)) return metal_atomic(n);
  const DType t = n.type.dtype;
  const AtomicOp op = n.kind<AtomicOp>();
  const Node& memory = fn_[n.args[0]];
  const std::string type = type_text(dialect_, t);
  const Text value = take(n.args[2]);
  const Text expected = n.args[3] ? take(n.args[3]) : Text{};
  const std::string at = "&" + element(n.args[0], n.args[1]);
  auto pointer = [&](const std::string& to) {
    if (!opencl(dialect_)) return fmt::format("({}*){}", to, at);
    return fmt::format("(volatile {} {}*){}", memory.op == Op::shared ? "__local" : "__global", to, at);
  };
  Text out;
  out.loads = true;
  if (opencl(dialect_)) {
    static constexpr const char* names[] = {"add", "min", "max", "xchg", "cmpxchg", "and", "or", "xor"};
    const std::string name = std::string(dtype_size(t) == 8 ? "atom_" : "atomic_") + names[n.sub];
    const bool wide = t == DType::f64;
    if (is_float(t) && op == AtomicOp::cas)  // operates on the bits of the float
      out.s = fmt::format("as_{0}({1}({2}, as_{3}({4}), as_{3}({5})))", type, name, pointer(wide ? "long" : "int"),
                          wide ? "long" : "int", expected.s, value.s);
    else if (wide)  // only exchange; lowering has expanded the others
      out.s = fmt::format("as_double({}({}, as_long({})))", name, pointer("long"), value.s);
    else if (op == AtomicOp::cas)
      out.s = fmt::format("{}({}, {}, {})", name, pointer(type), expected.s, value.s);
    else
      out.s = fmt::format("{}({}, {})", name, pointer(type), value.s);
    return out;
  }
  static constexpr const char* names[] = {"atomicAdd", "atomicMin", "atomicMax", "atomicExch",
                                          "atomicCAS", "atomicAnd", "atomicOr",  "atomicXor"};
  if (t == DType::f32 && op == AtomicOp::cas) {
    out.s = fmt::format("__int_as_float(atomicCAS({}, __float_as_int({}), __float_as_int({})))", pointer("int"),
                        expected.s, value.s);
  } else if (t == DType::f64 && (op == AtomicOp::cas || op == AtomicOp::exchange)) {  // operates on the bits of the
                                                                                      // float
    const std::string wide = type_text(dialect_, DType::u64);
    const auto bits = [&](const Text& v) { return fmt::format("({})__double_as_longlong({})", wide, v.s); };
    out.s = fmt::format("__longlong_as_double((long long){}({}, {}{}))", names[n.sub], pointer(wide),
                        expected.s.empty() ? "" : bits(expected) + ", ", bits(value));
  } else if ((t == DType::f32 || t == DType::i64) && (op == AtomicOp::min || op == AtomicOp::max)) {
    out.s = fmt::format("{}({}, {})", prelude_.atomic_extreme(op == AtomicOp::max, t), at, value.s);
  } else if (t == DType::i64) {  // CUDA and HIP only have unsigned 64-bit versions
    const std::string wide = type_text(dialect_, DType::u64);
    const std::string first = expected.s.empty() ? "" : fmt::format("({})({}), ", wide, expected.s);
    out.s = fmt::format("({})({}({}, {}({})({})))", type, names[n.sub], pointer(wide), first, wide, value.s);
  } else if (op == AtomicOp::cas) {
    out.s = fmt::format("{}({}, {}, {})", names[n.sub], at, expected.s, value.s);
  } else {
    out.s = fmt::format("{}({}, {})", names[n.sub], at, value.s);
  }
  return out;
}

Text CWriter::subgroup(const Node& n) {
  const SubgroupOp op = n.kind<SubgroupOp>();
  const DType t = n.type.dtype;
  Text a = take(n.args[0]);
  const Text lane = n.args[1] ? take(n.args[1]) : Text{};
  const std::string type = type_text(dialect_, t);
  if (opencl(dialect_)) {
    // The functions require integers of 32 bits or more. Narrower integers are widened, and the result is truncated.
    const bool widen = narrow(t);
    const bool logical = t == DType::boolean;
    const std::string value = widen || logical ? fmt::format("(int){}", at_least(a, Binding::unary)) : a.s;
    const std::string shuffle = dialect_.intel_shuffles ? "intel_sub_group_shuffle" : "sub_group_shuffle";
    std::string s;
    const std::string own = "get_sub_group_local_id()";
    if (is_float(t) && (op == SubgroupOp::min || op == SubgroupOp::max)) return call(prelude_.subgroup(op, t), {a});
    switch (op) {
      case SubgroupOp::sum: s = fmt::format("sub_group_reduce_add({})", value); break;
      case SubgroupOp::min: s = fmt::format("sub_group_reduce_min({})", value); break;
      case SubgroupOp::max: s = fmt::format("sub_group_reduce_max({})", value); break;
      case SubgroupOp::any: s = fmt::format("sub_group_any({})", value); break;
      case SubgroupOp::all: s = fmt::format("sub_group_all({})", value); break;
      case SubgroupOp::inclusive_sum: s = fmt::format("sub_group_scan_inclusive_add({})", value); break;
      case SubgroupOp::exclusive_sum: s = fmt::format("sub_group_scan_exclusive_add({})", value); break;
      default: {
        const char* from = op == SubgroupOp::shuffle_xor    ? "(int){1} ^ ({0})"
                           : op == SubgroupOp::shuffle_up   ? "(int){1} - ({0})"
                           : op == SubgroupOp::shuffle_down ? "(int){1} + ({0})"
                                                            : "{0}";
        const std::string source = fmt::format(fmt::runtime(from), lane.s, own);
        // If the source lane does not exist, the result is the value of the calling lane.
        s = fmt::format("{0}({1}, (uint)({2}) < get_sub_group_size() ? (uint)({2}) : {3})", shuffle, value, source,
                        own);
      }
    }
    if (logical) return {s + " != 0", Binding::equal, a.loads};
    if (widen) return {fmt::format("({}){}", type, s), Binding::unary, a.loads};
    return {s, Binding::primary, a.loads};
  }
  const std::string width = subgroup_width_text(dialect_);
  const std::uint32_t threads = fn_.threads_per_block();
  const std::string own = "(int)(" + index_text(dialect_, IndexKind::lane_id, 0, fn_) + ")";
  // The number of lanes that have a thread. All lanes have one if the block size is a multiple of 64.
  std::string count = width;
  if (threads % 64 != 0)
    count = fmt::format("min({0}, {1} - (int)({2}) * {0})", width, threads,
                        index_text(dialect_, IndexKind::subgroup_id, 0, fn_));
  const std::string function = prelude_.subgroup(op, t);
  Text out{lane.s.empty() ? fmt::format("{}({}, {}, {})", function, a.s, own, count)
                          : fmt::format("{}({}, (int)({}), {}, {})", function, a.s, lane.s, own, count),
           Binding::primary, a.loads};
  if (t == DType::boolean) out.s += " != 0", out.binding = Binding::equal;
  return out;
}

}  // namespace tessera::emit
