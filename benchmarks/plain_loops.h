// SPDX-License-Identifier: Apache-2.0
// Plain C++ loops compiled with `-O3 -march=native`. They are the baseline for generated kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plain {

/// 32 weights in the format of model files, except that the scale is a float.
struct Block8 {
  float scale;
  std::int8_t q[32];
};

void saxpy(const float* x, float* y, float a, std::size_t n);
void softmax(const float* x, float* y, std::size_t rows, std::size_t columns);
void product(const float* a, const float* b, float* c, std::size_t n);
/// y[r] is the sum over blocks of the integer product of weights and x, times both scales. Each row has `blocks`
/// blocks.
void product_q8(const Block8* w, const Block8* x, float* y, std::size_t rows, std::size_t blocks);

void histogram(const std::uint8_t* x, std::int32_t* counts, std::size_t n);  ///< adds to 256 counts
/// Computes edit distances between pairs of words with at most `longest` letters (64 or fewer). Words are stored at a
/// distance of `longest` letters.
void levenshtein(const std::uint8_t* a, const std::uint8_t* b, const std::int32_t* a_length,
                 const std::int32_t* b_length, std::int32_t* distance, std::size_t pairs, std::size_t longest);
/// Computes the shortest paths between all pairs of n nodes (Floyd-Warshall).
void shortest_paths(std::int32_t* distances, std::size_t n);
void divide(const std::int32_t* x, std::int32_t* y, std::size_t n);  ///< divides by 7, a compile-time constant

struct Three {
  float x, y, z;
};
struct Four {
  float x, y, z, w;
};
void lengths3(const Three* p, float* out, std::size_t n);  ///< x * x + y * y + z * z
void lengths4(const Four* p, float* out, std::size_t n);
void move3(Three* p, const Three* v, float t, std::size_t n);  ///< p += v * t
void move4(Four* p, const Four* v, float t, std::size_t n);
void first_member3(Three* p, const float* v, std::size_t n);  ///< p.x = v
void swap_ends3(const Three* p, Three* out, std::size_t n);   ///< {z, y, x}
/// out[i] = 2 * x[i * stride], or out[i * stride] = 2 * x[i], with a compile-time stride.
template <int stride>
void strided_load(const float* x, float* out, std::size_t n);
template <int stride>
void strided_store(const float* x, float* out, std::size_t n);
void backwards(const float* x, float* out, std::size_t n);  ///< out[i] = 2 * x[n - 1 - i]
void column_steps(const float* x, float* out, std::size_t n, std::int32_t from,
                  std::int32_t to);  ///< strides at run time
/// Adds update row i to row at[i] of `out`.
void scatter_add(float* out, const std::int64_t* at, const float* updates, std::size_t count, std::size_t width);
void row_sums(const float* x, float* out, std::size_t rows, std::int32_t width);
/// Multiplies a matrix in compressed sparse row format by a vector.
template <class T>
void compressed_rows(const std::int32_t* starts, const std::int32_t* columns, const T* values, const T* x, T* out,
                     std::size_t rows);

}  // namespace plain
