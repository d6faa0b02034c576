// SPDX-License-Identifier: Apache-2.0
// Traced values with a dtype that is known when the kernel is traced. array/ and ops/ use them to write kernels without
// templates; kernel/ wraps them in typed handles for users. All functions use `Builder::current()`.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/ir/handle.h"

namespace tessera::ir {

/// A traced value. It is immutable, and copies denote the same value.
class Value {
 public:
  Value() = default;
  explicit Value(NodeId id) : id_(id) {}
  NodeId id() const { return id_; }
  Type type() const;
  DType dtype() const { return type().dtype; }
  bool valid() const { return id_.valid(); }

 private:
  Handle id_;
};

/// An operand: a Value, or a literal that takes the dtype of the other operand. Records the caller's source line.
class Operand {
 public:
  Operand(Value v, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : value_(v) { note(file, line); }
  template <std::floating_point T>
  Operand(T v, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : kind_(real), real_(v) {
    note(file, line);
  }
  template <std::integral T>
  Operand(T v, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : kind_(std::same_as<T, bool> ? logical : integer), integer_(static_cast<std::int64_t>(v)) {
    note(file, line);
  }

  bool is_literal() const { return kind_ != traced; }
  /// Returns the value, or the literal converted to `dtype`. Throws KernelError if a literal cannot be converted, e.g.
  /// 1.5 to an integer.
  Value as(DType dtype) const;
  /// Returns the value, or the literal with its own dtype: f32, index or boolean.
  Value own() const;
  DType dtype() const;  ///< the dtype of `own()`

 private:
  static void note(const char* file, int line);
  enum Kind : std::uint8_t { traced, real, integer, logical } kind_ = traced;
  Value value_;
  double real_ = 0;
  std::int64_t integer_ = 0;
};

// Arithmetic. The operands must have the same dtype, or one of them must be a literal. f16 and bf16 are computed as
// f32.
Value operator+(Operand a, Operand b);
Value operator-(Operand a, Operand b);
Value operator*(Operand a, Operand b);
Value operator/(Operand a, Operand b);
Value operator%(Operand a, Operand b);
Value operator&(Operand a, Operand b);
Value operator|(Operand a, Operand b);
Value operator^(Operand a, Operand b);
Value operator<<(Operand a, Operand b);
Value operator>>(Operand a, Operand b);
Value operator&&(Operand a, Operand b);  ///< evaluates both operands
Value operator||(Operand a, Operand b);  ///< evaluates both operands
Value operator==(Operand a, Operand b);
Value operator!=(Operand a, Operand b);
Value operator<(Operand a, Operand b);
Value operator<=(Operand a, Operand b);
Value operator>(Operand a, Operand b);
Value operator>=(Operand a, Operand b);
Value operator-(Value a);
Value operator!(Value a);
Value operator~(Value a);

Value binary(BinaryOp op, Operand a, Operand b);
Value compare(CompareOp op, Operand a, Operand b);
Value unary(UnaryOp op, Operand a);
Value math(MathOp op, Operand a);
Value math(MathOp op, Operand a, Operand b);  ///< functions of two operands: pow, atan2, hypot

Value min(Operand a, Operand b);
Value max(Operand a, Operand b);
Value mul_hi(Operand a, Operand b);  ///< the high half of the product
Value abs(Value a);
Value fma(Operand a, Operand b, Operand c);
Value pow(Operand a, Operand b);
Value atan2(Operand y, Operand x);
Value hypot(Operand a, Operand b);
Value sqrt(Value a);
Value rsqrt(Value a);
Value exp(Value a);
Value exp2(Value a);
Value log(Value a);
Value log2(Value a);
Value sin(Value a);
Value cos(Value a);
Value tanh(Value a);
Value erf(Value a);
Value tan(Value a);
Value asin(Value a);
Value acos(Value a);
Value atan(Value a);
Value sinh(Value a);
Value cosh(Value a);
Value log10(Value a);
Value floor(Value a);
Value ceil(Value a);
Value trunc(Value a);
Value rint(Value a);

// Composed of other operations. `is_nan` and similar functions take floats; for 16-bit floats they test the bits.
Value is_nan(Value a);
Value is_infinite(Value a);
Value is_finite(Value a);
Value copysign(Operand a, Operand b);  ///< |a| with the sign of b, even if b is zero or NaN
Value sign(Value a);                   ///< -1, 0 or 1; returns zeros and NaN unchanged
Value ctz(Value a);                    ///< number of trailing zero bits of an integer; the width for 0

Value select(Operand condition, Operand if_true, Operand if_false);
Value cast(DType to, Operand a);
Value bitcast(DType to, Value a);
Value dot4(Dot4Signs signs, Value a, Value b, Value c);
Value make_vector(std::initializer_list<Value> elements);
Value extract(Value vector, std::uint32_t lane);

/// Returns a constant of dtype `dtype`.
Value literal(DType dtype, double value);
Value index_literal(std::int64_t value);

// Position of the thread. `thread_id` and the functions after it exist only in block kernels.
Value global_id(int dimension = 0);
Value grid_size(int dimension = 0);
Value extent(int dimension = 0);
Value thread_id(int dimension = 0);
Value block_id(int dimension = 0);
Value block_size(int dimension = 0);
Value block_count(int dimension = 0);
Value lane_id();
Value subgroup_id();
Value subgroup_size();
Value subgroup_count();

/// Memory: a buffer parameter, shared memory, or a local array of a thread.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(NodeId id) : id_(id) {}
  NodeId id() const { return id_; }
  DType dtype() const { return Value(id_).dtype(); }
  /// Returns the number of elements. For a buffer parameter this is the size passed to the launch.
  Value size() const;
  Value load(Operand index) const;
  Value load_vector(Operand index,
                    std::uint8_t lanes) const;  ///< loads `lanes` consecutive elements, starting at `index`
  Value load_if(Value mask, Operand index, Operand other) const;
  void store(Operand index,
             Operand value) const;  ///< converts a literal to the dtype of the memory; stores all lanes of a vector
  Value atomic(AtomicOp op, Operand index, Operand value) const;
  Value atomic_cas(Operand index, Operand expected, Operand value) const;

 private:
  Handle id_;
};

BufferRef buffer_param(std::string name, DType dtype, Access access);
Value scalar_param(std::string name, DType dtype);
BufferRef shared(DType dtype, std::uint64_t count);
BufferRef local_array(DType dtype, std::uint64_t count);

/// A matrix that is distributed over the lanes of a subgroup. All threads of the subgroup must call each member
/// together, with the same index, stride and value. See MmaOp.
class Fragment {
 public:
  Fragment(FragmentRole role, DType dtype);
  NodeId id() const { return id_; }
  void load(BufferRef memory, Operand index, Operand stride) const;
  void load_transposed(BufferRef memory, Operand index, Operand stride) const;
  void fill(Operand value) const;
  void multiply_add(const Fragment& left, const Fragment& right, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) const;
  /// Sets this accumulator to left * right.
  void multiply(const Fragment& left, const Fragment& right, const char* file = __builtin_FILE(),
                int line = __builtin_LINE()) const;
  void store(BufferRef memory, Operand index, Operand stride) const;
  void convert(const Fragment& accumulator) const;  ///< sets this left factor
  /// For accumulators: this lane's element number k (see PlaceOf).
  Value get(Value k) const;
  void set(Value k, Operand value) const;

 private:
  Handle id_;
};

/// An element of all accumulators that belongs to this lane.
struct FragmentElement {
  Value k, row, column;
};
/// Runs the body for each element of an accumulator that belongs to this lane. The body may load and store this element
/// of several accumulators, but must contain no barriers and no operations of subgroups.
void for_each_element(const std::function<void(const FragmentElement&)>& body);

/// A number for each row of an accumulator. Each lane stores the numbers of its own rows.
class FragmentRows {
 public:
  FragmentRows();
  Value get(const FragmentElement& e) const;
  /// Reduces the rows of the accumulator with `sum` or `max`. All threads of the subgroup must call it together.
  void reduce(ReduceOp op, const Fragment& accumulator) const;
  /// The body gets a number of this lane, which it may use with `at` and `set_at` of any FragmentRows, and its row.
  static void for_each(const std::function<void(Value slot, Value row)>& body);
  Value at(Value slot) const { return memory_.load(slot); }
  void set_at(Value slot, Operand value) const { memory_.store(slot, value); }

 private:
  BufferRef memory_;
};

// Asynchronous copies. See AsyncOp. `elements` is the number of elements that are copied, 4, 8 or 16 bytes.
void copy_async(BufferRef shared, Operand index, BufferRef buffer, Operand from, std::uint32_t elements);
void async_commit();
void async_wait(std::uint32_t groups);

/// A mutable variable of one thread.
class Variable {
 public:
  Variable(DType dtype, Operand initial);
  Value get() const;
  void set(Operand value) const;

 private:
  BufferRef memory_;
};

// Control flow.
void if_(Value condition, const std::function<void()>& then, const std::function<void()>& otherwise = {});
/// Runs the body for begin, begin + step, ... while the counter is less than end. Throws KernelError if `step` is a
/// literal that is not greater than 0, or `unroll` is not 1 to 64.
void for_(Operand begin, Operand end, Operand step, const std::function<void(Value)>& body,
          std::optional<Unroll> unroll = {});
void for_(Operand begin, Operand end, const std::function<void(Value)>& body, std::optional<Unroll> unroll = {});
void while_(const std::function<Value()>& condition, const std::function<void()>& body);
void return_();
void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE());
void print(std::string_view format, std::initializer_list<Value> values = {});

// Convergent operations.
Value block_reduce(ReduceOp op, Operand a);
Value block_sum(Operand a);
Value block_max(Operand a);
Value block_min(Operand a);
Value block_scan(Operand a, bool exclusive);
Value block_uniform(Operand a);
Value subgroup(SubgroupOp op, Operand a);
Value subgroup(SubgroupOp op, Operand a, Operand lane);
Value subgroup_sum(Operand a);
Value subgroup_max(Operand a);
Value subgroup_min(Operand a);

}  // namespace tessera::ir
