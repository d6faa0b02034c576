// SPDX-License-Identifier: Apache-2.0
// Creates deferred elementwise operations. Internal to array/.
#pragma once

#include "tessera/array/operation.h"
#include "tessera/array/source.h"

namespace tessera {

/// Gives the sources of array/ access to the private constructor of Array.
struct ArrayAccess {
  static Array make(std::shared_ptr<detail::Source> source, DType dtype, Shape shape, Strides strides,
                    std::int64_t offset) {
    return Array(std::move(source), dtype, std::move(shape), std::move(strides), offset);
  }
  /// Creates a contiguous array. Strides are written in place. If they were moved, vector loads would read them right
  /// after scalar stores, which stalls the core.
  static Array make(std::shared_ptr<detail::Source> source, const Shape& shape) {
    const DType t = source->dtype();
    Array a(std::move(source), t, shape, {}, 0);
    a.strides_.resize(shape.size());
    std::int64_t step = 1;
    for (std::size_t d = shape.size(); d-- > 0;) a.strides_[d] = step, step *= shape[d];
    return a;
  }
  /// Creates a contiguous matrix. Its extents are written in place for the same reason.
  static Array matrix(std::shared_ptr<detail::Source> source, std::int64_t rows, std::int64_t columns) {
    const DType t = source->dtype();
    Array a(std::move(source), t, {}, {}, 0);
    a.shape_.resize(2), a.strides_.resize(2);
    a.shape_[0] = rows, a.shape_[1] = a.strides_[0] = columns, a.strides_[1] = 1;
    return a;
  }
  static const std::shared_ptr<detail::Source>& source(const Array& a) { return a.source_; }
  static std::int64_t offset(const Array& a) { return a.offset_; }  ///< in elements, from the start of the source
};

namespace detail {

/// The strides of `a` broadcast to `shape`. They are 0 along broadcast dimensions.
Strides broadcast_strides(const Array& a, const Shape& shape);
/// Makes `a` an operand of an expression of this shape. A pending array is computed now unless all its elements are
/// used in order. Expressions therefore refer to other pending expressions only elementwise.
Term term_of(const Array& a, const Shape& shape);
/// Converts a host scalar to `dtype`. Throws DtypeError if the dtype cannot represent it (0.5 as an integer).
Term scalar_term(const char* operation, const ArrayOperand& scalar, DType dtype);
/// Returns the common device of the arrays. If the devices differ, throws DeviceError with the device of each array.
Device common_device(const char* operation, std::span<const Array* const> arrays);

/// Creates a deferred operation on at least one array. Scalar operands are converted to the dtype `scalars`. The caller
/// ensures that the operation accepts the dtypes of the arrays. `dtype` is the dtype of the result. The arrays are
/// released before anything is computed, so that intermediate results are stored only if another array still refers to
/// them. Records history if an operand has history.
Array elementwise(const char* name, ir::Op op, std::uint8_t sub, DType dtype, DType scalars,
                  std::span<ArrayOperand> operands);
/// The same for a single array operand.
Array elementwise(const char* name, ir::Op op, std::uint8_t sub, DType dtype, ArrayOperand a);

/// Converts integers and bools to f64, or to f32 on devices without f64.
Array as_floats(const Array& a);
/// Throws DtypeError unless the dtype is numeric.
void check_numeric(const char* name, DType t);
void check_index_dtype(const char* name, const Array& indices);

/// Computes a composite operation. For 16-bit floats the parts are computed in f32 and the result is rounded once.
/// Integers are converted to f32 first, so that unsigned values can be negated. `slope` returns the derivative of
/// `parts` at x, written so that intermediate results do not overflow.
template <class F, class S>
Array compute_in_f32(const char* name, Array a, F&& parts, S&& slope) {
  RuledOperation operation(name, a);
  const DType t = a.dtype();
  check_numeric(name, t);
  const auto rule = [&] {
    return Rule{.backward =
                    [slope](Backward& b) {
                      b.add(0, [&] {
                        const DType in = b.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
                        return b.adjoint() * slope(b.operand(0).astype(in));
                      });
                    },
                .keeps = operand_bits(0)};
  };
  if (t == DType::f32 || t == DType::f64) return operation.finish(parts(std::move(a)), rule);
  a = a.astype(DType::f32);
  a = parts(std::move(a));
  return operation.finish(is_float(t) ? a.astype(t) : std::move(a), rule);
}

/// Broadcasts `value` to the shape of `target`, into which it will be written. Throws DeviceError if the two arrays are
/// on different devices.
Array broadcast_into(const char* operation, const Array& target, const Array& value);
/// Throws ShapeError if elements of `out` share memory, as in a broadcast array.
void check_writable(const Array& out);
/// Writes `op(args[, last])` into `out` in place, without a temporary if that is safe. `last` is a scalar.
void write_in_place(const Array& out, ir::Op op, std::uint8_t sub, std::span<Array> args,
                    std::optional<Term> last = {});

/// Returns the mean for a sum of `count` elements, in a float dtype. Also used for block arrays
/// (task/block_reduce.cpp).
Array mean_of_sum(Array total, std::int64_t count, DType dtype);

/// Returns the view of an array that a fused kernel reads. A pending array is computed first; the trace prints `rule`
/// as the reason.
StridedView strided(const Array& a, const char* rule);

}  // namespace detail
}  // namespace tessera
