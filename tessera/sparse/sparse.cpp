// SPDX-License-Identifier: Apache-2.0
#include "tessera/sparse/sparse.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/array/radix_sort.h"
#include "tessera/array/rearrange.h"
#include "tessera/sparse/kernels.h"

namespace tessera::sparse {

using detail::Operation;
using detail::RuledOperation;

namespace {

using Part = std::pair<const char*, const Array*>;

/// Checks the parts of a matrix: values, and two arrays of indices of which the second has `size` elements.
void check_parts(const char* operation, const Shape& shape, const Part& values, const Part& first, const Part& second,
                 std::int64_t size) {
  if (shape.size() != 2 || shape[0] < 0 || shape[1] < 0)
    fail<ShapeError>({.operation = operation,
                      .with = {{"shape", to_string(shape)}},
                      .wrong = "the shape of a sparse matrix is not a number of rows and a number of columns"});
  for (const Part& part : {values, first, second})
    if (part.second->rank() != 1)
      fail<ShapeError>({.operation = operation,
                        .with = {{part.first, to_string(part.second->shape())}},
                        .wrong = "a part of a sparse matrix does not have one dimension"});
  if (first.second->size() != values.second->size() || second.second->size() != size)
    fail<ShapeError>(
        {.operation = operation,
         .with = {{"shape", to_string(shape)},
                  {values.first, to_string(values.second->shape())},
                  {first.first, to_string(first.second->shape())},
                  {second.first, to_string(second.second->shape())}},
         .wrong = std::string("the parts of a sparse matrix have different sizes. There must be as many ") +
                  first.first + " as values, and " + std::to_string(size) + " " + second.first});
  if (!is_float(values.second->dtype()))
    fail<DtypeError>({.operation = operation,
                      .with = {{values.first, std::string(dtype_name(values.second->dtype()))}},
                      .wrong = "the values of a sparse matrix are not floats",
                      .remedy = "Convert them with astype"});
  const DType index = first.second->dtype();
  if ((index != DType::i32 && index != DType::i64) || second.second->dtype() != index)
    fail<DtypeError>({.operation = operation,
                      .with = {{first.first, std::string(dtype_name(index))},
                               {second.first, std::string(dtype_name(second.second->dtype()))}},
                      .wrong = "the indices of a sparse matrix are not both i32 or both i64",
                      .remedy = "Convert them with astype"});
  const Array* all[] = {values.second, first.second, second.second};
  detail::common_device(operation, all);
}
void check(const char* operation, const Coo& a) {
  check_parts(operation, a.shape, {"values", &a.values}, {"rows", &a.rows}, {"columns", &a.columns}, a.entries());
}
void check(const char* operation, const Csr& a) {
  check_parts(operation, a.shape, {"values", &a.values}, {"columns", &a.columns}, {"offsets", &a.offsets},
              a.shape.empty() ? 1 : a.shape[0] + 1);
}

Csr with_values(const Csr& a, Array values) { return {std::move(values), a.columns, a.offsets, a.shape}; }

std::int64_t element(const Array& a, std::int64_t i) { return a.select(0, i).astype(DType::i64).item<std::int64_t>(); }

/// The position of the first true element, or nullopt.
std::optional<std::int64_t> find_true(const Array& mask) {
  if (mask.size() == 0) return {};
  const Array positions = Array::arange(mask.size(), 0, 1, DType::i64, mask.device());
  const auto first = min(where(mask, positions, mask.size())).item<std::int64_t>();
  return first < mask.size() ? std::optional(first) : std::nullopt;
}

Array outside(const Array& indices, std::int64_t extent) {
  const Array wide = indices.astype(DType::i64);  // i32 may not be able to represent the extent
  return (wide < 0) | (wide >= extent);
}

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

void require_sortable(const char* operation, std::int64_t extent, std::int64_t entries) {
  if (extent > most || entries > most)
    fail<ShapeError>({.operation = operation,
                      .with = {{"extent", std::to_string(extent)}, {"entries", std::to_string(entries)}},
                      .wrong = "the sparse matrix has more than 2^31 - 1 rows, columns or entries"});
}

/// Sorts entries by their indices, and those with the same index by their position. Indices that are out of range
/// become `extent`.
detail::SortedKeys sorted_by(const char* operation, const Array& indices, std::int64_t extent) {
  require_sortable(operation, extent, indices.size());
  const Array keys = where(outside(indices, extent), extent, indices).astype(DType::u32).as_contiguous();
  return detail::radix_sort_keys(keys, std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(extent)))));
}

