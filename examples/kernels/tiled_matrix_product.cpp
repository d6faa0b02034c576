// SPDX-License-Identifier: Apache-2.0
// How do I use shared memory and barriers?
// The threads of a block load tiles of two matrices into shared memory, synchronise, and multiply the tiles.
#include <tessera/array/array.h>
#include <tessera/kernel/kernel.h>

#include <algorithm>
#include <cmath>
#include <iostream>

using namespace tessera;

constexpr int tile_size = 16;

int main() {
  const auto product = kernel(
      "product", block(tile_size, tile_size),
      [](Buffer<const float> a, Buffer<const float> b, Buffer<float> c, Val<Index> m, Val<Index> n, Val<Index> k) {
        Shared<float> a_tile(tile_size * tile_size), b_tile(tile_size * tile_size);
        auto x = thread_id(0), y = thread_id(1);
        auto column = global_id(0), row = global_id(1);
        Var<float> sum = 0.0f;
        for_(0, k, tile_size, [&](Val<Index> at) {
          // Blocks at the edges extend beyond the matrices. load_if() returns 0 there.
          a_tile[y * tile_size + x] = a.load_if(row < m && at + x < k, row * k + at + x, 0.0f);
          b_tile[y * tile_size + x] = b.load_if(at + y < k && column < n, (at + y) * n + column, 0.0f);
          barrier();
          for (int i = 0; i < tile_size; ++i)  // a C++ loop is unrolled while tracing
            sum += a_tile[y * tile_size + i] * b_tile[i * tile_size + x];
          barrier();
        });
        if_(row < m && column < n, [&] { c[row * n + column] = sum; });
      });

  const int m = 100, n = 37, k = 65;  // not multiples of the tile_size size
  const Array a = random_normal({m, k}, 1), b = random_normal({k, n}, 2);
  Array c = Array::full({m, n}, -1);
  product.launch({n, m}, a, b, c, m, n, k);  // rounded up to whole blocks

  const auto as = a.to_vector<float>(), bs = b.to_vector<float>(), cs = c.to_vector<float>();
  double worst = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) sum += static_cast<double>(as[i * k + l]) * bs[l * n + j];
      worst = std::max(worst, std::abs(sum - cs[i * n + j]));
    }
  }
  std::cout << m << " x " << k << " times " << k << " x " << n << ": " << (worst < 1e-4 ? "right" : "wrong") << "\n";
  return worst < 1e-4 ? 0 : 1;
}

// Output:
// 100 x 65 times 65 x 37: right
