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

void histogram(const std::uint8_t* x, std::int32_t* counts, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) ++counts[x[i]];
}

void levenshtein(const std::uint8_t* a, const std::uint8_t* b, const std::int32_t* a_length,
                 const std::int32_t* b_length, std::int32_t* distance, std::size_t pairs, std::size_t longest) {
  for (std::size_t p = 0; p < pairs; ++p) {
    std::int32_t row[65];
    for (std::int32_t j = 0; j <= b_length[p]; ++j) row[j] = j;
    for (std::int32_t i = 0; i < a_length[p]; ++i) {
      std::int32_t diagonal = row[0];
      row[0] = i + 1;
      const std::uint8_t letter = a[p * longest + static_cast<std::size_t>(i)];
      for (std::int32_t j = 0; j < b_length[p]; ++j) {
        const std::int32_t up = row[j + 1];
        const std::int32_t changed = diagonal + (letter != b[p * longest + static_cast<std::size_t>(j)]);
        row[j + 1] = std::min(std::min(up, row[j]) + 1, changed);
        diagonal = up;
      }
    }
    distance[p] = row[b_length[p]];
  }
}

void shortest_paths(std::int32_t* d, std::size_t n) {
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t there = d[i * n + k];
      for (std::size_t j = 0; j < n; ++j) d[i * n + j] = std::min(d[i * n + j], there + d[k * n + j]);
    }
}

void divide(const std::int32_t* x, std::int32_t* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] / 7;
}

void lengths3(const Three* p, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = p[i].x * p[i].x + p[i].y * p[i].y + p[i].z * p[i].z;
}
void lengths4(const Four* p, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = p[i].x * p[i].x + p[i].y * p[i].y + p[i].z * p[i].z + p[i].w * p[i].w;
}
void move3(Three* p, const Three* v, float t, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) p[i].x += v[i].x * t, p[i].y += v[i].y * t, p[i].z += v[i].z * t;
}
void move4(Four* p, const Four* v, float t, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    p[i].x += v[i].x * t, p[i].y += v[i].y * t, p[i].z += v[i].z * t, p[i].w += v[i].w * t;
}
void first_member3(Three* p, const float* v, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) p[i].x = v[i];
}
void swap_ends3(const Three* p, Three* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = {p[i].z, p[i].y, p[i].x};
}
template <int stride>
void strided_load(const float* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = 2 * x[i * stride];
}
template <int stride>
void strided_store(const float* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i * stride] = 2 * x[i];
}
template void strided_load<2>(const float*, float*, std::size_t);
template void strided_load<3>(const float*, float*, std::size_t);
template void strided_load<4>(const float*, float*, std::size_t);
template void strided_load<8>(const float*, float*, std::size_t);
template void strided_store<2>(const float*, float*, std::size_t);
template void strided_store<3>(const float*, float*, std::size_t);
template void strided_store<4>(const float*, float*, std::size_t);
template void strided_store<8>(const float*, float*, std::size_t);
void backwards(const float* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = 2 * x[n - 1 - i];
}
void column_steps(const float* x, float* out, std::size_t n, std::int32_t from, std::int32_t to) {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(n); ++i) out[i * to] = 2 * x[i * from];
}
void scatter_add(float* out, const std::int64_t* at, const float* updates, std::size_t count, std::size_t width) {
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t c = 0; c < width; ++c) out[static_cast<std::size_t>(at[k]) * width + c] += updates[k * width + c];
}
void row_sums(const float* x, float* out, std::size_t rows, std::int32_t width) {
  for (std::size_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (std::int32_t j = 0; j < width; ++j)
      sum += x[r * static_cast<std::size_t>(width) + static_cast<std::size_t>(j)];
    out[r] = sum;
  }
}
template <class T>
void compressed_rows(const std::int32_t* starts, const std::int32_t* columns, const T* values, const T* x, T* out,
                     std::size_t rows) {
  for (std::size_t r = 0; r < rows; ++r) {
    T sum = 0;
    for (std::int32_t j = starts[r]; j < starts[r + 1]; ++j) sum += values[j] * x[columns[j]];
    out[r] = sum;
  }
}
template void compressed_rows(const std::int32_t*, const std::int32_t*, const float*, const float*, float*,
                              std::size_t);
template void compressed_rows(const std::int32_t*, const std::int32_t*, const double*, const double*, double*,
                              std::size_t);

}  // namespace plain