/// The position of each entry in the matrix as an array, or -1 if it is outside.
Array positions(const Array& rows, const Array& columns, const Shape& shape) {
  return where(outside(rows, shape[0]) | outside(columns, shape[1]), -1,
               rows.astype(DType::i64) * shape[1] + columns.astype(DType::i64));
}

Array dense_of(const Array& values, const Array& rows, const Array& columns, const Shape& shape) {
  const Array zeros = Array::zeros({element_count(shape)}, values.dtype(), values.device());
  return scatter_add(zeros, positions(rows, columns, shape), values).reshape(shape);
}

const Array& scalar(const char* operation, const Array& a) {
  if (a.rank() != 0)
    fail<ShapeError>({.operation = operation,
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the other operand is not a number or an array without axes",
                      .remedy = "Change `values` to scale entries differently"});
  return a;
}

Array product(const Csr& a, const Array& dense);

/// For each entry in row i and column j of `a`, whose values are not used, the dot product of row i of `left` and row j
/// of `right`.
Array sampled_product(const Csr& a, const Array& left, const Array& right) {
  RuledOperation operation("sparse::sampled_product", left, right, a.columns, a.offsets);
  const DType t = promote(left.dtype(), right.dtype());
  return operation.finish(launch_sampled_product(launch_rows(a), a.columns, left.astype(t), right.astype(t)), [&] {
    return Rule{.backward =
                    [shape = a.shape](Backward& b) {
                      const Csr m(b.adjoint(), b.operand(2), b.operand(3), shape);
                      b.add(0, [&] { return product(m, b.operand(1)); });
                      b.add(1, [&] { return product(transpose(m), b.operand(0)); });
                    },
                .keeps = operand_bits(0, 1, 2, 3)};
  });
}

/// The product with a matrix. Dtypes are promoted.
Array product(const Csr& a, const Array& dense) {
  RuledOperation operation("sparse::matmul", a.values, dense, a.columns, a.offsets);
  const DType t = promote(a.dtype(), dense.dtype());
  return operation.finish(launch_product(with_values(a, a.values.astype(t)), dense.astype(t)), [&] {
    return Rule{.backward =
                    [shape = a.shape](Backward& b) {
                      const Csr m(b.operand(0), b.operand(2), b.operand(3), shape);
                      b.add(0, [&] { return sampled_product(m, b.adjoint(), b.operand(1)); });
                      b.add(1, [&] { return product(transpose(m), b.adjoint()); });
                    },
                .keeps = operand_bits(0, 1, 2, 3)};
  });
}

}  // namespace

Coo::Coo(Array entry_values, Array entry_rows, Array entry_columns, Shape matrix_shape)
    : values(std::move(entry_values)),
      rows(std::move(entry_rows)),
      columns(std::move(entry_columns)),
      shape(std::move(matrix_shape)) {
  check("sparse::Coo", *this);
}

Csr::Csr(Array entry_values, Array entry_columns, Array row_offsets, Shape matrix_shape)
    : values(std::move(entry_values)),
      columns(std::move(entry_columns)),
      offsets(std::move(row_offsets)),
      shape(std::move(matrix_shape)) {
  check("sparse::Csr", *this);
}

Csr Csr::operator-() const { return with_values(*this, -values); }

Csr Csr::scaled(ArrayOperand factor) const {
  if (factor.is_array()) scalar("sparse::operator*", factor.array());
  return with_values(*this, values * std::move(factor));
}

Csr Csr::divided(ArrayOperand divisor) const {
  if (divisor.is_array()) scalar("sparse::operator/", divisor.array());
  return with_values(*this, values / std::move(divisor));
}

