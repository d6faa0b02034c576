// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/plain_loops.h"

#include <algorithm>
#include <cmath>

namespace plain {

void saxpy(const float* x, float* y, float a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
}

void softmax(const float* x, float* y, std::size_t rows, std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = x + r * columns;
    float* to = y + r * columns;
    const float most = *std::max_element(from, from + columns);
    float sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += to[i] = std::exp(from[i] - most);
    for (std::size_t i = 0; i < columns; ++i) to[i] /= sum;
  }
}

void product(const float* a, const float* b, float* c, std::size_t n) {
  std::fill(c, c + n * n, 0.0f);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

void product_q8(const Block8* w, const Block8* x, float* y, std::size_t rows, std::size_t blocks) {
  for (std::size_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (std::size_t b = 0; b < blocks; ++b) {
      const Block8& wb = w[r * blocks + b];
      std::int32_t s = 0;
      for (int i = 0; i < 32; ++i) s += wb.q[i] * x[b].q[i];
      sum += static_cast<float>(s) * wb.scale * x[b].scale;
    }
    y[r] = sum;
  }
}

}  // namespace plain
