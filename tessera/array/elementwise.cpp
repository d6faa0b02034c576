// SPDX-License-Identifier: Apache-2.0
// Elementwise operations: dtypes, shapes and devices are checked here, at the call; computing is deferred.
#include "tessera/array/elementwise.h"

#include <algorithm>
#include <cmath>

#include "tessera/ir/semantics.h"

namespace tessera {

namespace detail {

Strides broadcast_strides(const Array& a, const Shape& shape) {
  Strides out(shape.size(), 0);
  const std::size_t lead = shape.size() - a.shape().size();
  for (std::size_t i = 0; i < a.shape().size(); ++i)
    if (a.shape()[i] != 1) out[lead + i] = a.strides()[i];
  return out;
}

Term term_of(const Array& a, const Shape& shape) {
  const auto& source = a.source();
  if (source->pending() && a.shape() == shape && a.offset() == 0 && a.dtype() == source->dtype() && a.contiguous() &&
      element_count(source->shape()) == a.size()) {
    if (source->shape() == shape) return {.kind = Term::source_element, .source = source, .dtype = a.dtype()};
  }
  return {.kind = Term::view, .source = source, .strides = broadcast_strides(a, shape), .offset = a.offset(), .dtype = a.dtype()};
}

Term term_of(const char* operation, const ArrayOperand& scalar, DType dtype) {
  const double v = scalar.value();
  if (!is_float(dtype) && (v != std::trunc(v) || std::isinf(v)))
    fail<DtypeError>({.asked = operation,
                      .with = {{"scalar", std::to_string(v)}, {"array", std::string(dtype_name(dtype))}},
                      .wrong = "the scalar takes the array's dtype and is not a value of it",
                      .todo = "Use astype on the array first"});
  const DType t = dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
  return {.kind = Term::scalar, .dtype = t, .bits = ir::to_bits(t, v)};
}

Device common_device(const char* operation, std::span<const Array* const> arrays) {
  const Device first = arrays[0]->device();
  for (const Array* a : arrays)
    if (a->device() != first)
      fail<DeviceError>({.asked = operation,
                         .with = {{"left", to_string(first)}, {"right", to_string(a->device())}},
                         .wrong = "the operands are on different devices",
                         .todo = "Move one with .to(device); nothing is moved silently"});
  return first;
}

Array elementwise(const char* name, ir::Op op, std::uint8_t sub, DType dtype, std::span<const Array* const> arrays) {
  Shape shape = arrays[0]->shape();
  for (const Array* a : arrays.subspan(1)) shape = broadcast_shapes(name, shape, a->shape());
  const Device device = common_device(name, arrays);
  std::vector<Term> terms;
  for (const Array* a : arrays) terms.push_back(term_of(*a, shape));
  return ArrayAccess::make(Source::deferred(op, sub, dtype, shape, device, std::move(terms)), shape);
}

StridedView strided(const Array& a, const char* rule) {
  return {a.source()->storage(rule), a.dtype(), a.strides(), a.offset()};
}

void write_in_place(const Array& out, ir::Op op, std::uint8_t sub, std::vector<Array> args) {
  if (out.size() == 0) return;
  const BufferView target = out.view_for_writing();  // whatever still wanted the old contents has them now
  std::vector<Term> terms;
  for (Array& a : args) {
    // An argument in the same memory but not the very same elements would be overwritten while it is read.
    const bool same_memory = !a.pending() && a.source()->storage("") == target.storage;
    if (same_memory && (a.strides() != out.strides() || a.offset() != out.offset() || a.shape() != out.shape())) a = a.copy();
    terms.push_back(term_of(a, out.shape()));
  }
  args.clear();  // so that only what others hold counts as held
  Source::run_into({target.storage, out.dtype(), out.strides(), out.offset()}, out.shape(), out.device(), op, sub, terms);
}

}  // namespace detail

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  if (a == DType::boolean) return b;
  if (is_float(a) && is_float(b)) return b == DType::f64 ? b : DType::f32;  // f16 with bf16 meets in f32
  if (is_float(b)) {
    if (b == DType::f64) return b;
    return dtype_size(a) <= 1 ? b : DType::f32;
  }
  // Integers: the larger one, or the next signed type when an unsigned one does not fit.
  if (is_unsigned_int(a) == is_unsigned_int(b)) return dtype_size(a) >= dtype_size(b) ? a : b;
  const DType u = is_unsigned_int(a) ? a : b, s = is_unsigned_int(a) ? b : a;
  if (dtype_size(s) > dtype_size(u)) return s;
  switch (u) {
    case DType::u8: return DType::i16;
    case DType::u16: return DType::i32;
    case DType::u32: return DType::i64;
    default: return DType::i64;
  }
}

