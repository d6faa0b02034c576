// SPDX-License-Identifier: Apache-2.0
// QR, Cholesky, eigenvalues and singular values of batches, and their gradients.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/array/operation.h"
#include "tessera/linalg/linalg.h"
#include "tessera/linalg/matrices.h"
#include "tessera/ops/linear_algebra.h"

namespace tessera::linalg {

using detail::Operation;
using detail::RuledOperation;

namespace {

const auto no_attributes = [] { return Attributes{}; };

/// Reads a matrix. Throws ArgumentError if an element is NaN or infinite.
template <class T>
void read_finite(const char* operation, const MatrixReader& a, const Shape& batch, std::int64_t matrix, T* to) {
  a.read(matrix, to);
  const std::int64_t elements = a.rows() * a.columns();
  T zeros[8] = {};  // NaN unless all are finite; several sums, so that additions do not wait for one another
  for (std::int64_t i = 0; i < elements; i += 8)
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, elements - i); ++j) zeros[j] += to[i + j] * 0;
  if (std::ranges::any_of(zeros, [](T zero) { return std::isnan(zero); }))
    fail<ArgumentError>({.operation = operation,
                         .wrong = matrix_name(batch, matrix) + " contains NaN or infinity",
                         .remedy = "Check it with isfinite(...)"});
}

void check_converged(const char* operation, bool converged, const Shape& batch, std::int64_t matrix) {
  if (!converged)
    fail<ArgumentError>({.operation = operation,
                         .wrong = "the iteration for " + matrix_name(batch, matrix) + " did not converge",
                         .remedy = "Scale the matrix, or report the matrix as a bug"});
}

Eigh compute_eigh(const char* operation, const Array& a, bool vectors) {
  check_square(operation, a);
  const MatrixReader matrices(operation, a);
  const Shape batch = batch_of(a);
  const std::int64_t n = a.shape(-1);
  MatrixWriter values(batch, 1, n, a.dtype(), a.device());
  std::optional<MatrixWriter> columns;
  if (vectors) columns.emplace(batch, n, n, a.dtype(), a.device());
  with_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const host::Buffer<T> work(n * n);
    for (std::int64_t i = 0; i < matrices.count() && n != 0; ++i) {
      read_finite(operation, matrices, batch, i, work.data());
      check_converged(operation, host::eigh(n, work, values.data<T>(i), vectors), batch, i);
      if (vectors) columns->write(i, work.data(), n);
    }
  });
  return {values.finish(with_batch(batch, {n})), vectors ? columns->finish() : Array()};
}

Svd compute_svd(const char* operation, const Array& a, host::Vectors vectors) {
  check_matrices(operation, a);
  const MatrixReader matrices(operation, a);
  const Shape batch = batch_of(a);
  const std::int64_t m = a.shape(-2), n = a.shape(-1), k = std::min(m, n);
  const bool wanted = vectors != host::Vectors::none, all = vectors == host::Vectors::all;
  const std::int64_t columns = all ? m : k, rows = all ? n : k;
  MatrixWriter s(batch, 1, k, a.dtype(), a.device());
  std::optional<MatrixWriter> u, vh;
  if (wanted) u.emplace(batch, m, columns, a.dtype(), a.device()), vh.emplace(batch, rows, n, a.dtype(), a.device());
  with_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const host::Buffer<T> work(m * n), left(wanted ? m * columns : 0), right(wanted ? rows * n : 0);
    for (std::int64_t i = 0; i < matrices.count(); ++i) {
      if (k != 0) {
        read_finite(operation, matrices, batch, i, work.data());
        check_converged(operation, host::svd(m, n, work, s.data<T>(i), left, right, vectors), batch, i);
      } else if (all) {  // bases of a matrix without elements
        for (std::int64_t j = 0; j < m * m; ++j) left.data()[j] = j % (m + 1) == 0;
        for (std::int64_t j = 0; j < n * n; ++j) right.data()[j] = j % (n + 1) == 0;
      }
      if (wanted) u->write(i, left.data(), m), vh->write(i, right.data(), rows);
    }
  });
  return {wanted ? u->finish() : Array(), s.finish(with_batch(batch, {k})), wanted ? vh->finish() : Array()};
}

/// The identity as a bool matrix.
Array on_diagonal(const Array& like, std::int64_t n) { return Array::eye(n, {}, 0, DType::f32, like.device()) != 0; }

