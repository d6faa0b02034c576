// SPDX-License-Identifier: Apache-2.0
#include "tessera/ir/value.h"

#include <cmath>
#include <functional>
#include <limits>

#include "tessera/base/error.h"

namespace tessera::ir {

namespace {

// These functions call the builder directly, because constructing an Operand would record a line of this file.
Builder& builder() { return Builder::current(); }
Value unary_of(UnaryOp op, Value a) { return Value(builder().unary(op, a.id())); }
Value math_of(MathOp op, Value a) { return Value(builder().math(op, a.id())); }

// Converts two operands to the same dtype. A literal takes the dtype of the other operand. Two literals become f32 if
// one of them is real, and index otherwise.
struct Pair {
  Value a, b;
  Pair(const Operand& x, const Operand& y) {
    if (!x.is_literal()) {
      a = x.own(), b = y.as(a.dtype());
    } else if (!y.is_literal()) {
      b = y.own(), a = x.as(b.dtype());
    } else {
      const DType t = x.dtype() == DType::f32 || y.dtype() == DType::f32 ? DType::f32 : x.dtype();
      a = x.as(t), b = y.as(t);
    }
  }
};

}  // namespace

Type Value::type() const { return builder().type(id_); }

void Operand::note(const char* file, int line) {
  if (Builder::tracing()) builder().at(file, line);
}
DType Operand::dtype() const {
  return kind_ == traced    ? value_.dtype()
         : kind_ == real    ? DType::f32
         : kind_ == integer ? DType::index
                            : DType::boolean;
}
Value Operand::own() const { return kind_ == traced ? value_ : as(dtype()); }
Value Operand::as(DType t) const {
  if (kind_ == traced) return value_;
  if (t == DType::f16 || t == DType::bf16) t = DType::f32;
  const bool number = kind_ != logical;
  const bool fits = number ? t != DType::boolean && (kind_ == integer || is_float(t) || real_ == std::trunc(real_))
                           : t == DType::boolean;
  if (!fits)
    fail<KernelError>({.operation = "kernel " + builder().function().name + ", " + to_string(builder().source()),
                       .wrong = "the literal " +
                                (kind_ == logical ? std::string(integer_ ? "true" : "false")
                                 : kind_ == real  ? std::to_string(real_)
                                                  : std::to_string(integer_)) +
                                " is combined with a value of " + std::string(dtype_name(t)) +
                                " and cannot be converted to it",
                       .remedy = "Use cast<T>(...)"});
  return Value(kind_ == real ? builder().constant_of(t, real_) : builder().constant_of(t, integer_));
}

Value binary(BinaryOp op, Operand a, Operand b) {
  const Pair p(a, b);
  return Value(builder().binary(op, p.a.id(), p.b.id()));
}
Value compare(CompareOp op, Operand a, Operand b) {
  const Pair p(a, b);
  return Value(builder().compare(op, p.a.id(), p.b.id()));
}
Value unary(UnaryOp op, Operand a) { return Value(builder().unary(op, a.own().id())); }
Value math(MathOp op, Operand a) { return Value(builder().math(op, a.own().id())); }
Value math(MathOp op, Operand a, Operand b) {
  const Pair p(a, b);
  return Value(builder().math(op, p.a.id(), p.b.id()));
}

Value operator+(Operand a, Operand b) { return binary(BinaryOp::add, a, b); }
Value operator-(Operand a, Operand b) { return binary(BinaryOp::sub, a, b); }
Value operator*(Operand a, Operand b) { return binary(BinaryOp::mul, a, b); }
Value operator/(Operand a, Operand b) { return binary(BinaryOp::div, a, b); }
Value operator%(Operand a, Operand b) { return binary(BinaryOp::rem, a, b); }
Value operator&(Operand a, Operand b) { return binary(BinaryOp::and_, a, b); }
Value operator|(Operand a, Operand b) { return binary(BinaryOp::or_, a, b); }
Value operator^(Operand a, Operand b) { return binary(BinaryOp::xor_, a, b); }
Value operator<<(Operand a, Operand b) { return binary(BinaryOp::shl, a, b); }
Value operator>>(Operand a, Operand b) { return binary(BinaryOp::shr, a, b); }
Value operator&&(Operand a, Operand b) { return binary(BinaryOp::and_, a, b); }
Value operator||(Operand a, Operand b) { return binary(BinaryOp::or_, a, b); }
Value operator==(Operand a, Operand b) { return compare(CompareOp::eq, a, b); }
Value operator!=(Operand a, Operand b) { return compare(CompareOp::ne, a, b); }
Value operator<(Operand a, Operand b) { return compare(CompareOp::lt, a, b); }
Value operator<=(Operand a, Operand b) { return compare(CompareOp::le, a, b); }
Value operator>(Operand a, Operand b) { return compare(CompareOp::gt, a, b); }
Value operator>=(Operand a, Operand b) { return compare(CompareOp::ge, a, b); }
Value operator-(Value a) { return unary_of(UnaryOp::neg, a); }
Value operator!(Value a) { return unary_of(UnaryOp::not_, a); }
Value operator~(Value a) { return unary_of(UnaryOp::not_, a); }

Value min(Operand a, Operand b) { return binary(BinaryOp::min, a, b); }
Value max(Operand a, Operand b) { return binary(BinaryOp::max, a, b); }
Value mul_hi(Operand a, Operand b) { return binary(BinaryOp::mul_hi, a, b); }
Value abs(Value a) { return unary_of(UnaryOp::abs, a); }
Value fma(Operand a, Operand b, Operand c) {
  const DType t = !a.is_literal() ? a.dtype() : !b.is_literal() ? b.dtype() : c.dtype();
  return Value(builder().math(MathOp::fma, a.as(t).id(), b.as(t).id(), c.as(t).id()));
}
Value pow(Operand a, Operand b) { return math(MathOp::pow, a, b); }
Value atan2(Operand y, Operand x) { return math(MathOp::atan2, y, x); }
Value hypot(Operand a, Operand b) { return math(MathOp::hypot, a, b); }
Value sqrt(Value a) { return math_of(MathOp::sqrt, a); }
Value rsqrt(Value a) { return math_of(MathOp::rsqrt, a); }
Value exp(Value a) { return math_of(MathOp::exp, a); }
Value exp2(Value a) { return math_of(MathOp::exp2, a); }
Value log(Value a) { return math_of(MathOp::log, a); }
Value log2(Value a) { return math_of(MathOp::log2, a); }
Value sin(Value a) { return math_of(MathOp::sin, a); }
Value cos(Value a) { return math_of(MathOp::cos, a); }
Value tanh(Value a) { return math_of(MathOp::tanh, a); }
Value erf(Value a) { return math_of(MathOp::erf, a); }
Value tan(Value a) { return math_of(MathOp::tan, a); }
Value asin(Value a) { return math_of(MathOp::asin, a); }
Value acos(Value a) { return math_of(MathOp::acos, a); }
Value atan(Value a) { return math_of(MathOp::atan, a); }
Value sinh(Value a) { return math_of(MathOp::sinh, a); }
Value cosh(Value a) { return math_of(MathOp::cosh, a); }
Value log10(Value a) { return math_of(MathOp::log10, a); }
Value floor(Value a) { return math_of(MathOp::floor, a); }
Value ceil(Value a) { return math_of(MathOp::ceil, a); }
Value trunc(Value a) { return math_of(MathOp::trunc, a); }
Value rint(Value a) { return math_of(MathOp::rint, a); }

namespace {
Value constant_like(Value a, double value) { return Value(builder().constant_of(a.dtype(), value)); }
Value binary_of(BinaryOp op, Value a, Value b) { return Value(builder().binary(op, a.id(), b.id())); }
Value compared(CompareOp op, Value a, Value b) { return Value(builder().compare(op, a.id(), b.id())); }
Value chosen(Value condition, Value a, Value b) { return Value(builder().select(condition.id(), a.id(), b.id())); }
/// Converts 16-bit floats to f32.
Value computable(Value a) {
  return a.dtype() == DType::f16 || a.dtype() == DType::bf16 ? Value(builder().cast(DType::f32, a.id())) : a;
}
}  // namespace
Value is_nan(Value a) { return compared(CompareOp::ne, a, a); }
Value is_infinite(Value a) {
  const Value size = abs(a);
  return compared(CompareOp::eq, size, constant_like(size, std::numeric_limits<double>::infinity()));
}
Value is_finite(Value a) {
  const Value size = abs(a);
  return compared(CompareOp::lt, size, constant_like(size, std::numeric_limits<double>::infinity()));
}
Value copysign(Operand a, Operand b) {
  const Pair p(a, b);
  const Value x = computable(p.a), y = computable(p.b);
  const DType bits = x.dtype() == DType::f64 ? DType::i64 : DType::i32;
  const std::uint64_t sign = std::uint64_t{1} << (bits == DType::i64 ? 63 : 31);
  const auto mask = [&](std::uint64_t v) {  // encoded like a constant: extended to 64 bits
    return Value(builder().constant(
        bits, bits == DType::i64 ? v : static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(v)})));
  };
  const Value size = binary_of(BinaryOp::and_, bitcast(bits, x), mask(sign - 1));
  return bitcast(x.dtype(), binary_of(BinaryOp::or_, size, binary_of(BinaryOp::and_, bitcast(bits, y), mask(sign))));
}
Value sign(Value a) {
  a = computable(a);
  const Value zero = constant_like(a, 0);
  const Value below =
      is_unsigned_int(a.dtype()) ? a : chosen(compared(CompareOp::lt, a, zero), constant_like(a, -1), a);
  return chosen(compared(CompareOp::gt, a, zero), constant_like(a, 1), below);
}
Value ctz(Value a) {  // the number of bits below the lowest set bit
  const Value below = binary_of(BinaryOp::sub, a, constant_like(a, 1));
  return unary_of(UnaryOp::popcount, binary_of(BinaryOp::and_, unary_of(UnaryOp::not_, a), below));
}

