// SPDX-License-Identifier: Apache-2.0
// The documented effects of matrix-unit instructions on the registers of the lanes of a subgroup. Used by tests that
// run emitted kernels on this machine.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/half.h"

namespace tessera::test {

/// The inputs and outputs of an instruction in one lane.
struct LaneRegisters {
  std::uint32_t a[8], b[8];
  float c[8];
  const std::uint16_t* row;
};

/// Numbers of the instructions, used by the emitted text.
enum Instruction : int {
  m16n8k16_f16,
  m16n8k16_bf16,
  m16n8k8_f16,
  ldmatrix,
  ldmatrix_trans,
  mfma_16x16x16_f16,
  mfma_16x16x16_bf16,
  mfma_16x16x8_bf16,
  wmma_f16,
  wmma_bf16,
  shuffle,      ///< a[0] is the value, b[0] the lane
  m16n8k32_i8,  ///< the sums of i8 are bits of i32
  mfma_16x16x16_i8,
  mfma_16x16x32_i8,
  wmma_i8,
  m16n8k8_tf32,
  mfma_16x16x4_f32,
  instructions
};

/// Returns the seed of random data, and prints it.
inline unsigned matrix_seed() {
  const char* named = std::getenv("TESSERA_TEST_SEED");
  const unsigned seed = named ? static_cast<unsigned>(std::strtoul(named, nullptr, 0)) : std::random_device{}();
  std::printf("TESSERA_TEST_SEED=%u\n", seed);
  return seed;
}

/// The bits of cvt.rna.tf32.f32 (PTX ISA, "cvt"): rounds to 10 bits of mantissa, ties away from zero. The low 13 bits
/// are 0.
inline std::uint32_t tf32_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isfinite(x) ? (bits + 0x1000) & ~std::uint32_t{0x1fff} : bits;
}

// The instructions, implemented from their documentation. An element is half or byte `h` (0: lowest) of word `w` of
// lane `l`, or float `i`.

inline float value_of(DType t, std::uint32_t word, unsigned h) {
  if (t == DType::i8) return static_cast<std::int8_t>(word >> (8 * h));
  if (t == DType::f32) return std::bit_cast<float>(word);
  const auto bits = static_cast<std::uint16_t>(word >> (16 * h));
  if (t == DType::f16) {
    half x;
    x.bits = bits;
    return static_cast<float>(x);
  }
  bfloat16 x;
  x.bits = bits;
  return static_cast<float>(x);
}

struct Matrix {
  Matrix(unsigned rows, unsigned columns) : columns(columns), element(rows * columns, NAN) {}
  float& operator()(unsigned i, unsigned j) { return element.at(i * columns + j); }
  /// Lanes that contain the same element must have the same value.
  void set(unsigned i, unsigned j, float v) {
    float& e = (*this)(i, j);
    EXPECT_TRUE(std::isnan(e) || e == v) << "element " << i << ", " << j << " has different values in two lanes";
    e = v;
  }
  unsigned columns;
  std::vector<float> element;
};

/// Returns the position in the matrix of an element of lane l (half h of word w, or float i).
using Where = std::function<std::pair<unsigned, unsigned>(unsigned lane, unsigned element)>;
struct Layout {
  DType t;
  unsigned m, n, k, lanes;
  unsigned a_elements, b_elements, c_elements;  // per lane
  Where a, b, c;
};

