// SPDX-License-Identifier: Apache-2.0
// Elementwise operations. Dtypes, shapes and devices are checked at the call. The computation is deferred.
#include "tessera/array/elementwise.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "tessera/array/elementwise_rule.h"
#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/device/memory/pending.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/ir/derivative.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace detail {

namespace {

void set_broadcast_strides(Strides& out, const Array& a, const Shape& shape) {
  const std::size_t rank = a.shape().size(), lead = shape.size() - rank;
  if (lead == 0)
    out = a.strides();
  else
    out = Strides(lead), out.insert(out.end(), a.strides().begin(), a.strides().end());
  for (std::size_t i = 0; i < rank; ++i)
    if (a.shape()[i] == 1) out[lead + i] = 0;
}

}  // namespace

Strides broadcast_strides(const Array& a, const Shape& shape) {
  Strides out;
  set_broadcast_strides(out, a, shape);
  return out;
}

namespace {

void need(bool ok, const char* name, DType t, const char* wanted) {
  if (!ok)
    fail<DtypeError>({.operation = name,
                      .with = {{"dtype", std::string(dtype_name(t))}},
                      .wrong = std::string("this operation takes ") + wanted,
                      .remedy = "Convert with astype"});
}

// Initialises `t`. A pending array requires the registry's lock. Returns false if the array has to be computed first.
bool set_term(Term& t, const Array& a, const Shape& shape) {
  const Source& source = *a.source();
  t.dtype = a.dtype();
  if (!source.computed()) {
    const auto& expr = source.expression();
    if (a.shape() != shape || expr->shape != shape || a.offset() != 0 || !a.contiguous()) return false;
    t.kind = Term::expression;
    t.expr = expr;
    return true;
  }
  t.kind = Term::memory;
  t.view.storage = source.memory(), t.view.dtype = a.dtype(), t.view.offset = a.offset();
  set_broadcast_strides(t.view.strides, a, shape);
  t.recording = source.recording();
  t.writes = source.memory()->writes();
  return true;
}

// Returns the recording to which an expression belongs: the latest active recording of its pending operands, or of its
// computed operands if there is none. (Another thread may defer operations for the recording thread.)
std::uint64_t recording_of(std::span<const Term> terms) {
  std::uint64_t of_pending = 0, of_computed = 0;
  for (const Term& t : terms) {
    const std::uint64_t number = t.kind == Term::expression ? t.expr->recording : t.recording;
    if (t.kind == Term::scalar || number == 0 || !Recorder::is_active(number)) continue;
    std::uint64_t& latest = t.kind == Term::expression ? of_pending : of_computed;
    latest = std::max(latest, number);
  }
  return of_pending != 0 ? of_pending : of_computed;
}

}  // namespace

Term term_of(const Array& a, const Shape& shape) {
  for (Term t;;) {
    {
      std::unique_lock hold(PendingRegistry::of(a.device()).lock, std::defer_lock);
      if (a.source()->pending()) hold.lock();
      if (set_term(t, a, shape)) return t;
    }
    a.source()->storage("a view of it is read");
  }
}

Term scalar_term(const char* operation, const ArrayOperand& scalar, DType dtype) {
  const auto bits = scalar.bits(dtype);
  if (!bits)
    fail<DtypeError>({.operation = operation,
                      .with = {{"scalar", scalar.text()}, {"array", std::string(dtype_name(dtype))}},
                      .wrong = "the array's dtype cannot represent the scalar",
                      .remedy = "Use astype on the array first"});
  // Rounded to `dtype`, but passed as f32 because the operation is computed in f32.
  if (dtype == DType::f16 || dtype == DType::bf16)
    return {
        .kind = Term::scalar, .dtype = DType::f32, .bits = ir::to_bits(DType::f32, ir::from_bits<float>(dtype, *bits))};
  return {.kind = Term::scalar, .dtype = dtype, .bits = *bits};
}

