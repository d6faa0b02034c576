// SPDX-License-Identifier: Apache-2.0
// Builds deferred elementwise operations from arrays. Inside array/ only.
#pragma once

#include "tessera/array/operation.h"
#include "tessera/array/source.h"

namespace tessera {

/// Lets array/'s own files make arrays from their parts.
struct ArrayAccess {
  static Array make(std::shared_ptr<detail::Source> source, DType dtype, Shape shape, Strides strides,
                    std::int64_t offset) {
    return Array(std::move(source), dtype, std::move(shape), std::move(strides), offset);
  }
  /// Contiguous. Strides are written where they stay: moved, they would be read back as vectors at once, for which a
  /// core waits.
  static Array make(std::shared_ptr<detail::Source> source, const Shape& shape) {
    const DType t = source->dtype();
    Array a(std::move(source), t, shape, {}, 0);
    a.strides_.resize(shape.size());
    std::int64_t step = 1;
    for (std::size_t d = shape.size(); d-- > 0;) a.strides_[d] = step, step *= shape[d];
    return a;
  }
  /// A contiguous matrix, whose extents are written where they stay, too.
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

/// Strides that walk `a` as `shape`, to which it broadcasts: 0 along stretched dimensions.
Strides broadcast_strides(const Array& a, const Shape& shape);
/// `a` as an operand of an expression of this shape. A pending array that is not seen whole and in order is computed
/// now, so that expressions refer to pending ones only element for element.
Term term_of(const Array& a, const Shape& shape);
/// A host scalar as a value of `dtype`. DtypeError if it is not one (0.5 as an integer).
Term scalar_term(const char* operation, const ArrayOperand& scalar, DType dtype);
/// The device that all arrays are on; DeviceError naming each if they are not on one.
Device common_device(const char* operation, std::span<const Array* const> arrays);

/// One deferred operation on arrays of any dtypes that the operation takes, at least one, and scalars that become
/// `scalars`; `dtype` is the result's. The arrays are given up before anything is computed, so that only what others
/// hold counts as held. If they have history, so has the result.
Array elementwise(const char* name, ir::Op op, std::uint8_t sub, DType dtype, DType scalars,
                  std::span<ArrayOperand> operands);
/// The same of one array.
Array elementwise(const char* name, ir::Op op, std::uint8_t sub, DType dtype, ArrayOperand a);

/// DtypeError unless it is a dtype of numbers; unless the array holds integers.
void check_numeric(const char* name, DType t);
void check_index_dtype(const char* name, const Array& indices);

/// One operation to whoever calls it, so of 16-bit floats its parts are of f32 and it is rounded once; of integers it
/// is of their values as f32, whose negative is one also where they are unsigned. `slope` gives the derivative of what
/// `parts` makes of x, by x: in terms that no intermediate result takes out of range.
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

/// `value` broadcast to `target`, into which it is about to be written. DeviceError if it is on another device.
Array broadcast_into(const char* operation, const Array& target, const Array& value);
/// ShapeError if elements of `out` share memory, as those of a broadcast array do.
void check_writable(const Array& out);
/// Writes `op(args[, last])` into the elements of `out`, in place, without a temporary where that is safe. `last`: a
/// scalar.
void write_in_place(const Array& out, ir::Op op, std::uint8_t sub, std::span<Array> args,
                    std::optional<Term> last = {});

/// A sum of `count` elements as their mean, of a float dtype. Also for block arrays (task/block_reduce.cpp).
Array mean_of_sum(Array total, std::int64_t count, DType dtype);

/// The view of an array that a fused kernel reads; computes it if pending.
StridedView strided(const Array& a, const char* rule);

}  // namespace detail
}  // namespace tessera