Value select(Operand condition, Operand if_true, Operand if_false) {
  const Pair p(if_true, if_false);
  return Value(builder().select(condition.as(DType::boolean).id(), p.a.id(), p.b.id()));
}
Value cast(DType to, Operand a) { return Value(builder().cast(to, a.own().id())); }
Value bitcast(DType to, Value a) { return Value(builder().bitcast(to, a.id())); }
Value dot4(Dot4Signs signs, Value a, Value b, Value c) { return Value(builder().dot4(signs, a.id(), b.id(), c.id())); }
Value make_vector(std::initializer_list<Value> elements) {
  std::vector<NodeId> ids;
  for (Value v : elements) ids.push_back(v.id());
  return Value(builder().make_vector(ids));
}
Value extract(Value vector, std::uint32_t lane) { return Value(builder().extract(vector.id(), lane)); }
Value literal(DType dtype, double value) { return Value(builder().constant_of(dtype, value)); }
Value index_literal(std::int64_t value) { return Value(builder().constant_of(DType::index, value)); }

namespace {
Value index_of(IndexKind kind, int dimension = 0) {
  return Value(builder().index(kind, static_cast<std::uint64_t>(dimension)));
}
}  // namespace
Value global_id(int d) { return index_of(IndexKind::global_id, d); }
Value grid_size(int d) { return index_of(IndexKind::grid_size, d); }
Value extent(int d) { return index_of(IndexKind::extent, d); }
Value thread_id(int d) { return index_of(IndexKind::thread_id, d); }
Value block_id(int d) { return index_of(IndexKind::block_id, d); }
Value block_size(int d) { return index_of(IndexKind::block_size, d); }
Value block_count(int d) { return index_of(IndexKind::block_count, d); }
Value lane_id() { return index_of(IndexKind::lane_id); }
Value subgroup_id() { return index_of(IndexKind::subgroup_id); }
Value subgroup_size() { return index_of(IndexKind::subgroup_size); }
Value subgroup_count() { return index_of(IndexKind::subgroup_count); }