Device common_device(const char* operation, std::span<const Array* const> arrays) {
  const Device first = arrays[0]->device();
  for (const Array* a : arrays)
    if (a->source()->device() != first)
      fail<DeviceError>({.operation = operation,
                         .with = {{"left", to_string(first)}, {"right", to_string(a->device())}},
                         .wrong = "the operands are on different devices",
                         .remedy = "Move one with .to(device); nothing is moved silently"});
  return first;
}

namespace {

/// Waits for tasks that write the memory. It is called before an expression is registered as a reader, because such
/// tasks wait for readers that are being computed.
void await_tasks(const Array& a) {
  if (a.source()->pending()) return;
  Storage& storage = *a.source()->memory();
  if (CoherenceHook* const e = storage.coherence_hook(); e != nullptr && e->has_other_writers())
    e->before_read(storage);
}

Array deferred(const char* name, ir::Op op, std::uint8_t sub, DType dtype, DType scalars,
               std::span<ArrayOperand> operands) {
  const Array* first = nullptr;
  Shape shape;
  for (const ArrayOperand& o : operands) {
    if (!o.is_array()) continue;
    if (first == nullptr) {
      first = &o.array(), shape = first->shape();
      continue;
    }
    if (shape != o.array().shape()) shape = broadcast_shapes(name, shape, o.array().shape());
    const Array* both[] = {first, &o.array()};
    common_device(name, both);
  }
  const Device device = first->source()->device();
  for (const ArrayOperand& o : operands)
    if (o.is_array()) await_tasks(o.array());
  auto expr = std::make_shared<Expr>(op, sub, dtype, device, shape);
  auto source = Source::pending_on(device, dtype);
  for (const char* rule = nullptr;; expr->clear_terms()) {
    const Array* before = nullptr;  // an operand that must be computed first
    {
      // Reading the operands' state and linking must be one atomic step. Otherwise a concurrent computation or write
      // could change the state in between.
      std::lock_guard hold(PendingRegistry::of(device).lock);
      expr->size.nodes = 1;
      for (const ArrayOperand& o : operands) {
        Term& t = expr->add();
        if (!o.is_array()) {
          t = scalar_term(name, o, scalars);
        } else if (!set_term(t, o.array(), shape)) {
          before = &o.array();
          break;
        }
        expr->size.add(t);
      }
      if (before == nullptr && rule == nullptr && expr->size.limit(device, shape.size()) != nullptr) {
        expr->recount();
        rule = expr->size.limit(device, shape.size());
      }
      if (before == nullptr && rule != nullptr)
        for (const ArrayOperand& o : operands)
          if (o.is_array() && o.array().pending()) before = &o.array();
      if (before == nullptr) {
        expr->recording = Recorder::number() != 0 ? Recorder::number() : recording_of(expr->terms());
        expr->link();
        Source::begin(source, std::move(expr));
        break;
      }
    }
    before->source()->storage(rule != nullptr ? rule : "a view of it is read");
  }
  bool exposed = false;
  for (ArrayOperand& o : operands) {
    exposed = exposed || (o.is_array() && o.array().source()->computed() && o.array().source()->memory()->exposed());
    o.release();
  }
  if (exposed) source->storage("a raw pointer to its input exists");
  if (element_count(shape) == 0) source->storage("it is empty");
  return ArrayAccess::make(std::move(source), shape);
}

}  // namespace

Array elementwise(const char* name, ir::Op op, std::uint8_t sub, DType dtype, DType scalars,
                  std::span<ArrayOperand> operands) {
  const HistoryRecorder recording(name, operands);
  if (!recording || !ir::differentiable(op, sub, dtype)) return deferred(name, op, sub, dtype, scalars, operands);
  Rule rule;
  // A cast needs no conversion in its rule: Backward::add converts the adjoint to the operand's adjoint dtype.
  if (op == ir::Op::cast)
    rule.backward = [](Backward& b) { b.add(0, [&] { return b.adjoint(); }); };
  else
    rule = elementwise_rule(op, sub, dtype, scalars, operands);
  Array result = deferred(name, op, sub, dtype, scalars, operands);
  recording.attach(result, std::move(rule));
  return result;
}