// PTX ISA 8.5, 9.7.14.5.8 and 9.7.14.5.7: the figures and formulae for the fragments of m16n8k16 and m16n8k8.
inline Layout m16n8k16(DType t) {
  return {t,
          16,
          8,
          16,
          32,
          8,
          4,
          4,
          [](unsigned l, unsigned i) {
            const unsigned group = l >> 2, in_group = l % 4;
            const unsigned row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            return std::pair{row, i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
          },
          [](unsigned l, unsigned i) {
            const unsigned in_group = l % 4;
            return std::pair{i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, l >> 2};
          },
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          }};
}
inline Layout m16n8k8(DType t) {
  return {t,
          16,
          8,
          8,
          32,
          4,
          2,
          4,
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          },
          [](unsigned l, unsigned i) {
            return std::pair{(l % 4) * 2 + i, l >> 2};
          },
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          }};
}
// PTX ISA 8.5, 9.7.14.5.7: the figures and formulae for the fragments of m16n8k8 with .tf32.
inline Layout m16n8k8_of_tf32() {
  return {DType::f32,
          16,
          8,
          8,
          32,
          4,
          2,
          4,
          [](unsigned l, unsigned i) {
            const unsigned group = l >> 2, in_group = l % 4;
            return std::pair{i == 0 || i == 2 ? group : group + 8, i < 2 ? in_group : in_group + 4};
          },
          [](unsigned l, unsigned i) {
            return std::pair{i == 0 ? l % 4 : l % 4 + 4, l >> 2};
          },
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          }};
}
// PTX ISA 8.5, 9.7.14.5.10: the figures and formulae for the fragments of m16n8k32 with .s8.
inline Layout m16n8k32() {
  return {DType::i8,
          16,
          8,
          32,
          32,
          16,
          8,
          4,
          [](unsigned l, unsigned i) {
            const unsigned group = l >> 2, in_group = l % 4;
            const unsigned row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
            return std::pair{row, i < 8 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16};
          },
          [](unsigned l, unsigned i) {
            const unsigned in_group = l % 4;
            return std::pair{i < 4 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16, l >> 2};
          },
          [](unsigned l, unsigned i) {
            return std::pair{i < 2 ? l >> 2 : (l >> 2) + 8, (l % 4) * 2 + (i & 1)};
          }};
}
// AMD's Matrix Instruction Calculator, `--register-layout` of each instruction. A[i][k] is element k % per of lane i +
// 16 (k / per). B[k][j] is in lane j + 16 (k / per). D[i][j] is float i % 4 of lane j + 16 (i / 4).
inline Layout mfma(DType t, unsigned k) {
  const unsigned per = k / 4;
  return {t,
          16,
          16,
          k,
          64,
          per,
          per,
          4,
          [=](unsigned l, unsigned e) {
            return std::pair{l % 16, per * (l / 16) + e};
          },
          [=](unsigned l, unsigned e) {
            return std::pair{per * (l / 16) + e, l % 16};
          },
          [](unsigned l, unsigned e) {
            return std::pair{4 * (l / 16) + e, l % 16};
          }};
}
// RDNA3 ISA, 7.9, and "How to accelerate AI applications on RDNA 3 using WMMA" (GPUOpen). Lanes l and l + 16 contain
// row l of A and column l of B. D[i][j] is float i / 2 of lane j + 16 (i % 2).
inline Layout wmma(DType t) {
  return {t,
          16,
          16,
          16,
          32,
          16,
          16,
          8,
          [](unsigned l, unsigned e) {
            return std::pair{l % 16, e};
          },
          [](unsigned l, unsigned e) {
            return std::pair{e, l % 16};
          },
          [](unsigned l, unsigned e) {
            return std::pair{2 * e + l / 16, l % 16};
          }};
}

inline void multiply(const Layout& u, std::vector<LaneRegisters*>& lanes) {
  ASSERT_EQ(lanes.size(), u.lanes);
  Matrix a(u.m, u.k), b(u.k, u.n);
  const unsigned each = 4 / static_cast<unsigned>(dtype_size(u.t));  // elements of a word
  for (unsigned l = 0; l < u.lanes; ++l) {
    for (unsigned e = 0; e < u.a_elements; ++e) {
      const auto [i, j] = u.a(l, e);
      a.set(i, j, value_of(u.t, lanes[l]->a[e / each], e % each));
    }
    for (unsigned e = 0; e < u.b_elements; ++e) {
      const auto [i, j] = u.b(l, e);
      b.set(i, j, value_of(u.t, lanes[l]->b[e / each], e % each));
    }
  }
  for (unsigned l = 0; l < u.lanes; ++l)
    for (unsigned e = 0; e < u.c_elements; ++e) {
      const auto [i, j] = u.c(l, e);
      float& c = lanes[l]->c[e];
      if (u.t == DType::i8) {
        auto sum = std::bit_cast<std::int32_t>(c);
        for (unsigned p = 0; p < u.k; ++p) sum += static_cast<std::int32_t>(a(i, p) * b(p, j));
        c = std::bit_cast<float>(sum);
      } else {
        for (unsigned p = 0; p < u.k; ++p) c += a(i, p) * b(p, j);
      }
    }
}