Value BufferRef::size() const {
  const Node& n = builder().node(id_);
  if (n.op == Op::param) return Value(builder().buffer_size(id_));
  return index_literal(static_cast<std::int64_t>(n.imm));
}
Value BufferRef::load(Operand index) const { return Value(builder().load(id_, index.as(DType::index).id())); }
Value BufferRef::load_vector(Operand index, std::uint8_t lanes) const {
  return Value(builder().load(id_, index.as(DType::index).id(), lanes));
}
Value BufferRef::load_if(Value mask, Operand index, Operand other) const {
  return Value(builder().load_if(mask.id(), id_, index.as(DType::index).id(), other.as(dtype()).id()));
}
void BufferRef::store(Operand index, Operand value) const {
  builder().store(id_, index.as(DType::index).id(), value.as(dtype()).id());
}
Value BufferRef::atomic(AtomicOp op, Operand index, Operand value) const {
  return Value(builder().atomic(op, id_, index.as(DType::index).id(), value.as(dtype()).id()));
}
Value BufferRef::atomic_cas(Operand index, Operand expected, Operand value) const {
  return Value(builder().atomic(AtomicOp::cas, id_, index.as(DType::index).id(), value.as(dtype()).id(),
                                expected.as(dtype()).id()));
}

BufferRef buffer_param(std::string name, DType dtype, Access access) {
  return BufferRef(builder().buffer(std::move(name), dtype, access));
}
Value scalar_param(std::string name, DType dtype) { return Value(builder().scalar(std::move(name), dtype)); }
BufferRef shared(DType dtype, std::uint64_t count) { return BufferRef(builder().shared(dtype, count)); }
BufferRef local_array(DType dtype, std::uint64_t count) { return BufferRef(builder().local({dtype}, count)); }