Array elementwise(const char* name, ir::Op op, std::uint8_t sub, DType dtype, ArrayOperand a) {
  return elementwise(name, op, sub, dtype, dtype, std::span(&a, 1));
}

StridedView strided(const Array& a, const char* rule) {
  return {a.source()->storage(rule), a.dtype(), a.strides(), a.offset()};
}

void check_numeric(const char* name, DType t) { need(t != DType::boolean, name, t, "numbers"); }
void check_index_dtype(const char* name, const Array& indices) {
  need(is_int(indices.dtype()), name, indices.dtype(), "integer indices");
}

Array broadcast_into(const char* operation, const Array& target, const Array& value) {
  Array out = value.broadcast_to(target.shape());
  if (value.device() != target.device())
    fail<DeviceError>({.operation = operation,
                       .with = {{"this", to_string(target.device())}, {"value", to_string(value.device())}},
                       .wrong = "the arrays are on different devices",
                       .remedy = "Move the value with .to(device); nothing is moved silently"});
  return out;
}

void check_writable(const Array& out) {
  for (std::size_t d = 0; d < out.shape().size(); ++d)
    if (out.strides()[d] == 0 && out.shape()[d] > 1)
      fail<ShapeError>({.operation = "write",
                        .with = {{"shape", to_string(out.shape())}, {"dimension", std::to_string(d)}},
                        .wrong = "elements of a broadcast array share memory and cannot be written individually",
                        .remedy = "Write to the original array, or to a copy()"});
}

void write_in_place(const Array& out, ir::Op op, std::uint8_t sub, std::span<Array> args, std::optional<Term> last) {
  if (out.size() == 0) return;
  check_writable(out);
  await_tasks(out);
  for (const Array& a : args) await_tasks(a);
  const StridedView target = strided(out, "its memory is accessed");
  target.storage->flush_readers();  // Evaluates pending readers of the old contents.
  std::array<Term, 3> terms;        // No operation has more than three operands.
  std::size_t count = 0;
  for (Array& a : args) {
    // An argument in the same memory with a different layout would be overwritten while it is read.
    const bool same_memory = a.source()->computed() && a.source()->memory() == target.storage;
    if (same_memory && (a.strides() != out.strides() || a.offset() != out.offset() || a.shape() != out.shape()))
      a = a.copy();
    terms[count++] = term_of(a, out.shape());
  }
  if (last) terms[count++] = std::move(*last);
  const Write write{target, op, sub, std::span(terms).first(count)};
  run_into(std::span(&write, 1), out.shape(), out.device(), args);
}

}  // namespace detail

std::string ArrayOperand::text() const {
  if (!integral_) return std::to_string(value_);
  return large_ ? std::to_string(static_cast<std::uint64_t>(integer_)) : std::to_string(integer_);
}

