// SPDX-License-Identifier: Apache-2.0
#include "tessera/linalg/matrices.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "tessera/array/operation.h"
#include "tessera/base/log.h"
#include "tessera/linalg/linalg.h"

namespace tessera::linalg {

namespace {

/// Copies element (i, j), at i * row_stride + j * column_stride, to i + j ld. Eight columns are copied at a time, so
/// that reads or writes of consecutive elements use whole cache lines.
template <class T>
void copy_columns(std::int64_t rows, std::int64_t columns, const T* from, std::int64_t row_stride,
                  std::int64_t column_stride, T* to, std::int64_t ld) {
  if (row_stride == 1) {
    for (std::int64_t j = 0; j < columns; ++j) std::copy_n(from + j * column_stride, rows, to + j * ld);
    return;
  }
  constexpr std::int64_t width = 8;
  std::int64_t j = 0;
  for (; j + width <= columns; j += width)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t k = j; k < j + width; ++k) to[i + k * ld] = from[i * row_stride + k * column_stride];
  for (; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i) to[i + j * ld] = from[i * row_stride + j * column_stride];
}

bool host_addresses(Device device) { return is_built_in(device.backend); }

void warn_of_copies(const char* operation, Device device) {
  static std::once_flag once;
  std::call_once(once, [&] {
    logging::warn(std::string(operation) + " of arrays on " + to_string(device) +
                  " runs on the host, like all factorisations of linalg: matrices are copied there, and results back");
  });
}

std::vector<Array> split_last_axis(const Array& packed, const std::vector<Shape>& shapes, std::size_t batch_rank) {
  std::vector<Array> out;
  std::int64_t at = 0;
  for (const Shape& shape : shapes) {
    std::int64_t count = 1;
    for (std::size_t d = batch_rank; d < shape.size(); ++d) count *= shape[d];
    out.push_back(packed.slice(-1, at, at + count).reshape(shape));
    at += count;
  }
  return out;
}

}  // namespace

void check_real(const char* operation, const Array& a) {
  if (a.dtype() != DType::f32 && a.dtype() != DType::f64)
    fail<DtypeError>({.operation = operation,
                      .with = {{"dtype", std::string(dtype_name(a.dtype()))}},
                      .wrong = "the dtype must be f32 or f64",
                      .remedy = "Convert the array with astype(...)"});
}