/// The gradient of q r for m >= n (Walter and Lehmann, "Algorithmic differentiation of linear algebra functions with
/// application in optimum experimental design", 2010): (gq + q sym(m)) r^-T, where m = triu(gr r^T - q^T gq) and sym(m)
/// = m + m^T with the diagonal halved.
Array qr_gradient(const Array& q, const Array& r, const Array& gq, const Array& gr) {
  const Array m = triu(matmul(gr, matrix_transpose(r)) - matmul(matrix_transpose(q), gq));
  const Array both = m + matrix_transpose(triu(m, 1));
  // x r^T = b is r x^T = b^T.
  return matrix_transpose(solve(r, matrix_transpose(gq + matmul(q, both))));
}

Array gradient_of_qr(const Array& a, const std::vector<Array>& qr, const std::vector<Array>& adjoints) {
  const Array &q = qr[0], &r = qr[1], &gq = adjoints[0], &gr = adjoints[1];
  const std::int64_t m = q.shape(-2), n = r.shape(-1);
  if (m >= n) return qr_gradient(q, r, gq, gr);
  // A wide matrix is (x, y) = q (u, q^T y): only x is factorised (Roberts and Roberts, "QR and LQ decomposition matrix
  // backpropagation algorithms for square, wide, and deep matrices", 2020).
  const Array y = a.slice(-1, m, n), gv = gr.slice(-1, m, n);
  const Array to_x = qr_gradient(q, r.slice(-1, 0, m), gq + matmul(y, matrix_transpose(gv)), gr.slice(-1, 0, m));
  return concatenate({to_x, matmul(q, gv)}, -1);
}

Array symmetric_part(const Array& a) { return (a + matrix_transpose(a)) * 0.5; }

/// v (diag(gw) + (v^T gv) / e) v^T with e_ij = w_j - w_i, made symmetric (Giles 2008, section 3.1). 0 / 0 counts as 0,
/// so that equal eigenvalues have a gradient if their vectors are not needed.
Array gradient_of_eigh(const std::vector<Array>& wv, const std::vector<Array>& adjoints) {
  const Array &w = wv[0], &v = wv[1], &gw = adjoints[0], &gv = adjoints[1];
  const Array same = on_diagonal(w, w.shape(-1));
  const Array difference = w.unsqueeze(-2) - w.unsqueeze(-1), in_v = matmul(matrix_transpose(v), gv);
  const Array quotient = in_v / where((difference == 0) & (same | (in_v == 0)), 1, difference);
  return symmetric_part(matmul(matmul(v, where(same, gw.unsqueeze(-1), quotient)), matrix_transpose(v)));
}

/// The gradient of the reduced decomposition (Townsend, "Differentiating the singular value decomposition", 2016):
/// u (((u^T gu - gu^T u) / e) s + s ((v^T gv - gv^T v) / e) + diag(gs)) v^T with e_ij = s_j^2 - s_i^2, plus the parts
/// of gu and gv outside of the spaces of u and v.
Array gradient_of_svd(const std::vector<Array>& usv, const std::vector<Array>& adjoints) {
  const Array &u = usv[0], &s = usv[1], &vh = usv[2], &gu = adjoints[0], &gs = adjoints[1], &gvh = adjoints[2];
  const std::int64_t m = u.shape(-2), n = vh.shape(-1), k = s.shape(-1);
  const Array same = on_diagonal(s, k), row = s.unsqueeze(-2), column = s.unsqueeze(-1);
  const Array e = where(same, 1, (row - column) * (row + column));
  const Array in_u = matmul(matrix_transpose(u), gu), in_v = matmul(vh, matrix_transpose(gvh));
  const Array skew_u = (in_u - matrix_transpose(in_u)) / e, skew_v = (in_v - matrix_transpose(in_v)) / e;
  Array inner = skew_u * row + column * skew_v + where(same, gs.unsqueeze(-1), 0);
  Array out = matmul(matmul(u, inner), vh);
  if (m > k) out = out + matmul((gu - matmul(u, in_u)) / row, vh);
  if (n > k) out = out + matmul(u / row, gvh - matmul(matrix_transpose(in_v), vh));
  return out;
}

}  // namespace

