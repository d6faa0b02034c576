// SPDX-License-Identifier: Apache-2.0
// How do I multiply matrices and solve a linear system?
// For a symmetric positive definite matrix, use a Cholesky factorisation and two triangular solves.
#include <tessera/array/functions.h>
#include <tessera/ops/linear_algebra.h>
#include <tessera/ops/product.h>

#include <cstdio>

using namespace tessera;

int main() {
  constexpr std::int64_t n = 64;
  const Array x = random_normal({n, n}, 1);
  const Array a = matmul(x, transpose(x)) + static_cast<double>(n) * Array::eye(n);
  const Array solution = random_normal({n, 2}, 2), b = matmul(a, solution);  // two right-hand sides

  const Array l = cholesky(a);  // a = l l^T
  const Array y = solve_triangular(l, b);
  const Array found = solve_triangular(l, y, {.transposed = true});
  const float error = max(abs(found - solution)).item<float>();
  std::printf("largest error: %s\n", error < 1e-4f ? "below 1e-4" : std::to_string(error).c_str());

  bool refused = false;
  try {
    cholesky(a - 1000.0 * Array::eye(n));
  } catch (const ArgumentError& e) {
    std::printf("%s\n", e.what());
    refused = true;
  }
  return error < 1e-4f && refused ? 0 : 1;
}

// Output:
// largest error: below 1e-4
// ...
