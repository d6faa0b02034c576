// SPDX-License-Identifier: Apache-2.0
// How do I solve a large sparse system of a matrix that is not symmetric?
// GMRES minimises the residual over the span of b, A b, A^2 b and so on (Saad and Schultz, 1986).
#include <tessera/linalg/linalg.h>
#include <tessera/sparse/sparse.h>

#include <cstdio>

using namespace tessera;

/// Diffusion, a flow to the right and decay along a line of n points.
sparse::Csr flow(std::int64_t n) {
  std::vector<double> values;
  std::vector<std::int32_t> columns, offsets{0};
  for (std::int32_t i = 0; i < n; ++i) {
    for (const auto& [step, value] : {std::pair(-1, -1.5), {0, 2.75}, {1, -0.5}})
      if (i + step >= 0 && i + step < n) values.push_back(value), columns.push_back(i + step);
    offsets.push_back(static_cast<std::int32_t>(columns.size()));
  }
  return {Array::from(values), Array::from(columns), Array::from(offsets), {n, n}};
}

/// Adds the combination of `steps` vectors to x that minimises the norm of b - a x.
Array improved(const sparse::Csr& a, const Array& b, const Array& x, int steps) {
  const Array residual = b - matmul(a, x);
  std::vector<Array> basis{(residual / linalg::vector_norm(residual)).eval()}, images;
  while (static_cast<int>(images.size()) < steps) {
    images.push_back(matmul(a, basis.back()));
    const Array known = stack(basis);
    Array next = images.back();
    for (int twice = 0; twice < 2; ++twice)  // because the first differences have rounding errors
      next = (next - matmul(matmul(known, next), known)).eval();
    basis.push_back((next / linalg::vector_norm(next)).eval());
  }
  const Array rows = stack(basis);  // (steps + 1, n), orthonormal
  const Array weights = linalg::lstsq(matmul(rows, stack(images, 1)), matmul(rows, residual)).x;
  return x + matmul(weights, rows.slice(0, 0, steps));
}

int main() {
  constexpr std::int64_t n = 1000;
  const sparse::Csr a = flow(n);
  const Array solution = Array::linspace(0, 1, n, DType::f64), b = matmul(a, solution);
  Array x = Array::zeros({n}, DType::f64);
  double error = 1;
  int restarts = 0;
  for (; restarts < 20 && error > 1e-8; ++restarts) {
    x = improved(a, b, x, 20).eval();
    error = max(abs(x - solution)).item<double>();
  }
  std::printf("largest error: %s\n", error <= 1e-8 ? "below 1e-8" : std::to_string(error).c_str());
  return error <= 1e-8 ? 0 : 1;
}

// Output:
// largest error: below 1e-8