Qr qr(const Array& a, Mode mode) {
  const Operation operation("linalg::qr", a);
  check_matrices("linalg::qr", a);
  if (mode == Mode::complete && a.shape(-2) > a.shape(-1))
    detail::check_no_history("linalg::qr", a, "but the complete factorisation has no gradient", "Use Mode::reduced");
  const MatrixReader matrices("linalg::qr", a);
  const Shape batch = batch_of(a);
  const std::int64_t m = a.shape(-2), n = a.shape(-1), k = mode == Mode::complete ? m : std::min(m, n);
  MatrixWriter q(batch, m, k, a.dtype(), a.device()), r(batch, k, n, a.dtype(), a.device());
  with_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const host::Buffer<T> work(m * n), columns(m * std::max(k, std::min(m, n)));
    for (std::int64_t i = 0; i < matrices.count(); ++i) {
      matrices.read(i, work.data());
      if (n == 0)
        for (std::int64_t j = 0; j < m * k; ++j) columns.data()[j] = j % (m + 1) == 0;
      else if (m != 0)
        host::qr(m, n, work, k, columns);
      q.write(i, columns.data(), m), r.write_upper(i, work.data(), m);
    }
  });
  std::vector<Array> results = with_rule("linalg::qr", a, {q.finish(), r.finish()}, m < n, gradient_of_qr);
  results = operation.finish(std::move(results), [&] { return Attributes{{"complete", mode == Mode::complete}}; });
  return {results[0], results[1]};
}

Array cholesky(const Array& a, bool upper) {
  const Operation operation("linalg::cholesky", a);
  check_square("linalg::cholesky", a);
  const std::int64_t n = a.shape(-1);
  Array l;
  if (a.rank() == 2) {
    l = tessera::cholesky(a);
  } else {
    const std::int64_t count = element_count(batch_of(a));
    const Array matrices = a.reshape({count, n, n});
    std::vector<Array> factors;
    for (std::int64_t i = 0; i < count; ++i) try {
        factors.push_back(tessera::cholesky(matrices.select(0, i)));
      } catch (const ArgumentError& e) {
        fail<ArgumentError>({.operation = "linalg::cholesky", .wrong = matrix_name(batch_of(a), i) + ": " + e.what()});
      }
    l = (count == 0 ? a.copy() : stack(factors)).reshape(a.shape());
  }
  return operation.finish(upper ? matrix_transpose(l) : std::move(l), [&] { return Attributes{{"upper", upper}}; });
}

Eigh eigh(const Array& a) {
  const Operation operation("linalg::eigh", a);
  Eigh found = compute_eigh("linalg::eigh", a, true);
  std::vector<Array> results =
      with_rule("linalg::eigh", a, {std::move(found.eigenvalues), std::move(found.eigenvectors)}, false,
                [](const Array&, const auto& wv, const auto& adjoints) { return gradient_of_eigh(wv, adjoints); });
  results = operation.finish(std::move(results), no_attributes);
  return {results[0], results[1]};
}

Array eigvalsh(const Array& a) {
  RuledOperation operation("linalg::eigvalsh", a);
  // As for svdvals, the gradient needs the vectors, but not their gradients.
  return operation.finish(compute_eigh("linalg::eigvalsh", a, false).eigenvalues, [] {
    const auto backward = [](Backward& b) {
      b.add(0, [&] {
        const Array v = eigh(b.operand(0)).eigenvectors;
        return symmetric_part(matmul(v * b.adjoint().unsqueeze(-2), matrix_transpose(v)));
      });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0)};
  });
}

Svd svd(const Array& a, bool full_matrices) {
  const Operation operation("linalg::svd", a);
  if (full_matrices)
    detail::check_no_history("linalg::svd", a, "but full matrices have no gradient", "Pass full_matrices = false");
  Svd found = compute_svd("linalg::svd", a, full_matrices ? host::Vectors::all : host::Vectors::reduced);
  std::vector<Array> results =
      with_rule("linalg::svd", a, {std::move(found.u), std::move(found.s), std::move(found.vh)}, false,
                [](const Array&, const auto& usv, const auto& adjoints) { return gradient_of_svd(usv, adjoints); });
  results = operation.finish(std::move(results), [&] { return Attributes{{"full_matrices", full_matrices}}; });
  return {results[0], results[1], results[2]};
}

Array svdvals(const Array& a) {
  RuledOperation operation("linalg::svdvals", a);
  // The gradient needs the vectors, but not their gradients, which do not exist for equal values.
  return operation.finish(compute_svd("linalg::svdvals", a, host::Vectors::none).s, [] {
    const auto backward = [](Backward& b) {
      b.add(0, [&] {
        const Svd found = svd(b.operand(0), false);
        return matmul(found.u * b.adjoint().unsqueeze(-2), found.vh);
      });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0)};
  });
}

}  // namespace tessera::linalg