Csr Csr::plus(const Csr& b) const {
  if (shape != b.shape)
    fail<ShapeError>({.operation = "sparse::operator+",
                      .with = {{"a", to_string(shape)}, {"b", to_string(b.shape)}},
                      .wrong = "the matrices have different shapes"});
  const Coo x = to_coo(*this), y = to_coo(b);
  return to_csr(Coo(concatenate({x.values, y.values}), concatenate({x.rows, y.rows}),
                    concatenate({x.columns, y.columns}), shape));
}

void check_indices(const Csr& a) {
  check("sparse::check_indices", a);
  const std::int64_t rows = a.shape[0];
  const auto wrong = [](std::int64_t row, const char* name, std::int64_t value, std::string text) {
    fail<ArgumentError>({.operation = "sparse::check_indices",
                         .with = {{"row", std::to_string(row)}, {name, std::to_string(value)}},
                         .wrong = std::move(text)});
  };
  if (const std::int64_t first = element(a.offsets, 0); first != 0)
    wrong(0, "offset", first, "the first offset is not 0");
  const Array begins = a.offsets.slice(0, 0, rows), ends = a.offsets.slice(0, 1, rows + 1);
  if (const auto row = find_true(ends < begins))
    wrong(*row, "offset", element(ends, *row), "a row ends before it begins: offsets must ascend");
  if (const std::int64_t last = element(a.offsets, rows); last != a.entries())
    wrong(rows - 1, "offset", last, "the last offset is not the number of entries, " + std::to_string(a.entries()));
  if (const auto entry = find_true(outside(a.columns, a.shape[1])))
    wrong(sum(ends <= *entry).item<std::int64_t>(), "column", element(a.columns, *entry),
          "the column of entry " + std::to_string(*entry) + " is not from 0 to " + std::to_string(a.shape[1] - 1));
}

void check_indices(const Coo& a) {
  check("sparse::check_indices", a);
  if (const auto entry = find_true(outside(a.rows, a.shape[0]) | outside(a.columns, a.shape[1])))
    fail<ArgumentError>({.operation = "sparse::check_indices",
                         .with = {{"row", std::to_string(element(a.rows, *entry))},
                                  {"column", std::to_string(element(a.columns, *entry))},
                                  {"shape", to_string(a.shape)}},
                         .wrong = "entry " + std::to_string(*entry) + " is outside the matrix"});
}

Csr to_csr(const Coo& a) {
  const Operation operation("sparse::to_csr", a.values, a.rows, a.columns);
  check_indices(a);
  const std::int64_t entries = a.entries();
  const DType index = a.rows.dtype();
  if (entries == 0) return {a.values, a.columns, Array::zeros({a.shape[0] + 1}, index, a.device()), a.shape};
  const detail::SortedKeys by_column = sorted_by("sparse::to_csr", a.columns, a.shape[1]);
  const detail::SortedKeys by_row = sorted_by("sparse::to_csr", take(a.rows, by_column.positions), a.shape[0]);
  const Array order = take(by_column.positions, by_row.positions);
  Array values = take(a.values, order), rows = by_row.keys, columns = take(a.columns, order);
  const auto differ = [&](const Array& x) { return x.slice(0, 1, entries) != x.slice(0, 0, entries - 1); };
  const Array first = concatenate({Array::ones({1}, DType::boolean, a.device()), differ(rows) | differ(columns)});
  const Array starts = nonzero(first)[0];
  if (starts.size() < entries) {
    values = scatter_add(Array::zeros({starts.size()}, values.dtype(), a.device()), cumsum(first) - 1, values);
    rows = take(rows, starts), columns = take(columns, starts);
  }
  return {values, columns, launch_offsets(rows, a.shape[0], index), a.shape};
}

Csr to_csr(const Array& dense) {
  const Operation operation("sparse::to_csr", dense);
  if (dense.rank() != 2)
    fail<ShapeError>({.operation = "sparse::to_csr",
                      .with = {{"shape", to_string(dense.shape())}},
                      .wrong = "the array is not a matrix"});
  const std::int64_t rows = dense.shape(0), columns = dense.shape(1);
  require_sortable("sparse::to_csr", rows, 0);
  const std::vector<Array> at = nonzero(detail::without_history(dense));
  const DType index = std::max({rows, columns, at[0].size()}) <= most ? DType::i32 : DType::i64;
  return {take(dense.reshape({dense.size()}), at[0] * columns + at[1]), at[1].astype(index),
          launch_offsets(at[0].astype(DType::u32), rows, index), dense.shape()};
}