namespace {

using detail::elementwise;
using detail::Source;
using detail::Term;
using detail::term_of;

template <class K> std::uint8_t sub(K k) { return static_cast<std::uint8_t>(k); }

void need(bool ok, const char* name, DType t, const char* wanted) {
  if (!ok)
    fail<DtypeError>({.asked = name, .with = {{"dtype", std::string(dtype_name(t))}}, .wrong = std::string("this operation takes ") + wanted,
                      .todo = "Convert with astype"});
}

// Two operands brought to one dtype, at least one an array. The result's dtype is `boolean` for comparisons.
Array binary(const char* name, ir::Op op, std::uint8_t kind, const ArrayOperand& a, const ArrayOperand& b) {
  if (!a.array() && !b.array())
    fail<ArgumentError>({.asked = name, .wrong = "one operand must be an array"});
  if (a.array() && b.array()) {
    const DType t = promote(a.array()->dtype(), b.array()->dtype());
    const Array x = a.array()->astype(t), y = b.array()->astype(t);
    const Array* both[] = {&x, &y};
    return elementwise(name, op, kind, op == ir::Op::compare ? DType::boolean : t, both);
  }
  const Array& array = a.array() ? *a.array() : *b.array();
  const ArrayOperand& scalar = a.array() ? b : a;
  std::vector<Term> terms;
  if (a.array()) terms.push_back(term_of(array, array.shape()));
  terms.push_back(term_of(name, scalar, array.dtype()));
  if (b.array()) terms.push_back(term_of(array, array.shape()));
  const DType t = op == ir::Op::compare ? DType::boolean : array.dtype();
  return ArrayAccess::make(Source::deferred(op, kind, t, array.shape(), array.device(), std::move(terms)), array.shape());
}

DType dtype_of(const ArrayOperand& a, const ArrayOperand& b) {
  if (a.array() && b.array()) return promote(a.array()->dtype(), b.array()->dtype());
  return a.array() ? a.array()->dtype() : b.array() ? b.array()->dtype() : DType::f32;
}

Array arithmetic(const char* name, ir::BinaryOp op, const ArrayOperand& a, const ArrayOperand& b) {
  need(dtype_of(a, b) != DType::boolean, name, DType::boolean, "numbers");
  return binary(name, ir::Op::binary, sub(op), a, b);
}
Array bitwise(const char* name, ir::BinaryOp op, const ArrayOperand& a, const ArrayOperand& b) {
  need(!is_float(dtype_of(a, b)), name, dtype_of(a, b), "integers or bool");
  return binary(name, ir::Op::binary, sub(op), a, b);
}
Array comparison(const char* name, ir::CompareOp op, const ArrayOperand& a, const ArrayOperand& b) {
  return binary(name, ir::Op::compare, sub(op), a, b);
}
Array unary(const char* name, ir::UnaryOp op, const Array& a) {
  const Array* one[] = {&a};
  return elementwise(name, ir::Op::unary, sub(op), a.dtype(), one);
}
// Mathematical functions of integers are of their values as f32, as NumPy's are of f64.
Array math(const char* name, ir::MathOp op, const Array& a) {
  need(a.dtype() != DType::boolean, name, a.dtype(), "numbers");
  const Array x = is_float(a.dtype()) ? a : a.astype(DType::f32);
  const Array* one[] = {&x};
  return elementwise(name, ir::Op::math, sub(op), x.dtype(), one);
}

}  // namespace

Array Array::astype(DType dtype) const {
  if (dtype == dtype_) return *this;
  const Array* one[] = {this};
  return elementwise("astype", ir::Op::cast, 0, dtype, one);
}

