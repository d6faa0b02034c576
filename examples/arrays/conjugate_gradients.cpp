// SPDX-License-Identifier: Apache-2.0
// How do I solve a large sparse system of a symmetric positive definite matrix?
// The method of conjugate gradients needs only products with the matrix (Hestenes and Stiefel, 1952).
#include <tessera/sparse/sparse.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

/// The negative Laplacian with zero boundary values on a square of n x n points: 4 on the diagonal, and -1 for each
/// neighbour of a point.
sparse::Csr laplacian(std::int64_t n) {
  std::vector<float> values;
  std::vector<std::int32_t> rows, columns;
  for (std::int64_t y = 0; y < n; ++y)
    for (std::int64_t x = 0; x < n; ++x)
      for (const auto& [dx, dy] : {std::pair(0, 0), {-1, 0}, {1, 0}, {0, -1}, {0, 1}}) {
        if (x + dx < 0 || x + dx >= n || y + dy < 0 || y + dy >= n) continue;
        values.push_back(dx == 0 && dy == 0 ? 4 : -1);
        rows.push_back(static_cast<std::int32_t>(y * n + x));
        columns.push_back(static_cast<std::int32_t>((y + dy) * n + x + dx));
      }
  return to_csr(sparse::Coo(Array::from(values), Array::from(rows), Array::from(columns), {n * n, n * n}));
}

int main() {
  const sparse::Csr a = laplacian(64);
  const Array solution = random_normal({a.shape[0]}, 1), b = matmul(a, solution);

  Array x = Array::zeros({a.shape[0]}), residual = b.copy(), direction = b.copy();
  Array size = sum(residual * residual);  // all numbers stay on the device until they are read
  const float wanted = 1e-10f * size.item<float>();
  int steps = 0;
  for (; steps < 1000 && size.item<float>() > wanted; ++steps) {
    const Array image = matmul(a, direction);
    const Array length = size / sum(direction * image);
    x = (x + length * direction).eval();
    residual = (residual - length * image).eval();
    const Array next = sum(residual * residual);
    direction = (residual + next / size * direction).eval();
    size = next;
  }
  const float error = max(abs(x - solution)).item<float>();
  std::printf("%lld unknowns, %lld entries\n", static_cast<long long>(a.shape[0]), static_cast<long long>(a.entries()));
  std::printf("converged: %s\n", steps < 1000 ? "yes" : "no");
  std::printf("largest error: %s\n", error < 1e-2f ? "below 0.01" : std::to_string(error).c_str());
  return steps < 1000 && error < 1e-2f ? 0 : 1;
}

// Output:
// 4096 unknowns, 20224 entries
// converged: yes
// largest error: below 0.01
