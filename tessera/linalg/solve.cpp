// SPDX-License-Identifier: Apache-2.0
// Systems of equations, inverses and determinants by LU factorisation. The rules of gradients are those of Giles,
// "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), and Petersen
// and Pedersen, "The Matrix Cookbook" (2012), section 2.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/array/operation.h"
#include "tessera/linalg/linalg.h"
#include "tessera/linalg/matrices.h"

namespace tessera::linalg {

using detail::Operation;
using detail::RuledOperation;

namespace {

[[noreturn]] void reject_singular(const char* operation, const Shape& batch, std::int64_t matrix, std::int64_t column) {
  fail<ArgumentError>({.operation = operation,
                       .with = {{"pivot column", std::to_string(column - 1)}},
                       .wrong = matrix_name(batch, matrix) + " is singular: no row has a nonzero pivot in this column",
                       .remedy = "Use lstsq or pinv for singular matrices"});
}

/// LU factors of one matrix after another.
template <class T>
class Factors {
 public:
  explicit Factors(std::int64_t m, std::int64_t n)
      : m_(m), n_(n), memory_(m * n), pivots_(static_cast<std::size_t>(std::min(m, n))) {}
  /// Factorises a matrix. Returns the number (from 1) of the first column without a nonzero pivot, or 0.
  std::int64_t factorise(const MatrixReader& a, std::int64_t matrix) {
    a.read(matrix, memory_.data());
    return m_ == 0 || n_ == 0 ? 0 : host::lu(m_, n_, memory_, pivots_.data());
  }
  const host::Buffer<T>& memory() const { return memory_; }
  const std::vector<host::Int>& pivots() const { return pivots_; }
  T diagonal(std::int64_t i) const { return memory_.data()[i + i * m_]; }

 private:
  std::int64_t m_, n_;
  host::Buffer<T> memory_;
  std::vector<host::Int> pivots_;
};

/// Solves a x = b for (..., n, n) and (..., n, k) of the same batch. If b is null, it is the identity.
Array solve_batch(const char* operation, const Array& a, const Array* b) {
  const std::int64_t n = a.shape(-1), k = b != nullptr ? b->shape(-1) : n;
  const Shape batch = batch_of(a);
  const MatrixReader left(operation, a);
  std::optional<MatrixReader> right;
  if (b != nullptr) right.emplace(operation, *b);
  MatrixWriter x(batch, n, k, a.dtype(), a.device());
  with_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Factors<T> factors(n, n);
    const host::Buffer<T> solution(n * k);
    for (std::int64_t i = 0; i < left.count(); ++i) {
      if (!left.repeated(i))
        if (const std::int64_t column = factors.factorise(left, i); column != 0)
          reject_singular(operation, batch, i, column);
      if (right) {
        right->read(i, solution.data());
      } else {
        std::fill_n(solution.data(), n * n, T(0));
        for (std::int64_t j = 0; j < n; ++j) solution.data()[j + j * n] = 1;
      }
      if (n != 0 && k != 0) host::lu_solve(n, k, factors.memory(), factors.pivots().data(), solution);
      x.write(i, solution.data(), n);
    }
  });
  return x.finish();
}

struct Determinant {
  Array sign, value;  ///< `value` is the determinant, or the logarithm of its absolute value
  bool singular = false;
};

Determinant determinant(const char* operation, const Array& a, bool logarithm) {
  const MatrixReader matrices(operation, a);
  const Shape batch = batch_of(a);
  const std::int64_t n = a.shape(-1);
  MatrixWriter signs(batch, 1, 1, a.dtype(), a.device()), values(batch, 1, 1, a.dtype(), a.device());
  Determinant out;
  with_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Factors<T> factors(n, n);
    for (std::int64_t i = 0; i < matrices.count(); ++i) {
      const bool singular = factors.factorise(matrices, i) != 0;
      out.singular = out.singular || singular;
      T sign = 1, value = logarithm ? 0 : 1;
      int exponent = 0;  // of 2: the determinant is sign * value * 2^exponent
      for (std::int64_t k = 0; k < n; ++k) {
        const T pivot = factors.diagonal(k);
        if (factors.pivots()[static_cast<std::size_t>(k)] != k + 1) sign = -sign;
        if (logarithm) {
          if (pivot < 0) sign = -sign;
          value += std::log(std::abs(pivot));
        } else {
          int of_pivot = 0, of_product = 0;
          const T fraction = std::frexp(pivot, &of_pivot);
          value = std::frexp(value * fraction, &of_product);
          if (std::isfinite(value)) exponent += of_pivot + of_product;
        }
      }
      *signs.data<T>(i) = logarithm && singular ? T(0) : sign;
      *values.data<T>(i) =
          logarithm ? (singular ? -std::numeric_limits<T>::infinity() : value) : sign * std::ldexp(value, exponent);
    }
  });
  out.sign = signs.finish(batch), out.value = values.finish(batch);
  return out;
}

/// A scalar of each matrix (...) as (..., 1, 1).
Array per_matrix(const Array& a) { return a.unsqueeze(-1).unsqueeze(-1); }

/// The transpose of the adjugate, by singular values: det(u) det(v) u diag(products of the others) v^T. It exists for
/// singular matrices, too.
Array cofactors(const Array& a) {
  const auto [u, s, vh] = svd(a, false);
  const std::int64_t n = a.shape(-1);
  const Array own = Array::eye(n, {}, 0, DType::f32, a.device()) != 0;
  const Array others = exp(sum(where(own, 0, log(s.unsqueeze(-2))), {-1}));
  return per_matrix(det(u) * det(vh)) * matmul(u * others.unsqueeze(-2), vh);
}

}  // namespace