Coo to_coo(const Csr& a) {
  check("sparse::to_coo", a);
  return {a.values, launch_rows(a), a.columns, a.shape};
}

Array to_dense(const Csr& a) {
  const Operation operation("sparse::to_dense", a.values, a.columns, a.offsets);
  check("sparse::to_dense", a);
  return operation.finish(dense_of(a.values, launch_rows(a), a.columns, a.shape));
}

Array to_dense(const Coo& a) {
  const Operation operation("sparse::to_dense", a.values, a.rows, a.columns);
  check("sparse::to_dense", a);
  return operation.finish(dense_of(a.values, a.rows, a.columns, a.shape));
}

Csr transpose(const Csr& a) {
  const Operation operation("sparse::transpose", a.values, a.columns, a.offsets);
  check("sparse::transpose", a);
  const Shape shape{a.shape[1], a.shape[0]};
  const DType index = a.columns.dtype();
  if (a.entries() == 0) return {a.values, a.columns, Array::zeros({shape[0] + 1}, index, a.device()), shape};
  const detail::SortedKeys sorted = sorted_by("sparse::transpose", a.columns, a.shape[1]);
  return {take(a.values, sorted.positions), take(launch_rows(a), sorted.positions),
          launch_offsets(sorted.keys, shape[0], index), shape};
}

Coo transpose(const Coo& a) {
  check("sparse::transpose", a);
  return {a.values, a.columns, a.rows, {a.shape[1], a.shape[0]}};
}

Array diagonal(const Csr& a) {
  const Operation operation("sparse::diagonal", a.values, a.columns, a.offsets);
  check("sparse::diagonal", a);
  const Array rows = launch_rows(a);
  const Array zeros = Array::zeros({std::min(a.shape[0], a.shape[1])}, a.dtype(), a.device());
  return operation.finish(scatter_add(zeros, where(rows == a.columns, rows, -1), a.values));
}

Array matmul(const Csr& a, const Array& x) {
  const Operation operation("sparse::matmul", a.values, a.columns, a.offsets, x);
  check("sparse::matmul", a);
  const std::int64_t rows = a.shape[0], columns = a.shape[1];
  if (x.rank() == 0 || x.shape(x.rank() == 1 ? 0 : -2) != columns)
    fail<ShapeError>({.operation = "sparse::matmul",
                      .with = {{"sparse matrix", to_string(a.shape)}, {"array", to_string(x.shape())}},
                      .wrong = "the array is not a vector, a matrix or a batch of matrices with " +
                               std::to_string(columns) + " rows"});
  const Array* both[] = {&a.values, &x};
  detail::common_device("sparse::matmul", both);
  if (x.rank() == 1) return operation.finish(product(a, x.unsqueeze(1)).squeeze(1));
  if (x.rank() == 2) return operation.finish(product(a, x));
  const Array wide = moveaxis(x, -2, 0);
  Shape shape = wide.shape();
  shape[0] = rows;
  const std::int64_t width = element_count(Shape(shape.begin() + 1, shape.end()));
  return operation.finish(moveaxis(product(a, wide.reshape({columns, width})).reshape(shape), 0, -2));
}

Array matmul(const Array& x, const Csr& a) {
  const Operation operation("sparse::matmul", x, a.values, a.columns, a.offsets);
  check("sparse::matmul", a);
  if (x.rank() == 0 || x.shape(-1) != a.shape[0])
    fail<ShapeError>({.operation = "sparse::matmul",
                      .with = {{"array", to_string(x.shape())}, {"sparse matrix", to_string(a.shape)}},
                      .wrong = "the array is not a vector, a matrix or a batch of matrices with " +
                               std::to_string(a.shape[0]) + " columns"});
  const Csr turned = transpose(a);
  if (x.rank() == 1) return operation.finish(matmul(turned, x));
  return operation.finish(swapaxes(matmul(turned, swapaxes(x, -1, -2)), -1, -2));
}

}  // namespace tessera::sparse