Array operator+(const ArrayOperand& a, const ArrayOperand& b) { return arithmetic("+", ir::BinaryOp::add, a, b); }
Array operator-(const ArrayOperand& a, const ArrayOperand& b) { return arithmetic("-", ir::BinaryOp::sub, a, b); }
Array operator*(const ArrayOperand& a, const ArrayOperand& b) { return arithmetic("*", ir::BinaryOp::mul, a, b); }
Array operator/(const ArrayOperand& a, const ArrayOperand& b) { return arithmetic("/", ir::BinaryOp::div, a, b); }
Array operator%(const ArrayOperand& a, const ArrayOperand& b) { return arithmetic("%", ir::BinaryOp::rem, a, b); }
Array operator&(const ArrayOperand& a, const ArrayOperand& b) { return bitwise("&", ir::BinaryOp::and_, a, b); }
Array operator|(const ArrayOperand& a, const ArrayOperand& b) { return bitwise("|", ir::BinaryOp::or_, a, b); }
Array operator^(const ArrayOperand& a, const ArrayOperand& b) { return bitwise("^", ir::BinaryOp::xor_, a, b); }
Array operator==(const ArrayOperand& a, const ArrayOperand& b) { return comparison("==", ir::CompareOp::eq, a, b); }
Array operator!=(const ArrayOperand& a, const ArrayOperand& b) { return comparison("!=", ir::CompareOp::ne, a, b); }
Array operator<(const ArrayOperand& a, const ArrayOperand& b) { return comparison("<", ir::CompareOp::lt, a, b); }
Array operator<=(const ArrayOperand& a, const ArrayOperand& b) { return comparison("<=", ir::CompareOp::le, a, b); }
Array operator>(const ArrayOperand& a, const ArrayOperand& b) { return comparison(">", ir::CompareOp::gt, a, b); }
Array operator>=(const ArrayOperand& a, const ArrayOperand& b) { return comparison(">=", ir::CompareOp::ge, a, b); }
Array minimum(const ArrayOperand& a, const ArrayOperand& b) { return arithmetic("minimum", ir::BinaryOp::min, a, b); }
Array maximum(const ArrayOperand& a, const ArrayOperand& b) { return arithmetic("maximum", ir::BinaryOp::max, a, b); }
Array pow(const ArrayOperand& a, const ArrayOperand& b) {
  need(is_float(dtype_of(a, b)), "pow", dtype_of(a, b), "floats");
  return binary("pow", ir::Op::math, sub(ir::MathOp::pow), a, b);
}
Array operator-(const Array& a) {
  need(a.dtype() != DType::boolean, "-", a.dtype(), "numbers");
  return unary("-", ir::UnaryOp::neg, a);
}
Array operator!(const Array& a) {
  need(a.dtype() == DType::boolean, "!", a.dtype(), "bool");
  return unary("!", ir::UnaryOp::not_, a);
}

Array where(const Array& condition, const ArrayOperand& if_true, const ArrayOperand& if_false) {
  need(condition.dtype() == DType::boolean, "where", condition.dtype(), "a condition of bool");
  const DType t = dtype_of(if_true, if_false);
  Shape shape = condition.shape();
  std::vector<Array> values;
  std::vector<const Array*> arrays = {&condition};
  values.reserve(2);
  for (const ArrayOperand* o : {&if_true, &if_false})
    if (o->array()) {
      values.push_back(o->array()->astype(t));
      shape = broadcast_shapes("where", shape, o->array()->shape());
      arrays.push_back(&values.back());
    }
  const Device device = detail::common_device("where", arrays);
  std::vector<Term> terms = {term_of(condition, shape)};
  std::size_t next = 0;
  for (const ArrayOperand* o : {&if_true, &if_false})
    terms.push_back(o->array() ? term_of(values[next++], shape) : term_of("where", *o, t));
  return ArrayAccess::make(Source::deferred(ir::Op::select, 0, t, shape, device, std::move(terms)), shape);
}

Array abs(const Array& a) {
  need(a.dtype() != DType::boolean, "abs", a.dtype(), "numbers");
  return unary("abs", ir::UnaryOp::abs, a);
}
Array sqrt(const Array& a) { return math("sqrt", ir::MathOp::sqrt, a); }
Array rsqrt(const Array& a) { return math("rsqrt", ir::MathOp::rsqrt, a); }
Array exp(const Array& a) { return math("exp", ir::MathOp::exp, a); }
Array exp2(const Array& a) { return math("exp2", ir::MathOp::exp2, a); }
Array log(const Array& a) { return math("log", ir::MathOp::log, a); }
Array log2(const Array& a) { return math("log2", ir::MathOp::log2, a); }
Array sin(const Array& a) { return math("sin", ir::MathOp::sin, a); }
Array cos(const Array& a) { return math("cos", ir::MathOp::cos, a); }
Array tanh(const Array& a) { return math("tanh", ir::MathOp::tanh, a); }
Array erf(const Array& a) { return math("erf", ir::MathOp::erf, a); }
Array floor(const Array& a) { return math("floor", ir::MathOp::floor, a); }
Array ceil(const Array& a) { return math("ceil", ir::MathOp::ceil, a); }
Array trunc(const Array& a) { return math("trunc", ir::MathOp::trunc, a); }
Array rint(const Array& a) { return math("rint", ir::MathOp::rint, a); }
Array sigmoid(const Array& a) { return 1 / (1 + exp(-a)); }
Array silu(const Array& a) { return a / (1 + exp(-a)); }
Array relu(const Array& a) { return maximum(a, 0); }
Array gelu(const Array& a) { return 0.5 * a * (1 + erf(a * 0.70710678118654752)); }

}  // namespace tessera