std::optional<std::uint64_t> ArrayOperand::bits(DType dtype) const {
  if (is_float(dtype) && integral_)  // Rounded once, like integers in an array.
    return large_ ? ir::to_bits(dtype, static_cast<std::uint64_t>(integer_)) : ir::to_bits(dtype, integer_);
  if (is_float(dtype) || dtype == DType::boolean) return ir::to_bits(dtype, value_);
  if (!integral_) return std::nullopt;
  if (large_ || dtype == DType::u64)
    return dtype == DType::u64 && (large_ || integer_ >= 0) ? std::optional(static_cast<std::uint64_t>(integer_))
                                                            : std::nullopt;
  const std::uint64_t bits = ir::to_bits(dtype, integer_);
  return static_cast<std::int64_t>(bits) == integer_ ? std::optional(bits) : std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  if (a == DType::boolean) return b;
  if (is_float(a) && is_float(b)) return b == DType::f64 ? b : DType::f32;  // f16 with bf16 gives f32
  if (is_float(b)) return b;
  // Two integer dtypes: the result is the wider dtype. A signed dtype must be wider than the unsigned one; otherwise
  // the next wider signed dtype is used.
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
using detail::need;
using detail::Operation;
using detail::scalar_term;

template <class K>
std::uint8_t sub(K k) {
  return static_cast<std::uint8_t>(k);
}

ArrayOperand as(ArrayOperand&& o, DType t) {
  if (o.is_array() && o.dtype() != t) return elementwise("astype", ir::Op::cast, 0, t, std::move(o));
  return std::move(o);
}
Array as(Array a, DType t) { return as(ArrayOperand(std::move(a)), t).take(); }

int kind_of(DType t) { return t == DType::boolean ? 0 : is_float(t) ? 2 : 1; }

DType dtype_of(const ArrayOperand& a, const ArrayOperand& b) {
  if (a.is_array() == b.is_array()) return promote(a.dtype(), b.dtype());
  const DType array = a.is_array() ? a.dtype() : b.dtype(), scalar = a.is_array() ? b.dtype() : a.dtype();
  return kind_of(scalar) > kind_of(array) ? scalar : array;
}

// Converts two operands to their common dtype. At least one of them must be an array.
Array binary(const char* name, ir::Op op, std::uint8_t kind, ArrayOperand&& a, ArrayOperand&& b) {
  if (!a.is_array() && !b.is_array())
    fail<ArgumentError>({.operation = name, .wrong = "at least one operand must be an array"});
  const DType t = dtype_of(a, b), result = op == ir::Op::compare ? DType::boolean : t;
  std::array<ArrayOperand, 2> both = {as(std::move(a), t), as(std::move(b), t)};
  return elementwise(name, op, kind, result, t, both);
}

Array arithmetic(const char* name, ir::BinaryOp op, ArrayOperand&& a, ArrayOperand&& b) {
  const Operation operation(name, a, b);
  need(dtype_of(a, b) != DType::boolean, name, DType::boolean, "numbers");
  return operation.finish(binary(name, ir::Op::binary, sub(op), std::move(a), std::move(b)));
}
Array bitwise(const char* name, ir::BinaryOp op, ArrayOperand&& a, ArrayOperand&& b) {
  const Operation operation(name, a, b);
  need(!is_float(dtype_of(a, b)), name, dtype_of(a, b), "integers or bool");
  return operation.finish(binary(name, ir::Op::binary, sub(op), std::move(a), std::move(b)));
}
Array shift(const char* name, ir::BinaryOp op, ArrayOperand&& a, ArrayOperand&& b) {
  const Operation operation(name, a, b);
  const DType t = dtype_of(a, b);
  need(is_int(t), name, t, "integers");
  const int bits = 8 * static_cast<int>(dtype_size(t));
  const auto shifted = [&](ArrayOperand&& by) {
    return binary(name, ir::Op::binary, sub(op), std::move(a), std::move(by));
  };
  // Kernels take the count modulo the number of bits.
  const bool keeps_sign = op == ir::BinaryOp::shr && is_signed_int(t);
  if (!b.is_array()) {
    if (b.value() < bits) return operation.finish(shifted(std::move(b)));
    return operation.finish(keeps_sign ? shifted(bits - 1) : std::move(a) & 0);
  }
  Array count = as(std::move(b), t).take();
  if (keeps_sign) return operation.finish(shifted(minimum(std::move(count), bits - 1)));
  Array inside = count < bits;
  return operation.finish(where(std::move(inside), shifted(std::move(count)), 0));
}
Array comparison(const char* name, ir::CompareOp op, ArrayOperand&& a, ArrayOperand&& b) {
  const Operation operation(name, a, b);
  return operation.finish(binary(name, ir::Op::compare, sub(op), std::move(a), std::move(b)));
}
Array unary(const char* name, ir::UnaryOp op, Array a) {
  const Operation operation(name, a);
  const DType t = a.dtype();
  return operation.finish(elementwise(name, ir::Op::unary, sub(op), t, std::move(a)));
}
// Mathematical functions compute integers in f32. (NumPy uses f64.)
Array math(const char* name, ir::MathOp op, Array a) {
  const Operation operation(name, a);
  need(a.dtype() != DType::boolean, name, a.dtype(), "numbers");
  const DType t = is_float(a.dtype()) ? a.dtype() : DType::f32;
  return operation.finish(elementwise(name, ir::Op::math, sub(op), t, as(std::move(a), t)));
}

// The same for two operands. A scalar operand takes the dtype of the array.
Array math(const char* name, ir::MathOp op, ArrayOperand&& a, ArrayOperand&& b) {
  const Operation operation(name, a, b);
  if (!a.is_array() && !b.is_array())
    fail<ArgumentError>({.operation = name, .wrong = "at least one operand must be an array"});
  const DType met = dtype_of(a, b);
  need(met != DType::boolean, name, met, "numbers");
  const DType t = is_float(met) ? met : DType::f32;
  std::array<ArrayOperand, 2> both = {as(std::move(a), t), as(std::move(b), t)};
  return operation.finish(elementwise(name, ir::Op::math, sub(op), t, t, both));
}

}  // namespace

