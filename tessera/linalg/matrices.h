// SPDX-License-Identifier: Apache-2.0
// Internal to linalg/. Checks arguments, copies matrices between arrays and column-major host memory, and gives several
// results one gradient.
#pragma once

#include <functional>

#include "tessera/array/history.h"
#include "tessera/linalg/host.h"

namespace tessera::linalg {

/// Throws DtypeError unless the dtype is f32 or f64.
void check_real(const char* operation, const Array& a);
/// Throws DtypeError, or ShapeError unless `a` is (..., m, n) with extents that LAPACK's integers can represent.
void check_matrices(const char* operation, const Array& a);
/// Like check_matrices, and throws ShapeError unless m = n.
void check_square(const char* operation, const Array& a);
/// Throws DtypeError or DeviceError unless both have the same dtype and device.
void check_alike(const char* operation, const Array& a, const Array& b);

/// The batch of (..., m, n): the extents without the last two.
Shape batch_of(const Array& a);
/// The batch shape, followed by `tail`.
Shape with_batch(const Shape& batch, std::initializer_list<std::int64_t> tail);
/// "matrix (1, 2) of the batch" for error messages, or "the matrix" if there is no batch.
std::string matrix_name(const Shape& batch, std::int64_t number);

/// Reads the matrices of an array without history in host memory.
class MatrixReader {
 public:
  /// Copies the array to the host unless the host can address its memory.
  MatrixReader(const char* operation, const Array& a);
  std::int64_t count() const { return count_; }
  std::int64_t rows() const { return array_.shape(-2); }
  std::int64_t columns() const { return array_.shape(-1); }
  /// True if this matrix is the same memory as the one before, in a broadcast array.
  bool repeated(std::int64_t matrix) const;
  /// Copies a matrix to column-major memory, to columns that are `ld` apart, by default without gaps.
  template <class T>
  void read(std::int64_t matrix, T* to, std::optional<std::int64_t> ld = {}) const;

 private:
  std::int64_t offset(std::int64_t matrix) const;
  Array array_;
  std::int64_t count_;
  std::optional<HostView> view_;
};

/// A result (..., m, n) in host memory.
class MatrixWriter {
 public:
  /// `device` is the device of the final result.
  MatrixWriter(const Shape& batch, std::int64_t rows, std::int64_t columns, DType dtype, Device device);
  /// Copies a matrix from column-major memory, whose columns are `ld` apart.
  template <class T>
  void write(std::int64_t matrix, const T* from, std::int64_t ld);
  /// Like write, but sets the elements above (or below) the diagonal to zero.
  template <class T>
  void write_lower(std::int64_t matrix, const T* from, std::int64_t ld);
  template <class T>
  void write_upper(std::int64_t matrix, const T* from, std::int64_t ld);
  /// The row-major elements of a matrix.
  template <class T>
  T* data(std::int64_t matrix) const {
    return static_cast<T*>(access_->data()) + matrix * rows_ * columns_;
  }
  /// Returns the result on its device, in this shape.
  Array finish(Shape shape);
  Array finish() { return finish(array_.shape()); }

 private:
  std::int64_t rows_, columns_;
  Device device_;
  Array array_;
  std::optional<HostAccess> access_;
};

/// Calls f(T()) with the C++ type of the dtype, which check_real has checked.
template <class F>
auto with_type(DType dtype, F f) {
  return dtype == DType::f32 ? f(float()) : f(double());
}

/// Returns arrays that were computed from `a` without its history, with one gradient for all of them: `rule` gets `a`
/// (which has no elements unless `keeps` is true), the results and their adjoints, and returns the adjoint of `a`. The
/// arrays have the batch of `a`, followed by further axes.
using SeveralRule =
    std::function<Array(const Array& a, const std::vector<Array>& results, const std::vector<Array>& adjoints)>;
std::vector<Array> with_rule(const char* operation, const Array& a, std::vector<Array> results, bool keeps,
                             SeveralRule rule);

}  // namespace tessera::linalg