Array solve(const Array& a, const Array& b) {
  RuledOperation operation("linalg::solve", a, b);
  check_square("linalg::solve", a), check_alike("linalg::solve", a, b);
  const bool vector = b.rank() == 1;
  if (b.rank() == 0 || b.shape(vector ? 0 : -2) != a.shape(-1))
    fail<ShapeError>({.operation = "linalg::solve",
                      .with = {{"a", to_string(a.shape())}, {"b", to_string(b.shape())}},
                      .wrong = "a must be (..., n, n), and b must be (n,) or (..., n, k)"});
  const Array given_a = detail::without_history(a), given_b = detail::without_history(b);
  const Array columns = vector ? given_b.unsqueeze(-1) : given_b;
  const Shape batch = broadcast_shapes("linalg::solve", batch_of(a), batch_of(columns));
  const Array left = given_a.broadcast_to(with_batch(batch, {a.shape(-1), a.shape(-1)}));
  const Array right = columns.broadcast_to(with_batch(batch, {a.shape(-1), columns.shape(-1)}));
  Array x = solve_batch("linalg::solve", left, &right);
  return operation.finish(vector ? x.squeeze(-1) : std::move(x), [vector] {
    const auto backward = [vector](Backward& back) {
      const auto matrix = [vector](const Array& v) { return vector ? v.unsqueeze(-1) : v; };
      const Array to_b = solve(matrix_transpose(back.operand(0)), matrix(back.adjoint()));
      back.add(1, [&] { return vector ? to_b.squeeze(-1) : to_b; });
      back.add(0, [&] { return -matmul(to_b, matrix_transpose(matrix(back.result()))); });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0), .keeps_result = true};
  });
}

Array inv(const Array& a) {
  RuledOperation operation("linalg::inv", a);
  check_square("linalg::inv", a);
  return operation.finish(solve_batch("linalg::inv", a, nullptr), [] {
    const auto backward = [](Backward& b) {
      b.add(0, [&] {
        const Array transposed = matrix_transpose(b.result());
        return -matmul(matmul(transposed, b.adjoint()), transposed);
      });
    };
    return Rule{.backward = backward, .keeps_result = true};
  });
}

Array det(const Array& a) {
  RuledOperation operation("linalg::det", a);
  check_square("linalg::det", a);
  Determinant d = determinant("linalg::det", a, false);
  return operation.finish(std::move(d.value), [singular = d.singular] {
    const auto backward = [singular](Backward& b) {
      b.add(0, [&] {
        if (singular) return per_matrix(b.adjoint()) * cofactors(b.operand(0));
        return per_matrix(b.adjoint() * b.result()) * matrix_transpose(inv(b.operand(0)));
      });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0), .keeps_result = true};
  });
}

Slogdet slogdet(const Array& a) {
  const Operation operation("linalg::slogdet", a);
  check_square("linalg::slogdet", a);
  Determinant d = determinant("linalg::slogdet", a, true);
  RuledOperation ruled("linalg::slogdet", a);
  Array logarithm = ruled.finish(std::move(d.value), [] {
    const auto backward = [](Backward& b) {
      b.add(0, [&] { return per_matrix(b.adjoint()) * matrix_transpose(inv(b.operand(0))); });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0)};
  });
  std::vector<Array> results = operation.finish({d.sign, logarithm}, [] { return Attributes{}; });
  return {results[0], results[1]};
}

Lu lu(const Array& a) {
  const Operation operation("linalg::lu", a);
  detail::check_no_rule("linalg::lu", a);
  check_matrices("linalg::lu", a);
  const MatrixReader matrices("linalg::lu", a);
  const Shape batch = batch_of(a);
  const std::int64_t m = a.shape(-2), n = a.shape(-1), k = std::min(m, n);
  MatrixWriter lower(batch, m, k, a.dtype(), a.device()), upper(batch, k, n, a.dtype(), a.device());
  std::vector<std::int64_t> rows(static_cast<std::size_t>(matrices.count() * m));
  with_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Factors<T> factors(m, n);
    for (std::int64_t i = 0; i < matrices.count(); ++i) {
      factors.factorise(matrices, i);
      upper.write_upper(i, factors.memory().data(), m), lower.write_lower(i, factors.memory().data(), m);
      for (std::int64_t j = 0; j < k; ++j) lower.data<T>(i)[j * (k + 1)] = 1;
      const auto order = rows.begin() + i * m;
      std::iota(order, order + m, 0);
      for (std::int64_t j = 0; j < k; ++j)
        std::swap(order[j], order[factors.pivots()[static_cast<std::size_t>(j)] - 1]);
    }
  });
  std::vector<Array> results =
      operation.finish({Array::from(rows, with_batch(batch, {m}), a.device()), lower.finish(), upper.finish()},
                       [] { return Attributes{}; });
  return {results[0], results[1], results[2]};
}

Array matrix_power(const Array& a, std::int64_t n) {
  const Operation operation("linalg::matrix_power", a);
  check_square("linalg::matrix_power", a);
  const auto attributes = [n] { return Attributes{{"n", n}}; };
  Array base = n < 0 ? inv(a) : a;
  std::optional<Array> out;
  // The magnitude of the most negative number is representable only without sign.
  for (std::uint64_t rest = n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n); rest != 0;
       rest /= 2) {
    if (rest % 2 == 1) out = out ? matmul(*out, base) : base;
    if (rest > 1) base = matmul(base, base);
  }
  if (!out) out = Array::eye(a.shape(-1), {}, 0, a.dtype(), a.device()).broadcast_to(a.shape()).copy();
  return operation.finish(n == 1 ? out->copy() : std::move(*out), attributes);
}

}  // namespace tessera::linalg