Array Array::astype(DType dtype) const {
  const detail::Operation operation("astype", *this);
  const auto attributes = [&] { return Attributes{{"dtype", std::string(dtype_name(dtype))}}; };
  if (dtype == dtype_) return operation.finish(*this, attributes);
  return operation.finish(elementwise("astype", ir::Op::cast, 0, dtype, *this), attributes);
}

Array operator+(ArrayOperand a, ArrayOperand b) {
  return arithmetic("+", ir::BinaryOp::add, std::move(a), std::move(b));
}
Array operator-(ArrayOperand a, ArrayOperand b) {
  return arithmetic("-", ir::BinaryOp::sub, std::move(a), std::move(b));
}
Array operator*(ArrayOperand a, ArrayOperand b) {
  return arithmetic("*", ir::BinaryOp::mul, std::move(a), std::move(b));
}
Array operator/(ArrayOperand a, ArrayOperand b) {
  return arithmetic("/", ir::BinaryOp::div, std::move(a), std::move(b));
}
Array operator%(ArrayOperand a, ArrayOperand b) {
  return arithmetic("%", ir::BinaryOp::rem, std::move(a), std::move(b));
}
Array operator&(ArrayOperand a, ArrayOperand b) { return bitwise("&", ir::BinaryOp::and_, std::move(a), std::move(b)); }
Array operator|(ArrayOperand a, ArrayOperand b) { return bitwise("|", ir::BinaryOp::or_, std::move(a), std::move(b)); }
Array operator^(ArrayOperand a, ArrayOperand b) { return bitwise("^", ir::BinaryOp::xor_, std::move(a), std::move(b)); }
Array operator<<(ArrayOperand a, ArrayOperand b) { return shift("<<", ir::BinaryOp::shl, std::move(a), std::move(b)); }
Array operator>>(ArrayOperand a, ArrayOperand b) { return shift(">>", ir::BinaryOp::shr, std::move(a), std::move(b)); }
Array operator==(ArrayOperand a, ArrayOperand b) {
  return comparison("==", ir::CompareOp::eq, std::move(a), std::move(b));
}
Array operator!=(ArrayOperand a, ArrayOperand b) {
  return comparison("!=", ir::CompareOp::ne, std::move(a), std::move(b));
}
Array operator<(ArrayOperand a, ArrayOperand b) {
  return comparison("<", ir::CompareOp::lt, std::move(a), std::move(b));
}
Array operator<=(ArrayOperand a, ArrayOperand b) {
  return comparison("<=", ir::CompareOp::le, std::move(a), std::move(b));
}
Array operator>(ArrayOperand a, ArrayOperand b) {
  return comparison(">", ir::CompareOp::gt, std::move(a), std::move(b));
}
Array operator>=(ArrayOperand a, ArrayOperand b) {
  return comparison(">=", ir::CompareOp::ge, std::move(a), std::move(b));
}
Array minimum(ArrayOperand a, ArrayOperand b) {
  return arithmetic("minimum", ir::BinaryOp::min, std::move(a), std::move(b));
}
Array maximum(ArrayOperand a, ArrayOperand b) {
  return arithmetic("maximum", ir::BinaryOp::max, std::move(a), std::move(b));
}
Array pow(ArrayOperand a, ArrayOperand b) {
  const Operation operation("pow", a, b);
  need(is_float(dtype_of(a, b)), "pow", dtype_of(a, b), "floats");
  return operation.finish(binary("pow", ir::Op::math, sub(ir::MathOp::pow), std::move(a), std::move(b)));
}
Array operator-(Array a) {
  need(a.dtype() != DType::boolean, "-", a.dtype(), "numbers");
  return unary("-", ir::UnaryOp::neg, std::move(a));
}
Array operator!(Array a) {
  need(a.dtype() == DType::boolean, "!", a.dtype(), "bool");
  return unary("!", ir::UnaryOp::not_, std::move(a));
}

