// SPDX-License-Identifier: Apache-2.0
// mistake 1: the factors of a matrix product must be half, bfloat16, float or std::int8_t; sums are float
// mistake 2: the factors of a matrix product have different types: use half, bfloat16, float or std::int8_t for both
// mistake 3: the matrix and the memory have different types
// mistake 4: the matrix and the memory have different types
// mistake 5: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 6: a matrix must be in memory that threads share: a Buffer or Shared
// mistake 7: a matrix is loaded from and stored to a Buffer or Shared; host data is not visible in a kernel
// mistake 8: a subscript must be an integer: use cast<Index>(...)
#include <array>
#include <vector>

#include "tessera/kernel/kernel.h"
using namespace tessera;

std::vector<half> host(256);

auto k = kernel("k", block(64), [](Buffer<const half> x, Buffer<const float> start, Buffer<float> y) {
  Shared<bfloat16> tile(256);
  LocalArray<float> own(256);
  MatrixAccumulator sum;
  MatrixLeft<half> a;
  MatrixRight<half> b;
  MatrixLeft<float> wide;
#if MISTAKE == 1
  MatrixLeft<double> wider;
#elif MISTAKE == 2
  MatrixRight<bfloat16> other;
  other.load(tile, 0, 16);
  sum.multiply_add(a, other);
#elif MISTAKE == 3
  a.load(tile, 0, 16);
#elif MISTAKE == 4
  sum.load(x, 0, 16);
#elif MISTAKE == 5
  sum.store(start, 0, 16);
#elif MISTAKE == 6
  sum.load(own, 0, 16);
#elif MISTAKE == 7
  a.load(host, 0, 16);
#elif MISTAKE == 8
  a.load(x, start[0], 16);
#else
  MatrixRight<bfloat16> other;
  MatrixLeft<bfloat16> another;
  other.load(tile, 0, 16);
  another.load_transposed(tile, 0, 16);
  sum.multiply_add(another, other);
  a.load(x, subgroup_id() * 256, 16);
  b.load_transposed(x, cast<Index>(start[0]), x.size() / 16);
  sum.load(start, 0, 16);
  wide.load(start, 0, 16);
  sum.multiply_add(a, b);
  sum.fill(2);
  sum.fill(start[0]);
  sum.store(y, 0, 16);
  own[0] = 1;
  std::array<MatrixAccumulator, 4> sums{};
  MatrixAccumulator more[4] = {};
  std::array<MatrixLeft<half>, 2> lefts{};
  MatrixRight<half> rights[2] = {};
  for (int i = 0; i < 4; ++i) sums[i].multiply_add(lefts[i / 2], rights[i % 2]), more[i].store(y, 0, 16);
#endif
});
