// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tessera/linalg/linalg.h"
#include "tests/grad/grad_cases.h"

namespace tessera::test {

namespace {

/// The matrices plus a multiple of the identity, so that they are far from singular.
Array regular(const Array& x) {
  return x + 7.3 * Array::eye(x.shape(-2), x.shape(-1), 0, DType::f32, x.device()).astype(x.dtype());
}
/// The matrices plus the diagonal 12, 37, 62, ..., so that no singular values or eigenvalues are close to each other or
/// to 0. The elements of x are at most 2, or 4 in a sum. (Shuffled equidistant numbers are often an exactly singular
/// matrix.)
Array spread(const Array& x) {
  const std::int64_t columns = x.shape(-1);
  const Array diagonal = Array::eye(x.shape(-2), columns, 0, DType::f32, x.device()) *
                         Array::arange(columns, 12, 25, DType::f32, x.device());
  return x + diagonal.astype(x.dtype());
}
/// The elements times irregular factors, so that no absolute values or sums of them are equal.
Array uneven(const Array& x) {
  return x * (1 + 0.2 * sin(Array::arange(x.size(), 0.3, 1.7, x.dtype(), x.device()))).reshape(x.shape());
}
/// All elements of several arrays in one dimension.
Array joined(const Arrays& all) {
  Arrays lines;
  for (const Array& a : all) lines.push_back(a.reshape({a.size()}));
  return concatenate(lines);
}

}  // namespace

std::vector<Case> linalg_cases() {
  using namespace linalg;
  std::vector<Case> all;
  const auto add = [&](std::string name, std::vector<Shape> shapes, std::function<Array(const Arrays&)> f) {
    all.push_back({"linalg " + std::move(name), std::move(shapes), std::move(f)});
  };
  add("solve", {{2, 3, 3}, {3, 2}}, [](const Arrays& x) { return solve(regular(x[0]), x[1]); });
  add("solve of a vector", {{2, 3, 3}, {3}}, [](const Arrays& x) { return solve(regular(x[0]), x[1]); });
  add("solve of a batch", {{2, 2}, {3, 2, 1}}, [](const Arrays& x) { return solve(regular(x[0]), x[1]) * x[1]; });
  add("inv", {{2, 3, 3}}, [](const Arrays& x) { return inv(regular(x[0])); });
  add("det", {{2, 3, 3}}, [](const Arrays& x) { return det(x[0]); });
  add("slogdet", {{2, 3, 3}}, [](const Arrays& x) { return slogdet(regular(x[0])).logabsdet; });
  for (const Shape& s : {Shape{2, 3, 3}, Shape{4, 2}, Shape{2, 4}})
    add("qr" + to_string(s), {s}, [](const Arrays& x) {
      const auto [q, r] = qr(regular(x[0]));
      return joined({q, r});
    });
  add("q only", {{4, 3}}, [](const Arrays& x) { return qr(regular(x[0])).q; });
  // Squares of vectors do not depend on their signs.
  add("eigh", {{2, 3, 3}}, [](const Arrays& x) {
    const auto [w, v] = eigh(spread(x[0] + matrix_transpose(x[0])));
    return joined({w, v * v});
  });
  add("eigvalsh", {{4, 4}}, [](const Arrays& x) { return eigvalsh(spread(x[0] + matrix_transpose(x[0]))); });
  for (const Shape& s : {Shape{2, 3, 3}, Shape{4, 2}, Shape{2, 4}})
    add("svd" + to_string(s), {s}, [](const Arrays& x) {
      const auto [u, s, vh] = svd(spread(x[0]), false);
      return joined({u * u, s, vh * vh, matmul(u * (s * s).unsqueeze(-2), vh)});
    });
  add("svdvals", {{2, 3, 4}}, [](const Arrays& x) { return svdvals(spread(x[0])); });
  for (const Shape& s : {Shape{4, 2}, Shape{2, 2, 3}, Shape{3, 3}}) {
    add("pinv" + to_string(s), {s}, [](const Arrays& x) { return pinv(regular(x[0])); });
    add("lstsq" + to_string(s), {s, {s[s.size() - 2], 2}},
        [](const Arrays& x) { return lstsq(regular(x[0]), x[1]).x; });
  }
  add("lstsq of a vector", {{3, 2}, {3}}, [](const Arrays& x) { return lstsq(regular(x[0]), x[1]).x; });
  add("cholesky", {{2, 3, 3}},
      [](const Arrays& x) { return cholesky(regular(matmul(x[0], matrix_transpose(x[0]))), true); });
  for (const double order : {0.5, 1.0, 2.0, 3.0, HUGE_VAL, -HUGE_VAL})
    add("vector_norm " + std::to_string(order), {{2, 3}},
        [order](const Arrays& x) { return vector_norm(uneven(x[0]), order, {1}); });
  for (int norm = 0; norm <= static_cast<int>(MatrixNorm::smallest_row_sum); ++norm)
    add("matrix_norm " + std::to_string(norm), {{2, 3, 2}},
        [norm](const Arrays& x) { return matrix_norm(spread(uneven(x[0])), static_cast<MatrixNorm>(norm), true); });
  add("cond", {{3, 2}}, [](const Arrays& x) { return cond(spread(x[0])); });
  add("cond of sums", {{3, 3}},
      [](const Arrays& x) { return cond(spread(uneven(x[0])), MatrixNorm::largest_row_sum); });
  add("matrix_power", {{3, 3}},
      [](const Arrays& x) { return matrix_power(x[0], 3) + matrix_power(regular(x[0]), -2); });
  add("cross", {{2, 3}, {3}}, [](const Arrays& x) { return cross(x[0], x[1]); });
  add("vecdot", {{2, 3}, {3}}, [](const Arrays& x) { return vecdot(x[0], x[1]); });
  return all;
}

}  // namespace tessera::test