Array where(Array condition, ArrayOperand if_true, ArrayOperand if_false) {
  const Operation operation("where", condition, if_true, if_false);
  need(condition.dtype() == DType::boolean, "where", condition.dtype(), "a bool condition");
  const DType t = dtype_of(if_true, if_false);
  std::array<ArrayOperand, 3> operands = {std::move(condition), as(std::move(if_true), t), as(std::move(if_false), t)};
  return operation.finish(elementwise("where", ir::Op::select, 0, t, t, operands));
}

Array abs(Array a) {
  need(a.dtype() != DType::boolean, "abs", a.dtype(), "numbers");
  return unary("abs", ir::UnaryOp::abs, std::move(a));
}
Array sqrt(Array a) { return math("sqrt", ir::MathOp::sqrt, std::move(a)); }
Array rsqrt(Array a) { return math("rsqrt", ir::MathOp::rsqrt, std::move(a)); }
Array exp(Array a) { return math("exp", ir::MathOp::exp, std::move(a)); }
Array exp2(Array a) { return math("exp2", ir::MathOp::exp2, std::move(a)); }
Array log(Array a) { return math("log", ir::MathOp::log, std::move(a)); }
Array log2(Array a) { return math("log2", ir::MathOp::log2, std::move(a)); }
Array log10(Array a) { return math("log10", ir::MathOp::log10, std::move(a)); }
Array tan(Array a) { return math("tan", ir::MathOp::tan, std::move(a)); }
Array asin(Array a) { return math("asin", ir::MathOp::asin, std::move(a)); }
Array acos(Array a) { return math("acos", ir::MathOp::acos, std::move(a)); }
Array atan(Array a) { return math("atan", ir::MathOp::atan, std::move(a)); }
Array sinh(Array a) { return math("sinh", ir::MathOp::sinh, std::move(a)); }
Array cosh(Array a) { return math("cosh", ir::MathOp::cosh, std::move(a)); }
Array atan2(ArrayOperand y, ArrayOperand x) { return math("atan2", ir::MathOp::atan2, std::move(y), std::move(x)); }
Array hypot(ArrayOperand a, ArrayOperand b) { return math("hypot", ir::MathOp::hypot, std::move(a), std::move(b)); }
Array sin(Array a) { return math("sin", ir::MathOp::sin, std::move(a)); }
Array cos(Array a) { return math("cos", ir::MathOp::cos, std::move(a)); }
Array tanh(Array a) { return math("tanh", ir::MathOp::tanh, std::move(a)); }
Array erf(Array a) { return math("erf", ir::MathOp::erf, std::move(a)); }
Array floor(Array a) { return math("floor", ir::MathOp::floor, std::move(a)); }
Array ceil(Array a) { return math("ceil", ir::MathOp::ceil, std::move(a)); }
Array trunc(Array a) { return math("trunc", ir::MathOp::trunc, std::move(a)); }
Array rint(Array a) { return math("rint", ir::MathOp::rint, std::move(a)); }
Array round(Array a) { return math("round", ir::MathOp::rint, std::move(a)); }
namespace {
Device device_of(const ArrayOperand& a, const ArrayOperand& b) { return (a.is_array() ? a : b).array().device(); }
/// The common float dtype of operands of which at least one is an array.
DType float_dtype_of(const char* name, const ArrayOperand& a, const ArrayOperand& b) {
  if (!a.is_array() && !b.is_array())
    fail<ArgumentError>({.operation = name, .wrong = "at least one operand must be an array"});
  const DType met = dtype_of(a, b);
  need(met != DType::boolean, name, met, "numbers");
  return is_float(met) ? met : DType::f32;
}
Array float_array(ArrayOperand& o, DType t, Device device) {
  return o.is_array() ? as(o.take(), t) : Array::full({}, o.value(), t, device);
}
/// The bits of a float operand as unsigned integers.
Array bits_of(const char* name, const Array& x) {
  static constexpr DType dtypes[] = {DType::u16, DType::u32, DType::u64};
  return elementwise(name, ir::Op::bitcast, 0, dtypes[dtype_size(x.dtype()) / 4], x);
}
}  // namespace
Array copysign(ArrayOperand a, ArrayOperand b) {
  detail::RuledOperation operation("copysign", a, b);
  const DType t = float_dtype_of("copysign", a, b);
  const Device device = device_of(a, b);
  const std::uint64_t sign = std::uint64_t{1} << (8 * dtype_size(t) - 1);
  Array sized = bits_of("copysign", float_array(a, t, device)) & (sign - 1);
  Array bits = std::move(sized) | (bits_of("copysign", float_array(b, t, device)) & sign);
  const auto rule = [] {
    return Rule{.backward =
                    [](Backward& b) {
                      b.add(0, [&] {
                        const Array x = b.operand(0).astype(b.result().dtype()), &g = b.adjoint();
                        return where(x == 0, 0, where(b.result() == x, g, -g));
                      });
                    },
                .keeps = operand_bits(0),
                .keeps_result = true};
  };
  return operation.finish(elementwise("copysign", ir::Op::bitcast, 0, t, std::move(bits)), rule);
}
Array nextafter(ArrayOperand a, ArrayOperand b) {
  detail::RuledOperation operation("nextafter", a, b);
  const DType t = float_dtype_of("nextafter", a, b);
  const Device device = device_of(a, b);
  const Array from = float_array(a, t, device), to = float_array(b, t, device);
  const Array from_bits = bits_of("nextafter", from), to_bits = bits_of("nextafter", to);
  const std::uint64_t sign = std::uint64_t{1} << (8 * dtype_size(t) - 1);
  // The bits of floats of one sign are ordered like their magnitudes.
  Array bits = where((from < to) == (from > 0), from_bits + 1, from_bits - 1);
  bits = where(from == 0, (to_bits & sign) | 1, std::move(bits));
  bits = where(from == to, to_bits, std::move(bits));
  Array next = elementwise("nextafter", ir::Op::bitcast, 0, t, std::move(bits));
  return operation.finish(where(isnan(from) | isnan(to), from + to, std::move(next)),
                          [] { return Rule{.backward = [](Backward& b) { b.add(0, [&] { return b.adjoint(); }); }}; });
}
Array sigmoid(Array a) {
  return detail::compute_in_f32(
      "sigmoid", std::move(a), [](Array x) { return 1 / (1 + exp(-std::move(x))); },
      [](const Array& x) {
        const Array s = sigmoid(x);
        return s * (1 - s);
      });
}
Array silu(Array a) {
  return detail::compute_in_f32(
      "silu", std::move(a),
      [](Array x) {
        Array below = 1 + exp(-x);
        return std::move(x) / std::move(below);
      },
      [](const Array& x) {
        const Array s = sigmoid(x);
        return s * (1 + x * (1 - s));
      });
}
Array relu(Array a) {
  detail::RuledOperation operation("relu", a);
  return operation.finish(maximum(std::move(a), 0), [] {
    return Rule{.backward = [](Backward& b) { b.add(0, [&] { return where(b.operand(0) <= 0, 0, b.adjoint()); }); },
                .keeps = operand_bits(0)};
  });
}
Array gelu(Array a) {
  // `density` is the density of the standard normal distribution at 0.
  constexpr double sqrt_half = 0.70710678118654752, density = 0.39894228040143268;
  return detail::compute_in_f32(
      "gelu", std::move(a),
      [](Array x) {
        Array half = 1 + erf(x * sqrt_half);
        return 0.5 * std::move(x) * std::move(half);
      },
      [](const Array& x) { return 0.5 * (1 + erf(x * sqrt_half)) + density * x * exp(-0.5 * x * x); });
}

