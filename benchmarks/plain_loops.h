// SPDX-License-Identifier: Apache-2.0
// The loops that a C++ programmer would write, compiled with `-O3 -march=native`: what generated kernels are held
// against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plain {

/// 32 weights as model files hold them, the scale widened to a float.
struct Block8 {
  float scale;
  std::int8_t q[32];
};

void saxpy(const float* x, float* y, float a, std::size_t n);
void softmax(const float* x, float* y, std::size_t rows, std::size_t columns);
void product(const float* a, const float* b, float* c, std::size_t n);
/// y[r] = sum over blocks of the integer product of weights and x, times both scales. Rows of `blocks` blocks.
void product_q8(const Block8* w, const Block8* x, float* y, std::size_t rows, std::size_t blocks);

}  // namespace plain
