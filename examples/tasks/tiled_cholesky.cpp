// SPDX-License-Identifier: Apache-2.0
// How do I factorise a large matrix over several devices?
// cholesky() of a block array runs tasks on its tiles. Two triangular solves then solve a linear system.
#include <algorithm>
#include <cstdio>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const auto scope = with({.scope = accelerators()});
  constexpr std::int64_t n = 96;
  const BlockArray x = BlockArray::random_uniform({n, n}, {32, 32}, 1);
  const BlockArray a = matmul(x, transpose(x)) + n * BlockArray::identity(n, {32, 32});

  const BlockArray l = cholesky(a);
  std::printf("%s\n", l.where().c_str());
  const BlockArray difference = matmul(l, transpose(l)) - a;
  const float error = std::max(max(difference).item<float>(), -min(difference).item<float>());
  std::printf("l l^T = a: %s\n", error < 1e-3f ? "yes" : "no");
  check.expect(error < 1e-3f, "factor");

  const BlockArray b = BlockArray::ones({n, 1}, {32, 1});
  const BlockArray solution = solve_triangular(l, solve_triangular(l, b), true);
  const BlockArray residual = matmul(a, solution) - b;
  check.expect(max(residual).item<float>() < 1e-4f && min(residual).item<float>() > -1e-4f, "solution");

  // If a matrix is not positive definite, the error contains the leading minor.
  BlockArray bad = a.copy();
  bad.assign({40, 40}, BlockArray::full({1, 1}, {1, 1}, -1));
  try {
    cholesky(bad);
    check.expect(false, "not positive definite");
  } catch (const ArgumentError& e) {
    std::printf("%s\n", e.what());
  }
  return check.failures();
}

// Output:
// (96, 96) f32 in tiles of (32, 32):
//   ...: (0, 0) ...
// ...
// l l^T = a: yes
// [cholesky] the matrix is not positive definite...41...
