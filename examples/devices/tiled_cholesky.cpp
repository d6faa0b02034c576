// SPDX-License-Identifier: Apache-2.0
// Cholesky's factorisation of a matrix in tiles, and a system of equations solved with it.
#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const auto in_force = with({.scope = accelerators()});
  constexpr std::int64_t n = 96;
  const BlockArray x = BlockArray::random_uniform({n, n}, {32, 32}, 1);
  const BlockArray a = matmul(x, transpose(x)) + n * BlockArray::identity(n, {32, 32});

  const BlockArray l = cholesky(a);
  std::printf("%s\n", l.where().c_str());
  const BlockArray difference = matmul(l, transpose(l)) - a;
  const float off = std::max(max(difference).item<float>(), -min(difference).item<float>());
  std::printf("l times its transpose differs from a by at most %g\n", static_cast<double>(off));
  check.expect(off < 1e-3f, "the factor");

  const BlockArray b = BlockArray::ones({n, 1}, {32, 1});
  const BlockArray solution = solve_triangular(l, solve_triangular(l, b), true);
  const BlockArray left = matmul(a, solution) - b;
  check.expect(max(left).item<float>() < 1e-4f && min(left).item<float>() > -1e-4f, "the system");

  // A matrix that has no such factor is an error that says where it was found out.
  BlockArray bad = a.copy();
  bad.assign({40, 40}, BlockArray::full({1, 1}, {1, 1}, -1));
  try {
    cholesky(bad);
    check.expect(false, "not positive definite");
  } catch (const ArgumentError& e) {
    std::printf("%s\n", e.what());
  }
  return check.wrong();
}