// PTX ISA 8.5, 9.7.14.5.15. With .x4, lanes 8m to 8m + 7 provide the row addresses of matrix m. Row r has 8 elements,
// which are loaded by lanes 4r to 4r + 3, two elements each. With .trans, the same applies to columns.
inline void load_matrices(std::vector<LaneRegisters*>& lanes, bool transposed) {
  for (unsigned m = 0; m < 4; ++m)
    for (unsigned l = 0; l < 32; ++l) {
      std::uint32_t word = 0;
      for (unsigned h = 0; h < 2; ++h) {
        const unsigned along = 2 * (l % 4) + h, across = l / 4;
        const std::uint16_t* row = lanes[8 * m + (transposed ? along : across)]->row;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row) % 16, 0u) << "rows must be 16 bytes long and aligned";
        word |= std::uint32_t{row[transposed ? across : along]} << (16 * h);
      }
      lanes[l]->a[m] = word;
    }
}

inline std::array<unsigned, instructions> executed;  // number of executions per instruction

inline void execute(int instruction, std::vector<LaneRegisters*>& lanes) {
  ++executed.at(static_cast<std::size_t>(instruction));
  switch (instruction) {
    case m16n8k16_f16: return multiply(m16n8k16(DType::f16), lanes);
    case m16n8k16_bf16: return multiply(m16n8k16(DType::bf16), lanes);
    case m16n8k8_f16: return multiply(m16n8k8(DType::f16), lanes);
    case ldmatrix: return load_matrices(lanes, false);
    case ldmatrix_trans: return load_matrices(lanes, true);
    case mfma_16x16x16_f16: return multiply(mfma(DType::f16, 16), lanes);
    case mfma_16x16x16_bf16: return multiply(mfma(DType::bf16, 16), lanes);
    case mfma_16x16x8_bf16: return multiply(mfma(DType::bf16, 8), lanes);
    case shuffle: {
      std::vector<std::uint32_t> sent;
      for (const LaneRegisters* l : lanes) sent.push_back(l->a[0]);
      for (std::size_t l = 0; l < lanes.size(); ++l) lanes[l]->c[0] = std::bit_cast<float>(sent.at(lanes[l]->b[0]));
      return;
    }
    case m16n8k32_i8: return multiply(m16n8k32(), lanes);
    case mfma_16x16x16_i8: return multiply(mfma(DType::i8, 16), lanes);
    case mfma_16x16x32_i8: return multiply(mfma(DType::i8, 32), lanes);
    case wmma_i8: return multiply(wmma(DType::i8), lanes);
    case m16n8k8_tf32:
      for (const LaneRegisters* l : lanes)
        for (const std::uint32_t word : {l->a[0], l->a[1], l->a[2], l->a[3], l->b[0], l->b[1]})
          EXPECT_EQ(word & 0x1fff, 0u) << "a factor is not rounded to tf32";
      return multiply(m16n8k8_of_tf32(), lanes);
    case mfma_16x16x4_f32: return multiply(mfma(DType::f32, 4), lanes);
    case wmma_f16: return multiply(wmma(DType::f16), lanes);
    default: return multiply(wmma(DType::bf16), lanes);
  }
}

}  // namespace tessera::test