Fragment::Fragment(FragmentRole role, DType dtype) : id_(builder().fragment(role, dtype)) {}
void Fragment::load(BufferRef memory, Operand index, Operand stride) const {
  builder().mma_load(id_, memory.id(), index.own().id(), stride.own().id(), false);
}
void Fragment::load_transposed(BufferRef memory, Operand index, Operand stride) const {
  builder().mma_load(id_, memory.id(), index.own().id(), stride.own().id(), true);
}
void Fragment::fill(Operand value) const { builder().mma_fill(id_, value.as(DType::f32).id()); }
void Fragment::multiply_add(const Fragment& left, const Fragment& right, const char* file, int line) const {
  builder().at(file, line);
  builder().mma_multiply(id_, left.id_, right.id_);
}
void Fragment::multiply(const Fragment& left, const Fragment& right, const char* file, int line) const {
  builder().at(file, line);
  builder().mma_multiply(id_, left.id_, right.id_, true);
}
void Fragment::store(BufferRef memory, Operand index, Operand stride) const {
  builder().mma_store(id_, memory.id(), index.own().id(), stride.own().id());
}

void Fragment::convert(const Fragment& accumulator) const { builder().mma_convert(id_, accumulator.id_); }
Value Fragment::get(Value k) const { return Value(builder().load(id_, k.id())); }
void Fragment::set(Value k, Operand value) const { builder().store(id_, k.id(), value.as(DType::f32).id()); }

namespace {
Value place(PlaceOf what, Value k) { return Value(builder().place(what, k.id())); }
}  // namespace

void for_each_element(const std::function<void(const FragmentElement&)>& body) {
  for_(0, Value(builder().index(IndexKind::lane_elements)), [&](Value k) {
    if_(place(PlaceOf::valid, k), [&] { body({k, place(PlaceOf::row, k), place(PlaceOf::column, k)}); });
  });
}