namespace {
Array& update(Array& a, const char* name, ir::BinaryOp op, ArrayOperand&& b) {
  const Operation operation(name, a, b);
  detail::check_write_target(name, a);
  if (b.is_array()) detail::check_stored_value(name, b.array());
  need(a.dtype() != DType::boolean, name, a.dtype(), "numbers");
  if (kind_of(b.dtype()) > kind_of(a.dtype()))
    fail<DtypeError>({.operation = name,
                      .with = {{"left", std::string(dtype_name(a.dtype()))},
                               {"right", b.is_array() ? std::string(dtype_name(b.dtype())) : b.text()}},
                      .wrong = "the result is a float, but the left side is an integer array that is updated in place",
                      .remedy = "Convert one of them with astype, or write a = a " + std::string(name, 1) + " b"});
  if (!b.is_array()) {
    Array self = a;
    detail::write_in_place(a, ir::Op::binary, sub(op), std::span(&self, 1), scalar_term(name, b, a.dtype()));
    operation.finish_in_place(a);
    return a;
  }
  if (broadcast_shapes(name, a.shape(), b.array().shape()) != a.shape())
    fail<ShapeError>({.operation = name,
                      .with = {{"left", to_string(a.shape())}, {"right", to_string(b.array().shape())}},
                      .wrong = "the result is larger than the left side, which is updated in place"});
  const Array* both[] = {&a, &b.array()};
  detail::common_device(name, both);
  std::array<Array, 2> args = {a, as(std::move(b), a.dtype()).take()};
  if (args[1].shape() != a.shape()) args[1] = args[1].broadcast_to(a.shape());
  detail::write_in_place(a, ir::Op::binary, sub(op), args);
  operation.finish_in_place(a);
  return a;
}
}  // namespace
Array& Array::operator+=(ArrayOperand b) { return update(*this, "+=", ir::BinaryOp::add, std::move(b)); }
Array& Array::operator-=(ArrayOperand b) { return update(*this, "-=", ir::BinaryOp::sub, std::move(b)); }
Array& Array::operator*=(ArrayOperand b) { return update(*this, "*=", ir::BinaryOp::mul, std::move(b)); }
Array& Array::operator/=(ArrayOperand b) { return update(*this, "/=", ir::BinaryOp::div, std::move(b)); }

}  // namespace tessera