void check_matrices(const char* operation, const Array& a) {
  check_real(operation, a);
  if (a.rank() < 2)
    fail<ShapeError>({.operation = operation,
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the array has fewer than two dimensions, so it contains no matrix"});
  if (std::max(a.shape(-2), a.shape(-1)) > std::numeric_limits<host::Int>::max())
    fail<ShapeError>({.operation = operation,
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "a matrix has more than 2^31 - 1 rows or columns"});
}

void check_square(const char* operation, const Array& a) {
  check_matrices(operation, a);
  if (a.shape(-1) != a.shape(-2))
    fail<ShapeError>(
        {.operation = operation, .with = {{"shape", to_string(a.shape())}}, .wrong = "the matrices are not square"});
}

void check_alike(const char* operation, const Array& a, const Array& b) {
  if (a.dtype() != b.dtype())
    fail<DtypeError>({.operation = operation,
                      .with = {{"a", std::string(dtype_name(a.dtype()))}, {"b", std::string(dtype_name(b.dtype()))}},
                      .wrong = "the dtypes differ",
                      .remedy = "Convert one with astype(...)"});
  if (a.device() != b.device())
    fail<DeviceError>({.operation = operation,
                       .with = {{"a on", to_string(a.device())}, {"b on", to_string(b.device())}},
                       .wrong = "the arrays are on different devices",
                       .remedy = "Move one with to(...)"});
}

Shape batch_of(const Array& a) { return Shape(a.shape().begin(), a.shape().end() - 2); }

Shape with_batch(const Shape& batch, std::initializer_list<std::int64_t> tail) {
  Shape out = batch;
  for (const std::int64_t extent : tail) out.push_back(extent);
  return out;
}

std::string matrix_name(const Shape& batch, std::int64_t number) {
  Shape at = batch;
  for (std::size_t d = batch.size(); d-- > 0; number /= batch[d]) at[d] = number % batch[d];
  return batch.empty() ? "the matrix" : "matrix " + to_string(at) + " of the batch";
}

MatrixReader::MatrixReader(const char* operation, const Array& a)
    : array_(detail::without_history(a)), count_(element_count(batch_of(a))) {
  if (a.size() == 0) return;
  array_.eval();
  if (!host_addresses(a.device())) {
    warn_of_copies(operation, a.device());
    array_ = array_.to(Device{Backend::cpu, 0});
  }
  view_.emplace(array_.host_view());
}

std::int64_t MatrixReader::offset(std::int64_t matrix) const {
  std::int64_t out = 0;
  for (std::size_t d = array_.shape().size() - 2; d-- > 0; matrix /= array_.shape()[d])
    out += matrix % array_.shape()[d] * array_.strides()[d];
  return out;
}

bool MatrixReader::repeated(std::int64_t matrix) const { return matrix > 0 && offset(matrix) == offset(matrix - 1); }

template <class T>
void MatrixReader::read(std::int64_t matrix, T* to, std::optional<std::int64_t> ld) const {
  if (!view_) return;
  const std::size_t rank = array_.shape().size();
  copy_columns(rows(), columns(), static_cast<const T*>(view_->data()) + offset(matrix), array_.strides()[rank - 2],
               array_.strides()[rank - 1], to, ld.value_or(rows()));
}

MatrixWriter::MatrixWriter(const Shape& batch, std::int64_t rows, std::int64_t columns, DType dtype, Device device)
    : rows_(rows),
      columns_(columns),
      device_(device),
      array_(Array::empty(with_batch(batch, {rows, columns}), dtype,
                          host_addresses(device) ? device : Device{Backend::cpu, 0})) {
  if (array_.size() != 0) access_.emplace(array_.host_access());
}

template <class T>
void MatrixWriter::write(std::int64_t matrix, const T* from, std::int64_t ld) {
  if (access_) copy_columns(columns_, rows_, from, ld, 1, data<T>(matrix), columns_);
}

template <class T>
void MatrixWriter::write_lower(std::int64_t matrix, const T* from, std::int64_t ld) {
  write(matrix, from, ld);
  for (std::int64_t i = 0; access_ && i < std::min(rows_, columns_); ++i)
    std::fill_n(data<T>(matrix) + i * columns_ + i + 1, columns_ - i - 1, T(0));
}

template <class T>
void MatrixWriter::write_upper(std::int64_t matrix, const T* from, std::int64_t ld) {
  write(matrix, from, ld);
  for (std::int64_t i = 1; access_ && i < rows_; ++i)
    std::fill_n(data<T>(matrix) + i * columns_, std::min(i, columns_), T(0));
}

Array MatrixWriter::finish(Shape shape) {
  access_.reset();
  return array_.reshape(std::move(shape)).to(device_);
}

std::vector<Array> with_rule(const char* operation, const Array& a, std::vector<Array> results, bool keeps,
                             SeveralRule rule) {
  if (!a.has_history()) return results;
  const std::size_t batch_rank = a.shape().size() - 2;
  std::vector<Shape> shapes;
  std::vector<Array> rows;
  for (const Array& result : results) {
    shapes.push_back(result.shape());
    std::int64_t count = 1;
    for (std::size_t d = batch_rank; d < result.shape().size(); ++d) count *= result.shape()[d];
    rows.push_back(result.reshape(with_batch(batch_of(a), {count})));
  }
  const Array packed = [&] {
    detail::RuledOperation ruled(operation, a);
    return ruled.finish(concatenate(rows, -1), [&] {
      const auto backward = [=](Backward& b) {
        b.add(0, [&] {
          return rule(keeps ? b.operand(0) : Array(), split_last_axis(b.result(), shapes, batch_rank),
                      split_last_axis(b.adjoint(), shapes, batch_rank));
        });
      };
      return Rule{.backward = backward, .keeps = keeps ? operand_bits(0) : 0u, .keeps_result = true};
    });
  }();
  return split_last_axis(packed, shapes, batch_rank);
}

std::string provider() {
  const host::Lapack& library = host::lapack();
  return library.loaded ? library.name + " (" + library.file + ")"
                        : "Tessera's own algorithms (" + library.reason + ")";
}

#define TESSERA_INSTANTIATE(T)                                                           \
  template void MatrixReader::read(std::int64_t, T*, std::optional<std::int64_t>) const; \
  template void MatrixWriter::write(std::int64_t, const T*, std::int64_t);               \
  template void MatrixWriter::write_lower(std::int64_t, const T*, std::int64_t);         \
  template void MatrixWriter::write_upper(std::int64_t, const T*, std::int64_t);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::linalg
