// SPDX-License-Identifier: Apache-2.0
// How do I use tensor cores (matrix units)?
// A subgroup multiplies 16 x 16 matrices of 16-bit floats. On devices without matrix units the same kernel uses loops.
#include <tessera/kernel/kernel.h>
#include <tessera/ops/product.h>

#include <cstdio>

using namespace tessera;

const auto multiply =
    kernel("multiply", block(128),
           [](Buffer<const half> a, Buffer<const half> b, Buffer<float> c, Val<Index> m, Val<Index> n, Val<Index> k) {
             auto columns = n / 16, tiles = m / 16 * columns;
             auto first = block_id() * subgroup_count() + subgroup_id();
             for_(first, tiles, block_count() * subgroup_count(),
                  [&](Val<Index> tile) {  // one tile of c per subgroup and iteration
                    auto row = tile / columns * 16, column = tile % columns * 16;
                    MatrixAccumulator sum;  // floats, initially zero
                    MatrixLeft<half> left;
                    MatrixRight<half> right;
                    for_(0, k, 16, [&](Val<Index> j) {
                      left.load(a, row * k + j, k);  // element (i, j) is a[index + i * stride + j]
                      right.load(b, j * n + column, n);
                      sum.multiply_add(left, right);
                    });
                    sum.store(c, row * n + column, n);
                  });
           });

int main() {
  constexpr int m = 48, n = 32, k = 80;  // multiples of 16
  const Array a = random_uniform({m, k}, 1).astype(DType::f16), b = random_uniform({k, n}, 2).astype(DType::f16);
  Array c = Array::empty({m, n});
  multiply.launch(blocks(4), a, b, c, m, n, k);

  const Array expected = matmul(a.astype(DType::f32), b.astype(DType::f32));
  const float error = max(abs(c - expected)).item<float>() / max(expected).item<float>();
  std::printf("%d x %d times %d x %d: largest relative error %s\n", m, k, k, n,
              error < 1e-5f ? "below 1e-5" : "too large");
  return error < 1e-5f ? 0 : 1;
}

// Output:
// 48 x 80 times 80 x 32: largest relative error below 1e-5
