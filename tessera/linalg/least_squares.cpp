// SPDX-License-Identifier: Apache-2.0
// Least squares, rank, norms and products, from singular values and array operations.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/array/operation.h"
#include "tessera/linalg/linalg.h"
#include "tessera/linalg/matrices.h"

namespace tessera::linalg {

using detail::Operation;
using detail::RuledOperation;

namespace {

/// True for the singular values that do not count as zero.
Array significant(const char* operation, const Array& a, const Array& s, std::optional<double> rtol) {
  if (rtol && !(*rtol >= 0))
    fail<ArgumentError>({.operation = operation,
                         .with = {{"rtol", std::to_string(*rtol)}},
                         .wrong = "the tolerance must be 0 or a positive number"});
  const double epsilon =
      a.dtype() == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const double bound = rtol.value_or(static_cast<double>(std::max(a.shape(-2), a.shape(-1))) * epsilon);
  if (s.shape(-1) == 0) return s > 0;
  return s > s.slice(-1, 0, 1) * bound;
}

/// The inverses of singular values, 0 for those that count as zero.
Array inverted(const char* operation, const Array& a, const Array& s, std::optional<double> rtol) {
  const Array kept = significant(operation, a, s, rtol);
  return where(kept, 1 / where(kept, s, 1), 0);
}

/// The adjoint of `a` for the adjoint g of its pseudo-inverse p (Golub and Pereyra, "The differentiation of
/// pseudo-inverses and nonlinear least squares problems whose variables separate", 1973).
Array gradient_of_pinv(const Array& a, const Array& p, const Array& g) {
  const Array pt = matrix_transpose(p), gt = matrix_transpose(g);
  // -p^T g p^T + (I - a p) g^T p p^T + p^T p g^T (I - p a)
  const Array outside = gt - matmul(a, matmul(p, gt));
  const Array within = gt - matmul(matmul(gt, p), a);
  return matmul(matmul(outside, p), pt) + matmul(pt, matmul(p, within)) - matmul(pt, matmul(g, pt));
}

Array without_last_axes(const Array& a, bool keep) { return keep ? a.unsqueeze(-1).unsqueeze(-1) : a; }

}  // namespace

Array pinv(const Array& a, std::optional<double> rtol) {
  RuledOperation operation("linalg::pinv", a);
  check_matrices("linalg::pinv", a);
  const Svd found = svd(detail::without_history(a), false);
  Array p = matmul(matrix_transpose(found.vh) * inverted("linalg::pinv", a, found.s, rtol).unsqueeze(-2),
                   matrix_transpose(found.u));
  return operation.finish(std::move(p), [] {
    const auto backward = [](Backward& b) {
      b.add(0, [&] { return gradient_of_pinv(b.operand(0), b.result(), b.adjoint()); });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0), .keeps_result = true};
  });
}

Lstsq lstsq(const Array& a, const Array& b, std::optional<double> rtol) {
  const Operation operation("linalg::lstsq", a, b);
  check_matrices("linalg::lstsq", a), check_alike("linalg::lstsq", a, b);
  const bool vector = b.rank() == 1;
  if (b.rank() == 0 || b.shape(vector ? 0 : -2) != a.shape(-2))
    fail<ShapeError>({.operation = "linalg::lstsq",
                      .with = {{"a", to_string(a.shape())}, {"b", to_string(b.shape())}},
                      .wrong = "a must be (..., m, n), and b must be (m,) or (..., m, k)"});
  RuledOperation ruled("linalg::lstsq", a, b);
  const Array given = detail::without_history(b);
  const Svd found = svd(detail::without_history(a), false);
  const Array inverse = inverted("linalg::lstsq", a, found.s, rtol).unsqueeze(-1);
  const Array x = matmul(matrix_transpose(found.vh),
                         inverse * matmul(matrix_transpose(found.u), vector ? given.unsqueeze(-1) : given));
  Array solution = ruled.finish(vector ? x.squeeze(-1) : x, [vector, rtol] {
    const auto backward = [vector, rtol](Backward& back) {
      const auto matrix = [vector](const Array& v) { return vector ? v.unsqueeze(-1) : v; };
      const Array p = pinv(back.operand(0), rtol), g = matrix(back.adjoint());
      back.add(1, [&] {
        const Array to_b = matmul(matrix_transpose(p), g);
        return vector ? to_b.squeeze(-1) : to_b;
      });
      back.add(0, [&] {  // x = p b
        return gradient_of_pinv(back.operand(0), p, matmul(g, matrix_transpose(matrix(back.operand(1)))));
      });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0, 1)};
  });
  const Array rank = sum(significant("linalg::lstsq", a, found.s, rtol), {-1});
  std::vector<Array> results = operation.finish({solution, rank, found.s}, [] { return Attributes{}; });
  return {results[0], results[1], results[2]};
}

Array matrix_rank(const Array& a, std::optional<double> rtol) {
  const Operation operation("linalg::matrix_rank", a);
  const Array s = svdvals(detail::without_history(a));
  return operation.finish(sum(significant("linalg::matrix_rank", a, s, rtol), {-1}));
}