FragmentRows::FragmentRows() : memory_(builder().local({DType::f32}, fragment_side)) {}
Value FragmentRows::get(const FragmentElement& e) const { return memory_.load(place(PlaceOf::slot, e.k)); }
void FragmentRows::reduce(ReduceOp op, const Fragment& accumulator) const {
  builder().mma_reduce_rows(op, memory_.id(), accumulator.id());
}
void FragmentRows::for_each(const std::function<void(Value, Value)>& body) {
  for_(0, Value(builder().index(IndexKind::lane_rows)),
       [&](Value slot) { body(slot, place(PlaceOf::slot_row, slot)); });
}

void copy_async(BufferRef shared, Operand index, BufferRef buffer, Operand from, std::uint32_t elements) {
  builder().copy_async(shared.id(), index.as(DType::index).id(), buffer.id(), from.as(DType::index).id(), elements);
}
void async_commit() { builder().async_commit(); }
void async_wait(std::uint32_t groups) { builder().async_wait(groups); }

Variable::Variable(DType dtype, Operand initial) : memory_(builder().local({dtype}, 1)) { set(initial); }
Value Variable::get() const {
  return Value(builder().load(memory_.id(), builder().constant_of(DType::index, std::int64_t{0})));
}
void Variable::set(Operand value) const {
  builder().store(memory_.id(), builder().constant_of(DType::index, std::int64_t{0}), value.as(memory_.dtype()).id());
}

void if_(Value condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  builder().if_(condition.id(), then, otherwise);
}
void for_(Operand begin, Operand end, Operand step, const std::function<void(Value)>& body,
          std::optional<Unroll> unroll) {
  const DType t = !begin.is_literal() ? begin.dtype() : !end.is_literal() ? end.dtype() : step.dtype();
  builder().for_(
      begin.as(t).id(), end.as(t).id(), step.as(t).id(), [&](NodeId counter) { body(Value(counter)); }, unroll);
}
void for_(Operand begin, Operand end, const std::function<void(Value)>& body, std::optional<Unroll> unroll) {
  const SourceLine here = builder().source();
  for_(begin, end, Operand(1, here.file, here.line), body, unroll);
}
void while_(const std::function<Value()>& condition, const std::function<void()>& body) {
  builder().while_([&] { return condition().id(); }, body);
}
void return_() { builder().return_(); }
void barrier(const char* file, int line) {
  builder().at(file, line);
  builder().barrier();
}
void print(std::string_view format, std::initializer_list<Value> values) {
  std::vector<NodeId> ids;
  for (Value v : values) ids.push_back(v.id());
  builder().print(std::string(format), ids);
}

Value block_reduce(ReduceOp op, Operand a) { return Value(builder().block_reduce(op, a.own().id())); }
Value block_sum(Operand a) { return block_reduce(ReduceOp::sum, a); }
Value block_max(Operand a) { return block_reduce(ReduceOp::max, a); }
Value block_min(Operand a) { return block_reduce(ReduceOp::min, a); }
Value block_scan(Operand a, bool exclusive) {
  return Value(builder().block_scan(ReduceOp::sum, a.own().id(), exclusive));
}
Value block_uniform(Operand a) { return Value(builder().block_uniform(a.own().id())); }
Value subgroup(SubgroupOp op, Operand a) { return Value(builder().subgroup(op, a.own().id())); }
Value subgroup(SubgroupOp op, Operand a, Operand lane) {
  return Value(builder().subgroup(op, a.own().id(), lane.as(DType::index).id()));
}
Value subgroup_sum(Operand a) { return subgroup(SubgroupOp::sum, a); }
Value subgroup_max(Operand a) { return subgroup(SubgroupOp::max, a); }
Value subgroup_min(Operand a) { return subgroup(SubgroupOp::min, a); }

}  // namespace tessera::ir