Array matrix_norm(const Array& a, MatrixNorm norm, bool keep) {
  const Operation operation("linalg::matrix_norm", a);
  check_matrices("linalg::matrix_norm", a);
  const auto attributes = [&] { return Attributes{{"norm", static_cast<std::int64_t>(norm)}, {"keep", keep}}; };
  const auto finish = [&](Array out) { return operation.finish(without_last_axes(out, keep), attributes); };
  switch (norm) {
    case MatrixNorm::frobenius: return finish(vector_norm(a, 2, {-2, -1}));
    case MatrixNorm::nuclear: return finish(sum(svdvals(a), {-1}));
    case MatrixNorm::largest_singular: return finish(max(svdvals(a), {-1}));
    case MatrixNorm::smallest_singular: return finish(min(svdvals(a), {-1}));
    case MatrixNorm::largest_column_sum: return finish(max(sum(abs(a), {-2}), {-1}));
    case MatrixNorm::smallest_column_sum: return finish(min(sum(abs(a), {-2}), {-1}));
    case MatrixNorm::largest_row_sum: return finish(max(sum(abs(a), {-1}), {-1}));
    case MatrixNorm::smallest_row_sum: return finish(min(sum(abs(a), {-1}), {-1}));
  }
  fail<ArgumentError>({.operation = "linalg::matrix_norm",
                       .with = {{"norm", std::to_string(static_cast<int>(norm))}},
                       .wrong = "the number is not an enumerator of MatrixNorm"});
}

Array vector_norm(const Array& a, double order, std::vector<int> axes, bool keep) {
  const Operation operation("linalg::vector_norm", a);
  if (!is_float(a.dtype()))
    fail<DtypeError>({.operation = "linalg::vector_norm",
                      .with = {{"dtype", std::string(dtype_name(a.dtype()))}},
                      .wrong = "the dtype is not a float dtype",
                      .remedy = "Convert the array with astype(...)"});
  const auto attributes = [&] {
    return Attributes{{"order", order}, {"axes", std::vector<std::int64_t>(axes.begin(), axes.end())}, {"keep", keep}};
  };
  const auto compute = [&]() -> Array {
    if (std::isinf(order)) return order > 0 ? max(abs(a), axes, keep) : min(abs(a), axes, keep);
    if (order == 0) return sum(a != 0, axes, keep).astype(a.dtype());
    if (order == 1) return sum(abs(a), axes, keep);
    const Array powers = sum(order == 2 ? a * a : pow(abs(a), order), axes, keep);
    const auto root = [&](const Array& x) { return order == 2 ? sqrt(x) : pow(x, 1 / order); };
    // The derivative of the root is infinite at 0.
    return order > 1 ? where(powers == 0, 0, root(where(powers == 0, 1, powers))) : root(powers);
  };
  if (std::isnan(order))
    fail<ArgumentError>(
        {.operation = "linalg::vector_norm", .with = {{"order", "NaN"}}, .wrong = "the order is not a number"});
  if (dtype_size(a.dtype()) == 2)  // powers would overflow
    return operation.finish(vector_norm(a.astype(DType::f32), order, axes, keep).astype(a.dtype()), attributes);
  return operation.finish(compute(), attributes);
}

Array cond(const Array& a, MatrixNorm norm) {
  const Operation operation("linalg::cond", a);
  check_matrices("linalg::cond", a);
  const auto attributes = [&] { return Attributes{{"norm", static_cast<std::int64_t>(norm)}}; };
  if (a.shape(-1) == 0 || a.shape(-2) == 0)
    fail<ArgumentError>({.operation = "linalg::cond",
                         .with = {{"shape", to_string(a.shape())}},
                         .wrong = "a matrix without elements has no condition number"});
  if (norm == MatrixNorm::largest_singular || norm == MatrixNorm::smallest_singular) {
    const Array s = svdvals(a), largest = s.select(-1, 0), smallest = s.select(-1, s.shape(-1) - 1);
    if (norm == MatrixNorm::smallest_singular)
      return operation.finish(where(largest == 0, 0, smallest / largest), attributes);
    const double infinity = std::numeric_limits<double>::infinity();
    return operation.finish(where(smallest == 0, infinity, largest / smallest), attributes);
  }
  check_square("linalg::cond", a);
  return operation.finish(matrix_norm(a, norm) * matrix_norm(inv(a), norm), attributes);
}

Array cross(const Array& a, const Array& b, int axis) {
  const Operation operation("linalg::cross", a, b);
  const int of_a = normalise_axis("linalg::cross", axis, a.shape().size()),
            of_b = normalise_axis("linalg::cross", axis, b.shape().size());
  if (a.shape(of_a) != 3 || b.shape(of_b) != 3)
    fail<ShapeError>(
        {.operation = "linalg::cross",
         .with = {{"a", to_string(a.shape())}, {"b", to_string(b.shape())}, {"axis", std::to_string(axis)}},
         .wrong = "the vectors do not have three elements"});
  return operation.finish(roll(a, -1, of_a) * roll(b, -2, of_b) - roll(a, -2, of_a) * roll(b, -1, of_b), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(axis)}};
  });
}

Array vecdot(const Array& a, const Array& b, int axis) {
  const Operation operation("linalg::vecdot", a, b);
  if (axis >= 0) axis -= static_cast<int>(std::max(a.shape().size(), b.shape().size()));
  return operation.finish(sum(a * b, {axis}), [&] { return Attributes{{"axis", static_cast<std::int64_t>(axis)}}; });
}

Array matrix_transpose(const Array& a) {
  const Operation operation("linalg::matrix_transpose", a);
  if (a.rank() < 2)
    fail<ShapeError>({.operation = "linalg::matrix_transpose",
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the array has fewer than two dimensions, so it contains no matrix"});
  return operation.finish(swapaxes(a, -2, -1));
}

}  // namespace tessera::linalg
