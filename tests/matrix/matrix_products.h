// SPDX-License-Identifier: Apache-2.0
// Products with fragments, for factors and sums at many offsets, strides and orientations. Used by tests of the code
// for matrix units.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/compilers/emit_zoo.h"
#include "tests/matrix/matrix_instructions.h"

namespace tessera::test {

/// A product with two tiles along k. Two subgroups compute separate columns of c.
struct MatrixCase {
  DType t;
  bool left_transposed, right_transposed, sums_transposed, shared, index64;
  std::int64_t begin, stride;
};
inline constexpr std::int64_t matrix_room = 3000, matrix_depth = 32;

/// Returns cases with and without transposing. Rows are aligned to 16 bytes or 4 bytes, or have an odd number of
/// elements. Offsets are even or odd.
inline std::vector<MatrixCase> matrix_cases(bool bf16, bool f32) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> places = {{0, 40}, {8, 48}, {2, 38}, {0, 33}, {5, 40}};
  std::vector<MatrixCase> cases;
  for (const DType t : {DType::f16, DType::bf16, DType::f32}) {
    if ((t == DType::bf16 && !bf16) || (t == DType::f32 && !f32)) continue;
    for (const bool shared : {false, true})
      for (const auto& [begin, stride] : places)
        for (const bool transposed : {false, true}) {
          const std::size_t turn = cases.size() + 1;
          cases.push_back(
              {t, transposed, transposed != (turn / 2 % 2 == 0), turn % 4 < 2, shared, turn % 3 == 0, begin, stride});
        }
  }
  return cases;
}

/// The parameters are the buffers a, b, start and out, each with `matrix_room` elements.
inline ir::Function matrix_case_kernel(const MatrixCase& c, std::uint32_t threads) {
  using namespace ir;
  return zoo::block_kernel("units", {threads, 1, 1}, [&] {
    BufferRef a = buffer_param("a", c.t, Access::read), b = buffer_param("b", c.t, Access::read);
    BufferRef start = buffer_param("start", DType::f32, Access::read);
    const BufferRef out = buffer_param("out", DType::f32, Access::read_write);
    if (c.shared) {
      const BufferRef as = shared(c.t, matrix_room), bs = shared(c.t, matrix_room),
                      cs = shared(DType::f32, matrix_room);
      for_(thread_id(), matrix_room, static_cast<std::int64_t>(threads),
           [&](Value e) { as.store(e, a.load(e)), bs.store(e, b.load(e)), cs.store(e, start.load(e)); });
      barrier();
      a = as, b = bs, start = cs;
    }
    const Value column = subgroup_id() * 16;
    const Fragment left(FragmentRole::left, c.t), right(FragmentRole::right, c.t),
        sum(FragmentRole::accumulator, DType::f32);
    if (c.sums_transposed)
      sum.load_transposed(start, column * c.stride + c.begin, c.stride);
    else
      sum.load(start, column + c.begin, c.stride);
    for_(0, matrix_depth, 16, [&](Value k) {
      if (c.left_transposed)
        left.load_transposed(a, k * c.stride + c.begin, c.stride);
      else
        left.load(a, k + c.begin, c.stride);
      if (c.right_transposed)
        right.load_transposed(b, column * c.stride + k + c.begin, c.stride);
      else
        right.load(b, k * c.stride + column + c.begin, c.stride);
      sum.multiply_add(left, right);
    });
    sum.store(out, column + c.begin, c.stride);
  });
}

/// Works on elements and rows of an accumulator of small integers, so that all results are exact. The parameters are
/// the buffers b (16 x 16), start (16 x 16) and out (576): out = [2 start + row - column + t, that product without t,
/// rounded, times b, element 0 of each lane of the latter], where t is the sum of the row minus three times its
/// maximum.
inline ir::Function matrix_elements_kernel(DType t, std::uint32_t threads) {
  using namespace ir;
  return zoo::block_kernel("elements", {threads, 1, 1}, [&] {
    const BufferRef b = buffer_param("b", t, Access::read), start = buffer_param("start", DType::f32, Access::read),
                    out = buffer_param("out", DType::f32, Access::read_write);
    const Fragment left(FragmentRole::left, t), right(FragmentRole::right, t),
        sum(FragmentRole::accumulator, DType::f32), product(FragmentRole::accumulator, DType::f32);
    if_(subgroup_id() == 0, [&] {
      sum.load(start, 0, 16);
      right.load(b, 0, 16);
      for_each_element(
          [&](const FragmentElement& e) { sum.set(e.k, sum.get(e.k) * 2.f + cast(DType::f32, e.row - e.column)); });
      left.convert(sum);
      product.fill(0.f);
      product.multiply_add(left, right);
      const FragmentRows total, largest;
      total.reduce(ReduceOp::sum, sum), largest.reduce(ReduceOp::max, sum);
      FragmentRows::for_each(
          [&](const Value& slot, const Value&) { total.set_at(slot, total.at(slot) - largest.at(slot) * 3.f); });
      for_each_element([&](const FragmentElement& e) { sum.set(e.k, sum.get(e.k) + total.get(e)); });
      sum.store(out, 0, 16);
      product.store(out, 256, 16);
      // An element that is loaded before the accumulator changes has its old value.
      const Value before = product.get(index_literal(0));
      product.fill(12345.f);
      out.store(lane_id() + 512, before);
    });
  });
}
struct MatrixElementsRun {
  MatrixElementsRun(DType t, std::mt19937& random) : b(256), start(256), out(576, MatrixElementsRun::poison) {
    std::uniform_int_distribution<int> any(-8, 8);
    for (float& f : start) f = static_cast<float>(any(random));
    for (std::uint16_t& bits : b) {
      values.push_back(any(random));
      const auto v = static_cast<float>(values.back());
      bits = t == DType::f16 ? half(v).bits : bfloat16(v).bits;
    }
  }
  void check() const {
    for (std::size_t i = 0; i < 16; ++i) {
      std::array<float, 16> row{};
      float total = 0, largest = -1000;
      for (std::size_t j = 0; j < 16; ++j) {
        row[j] = start[i * 16 + j] * 2 + static_cast<float>(i) - static_cast<float>(j);
        total += row[j], largest = std::max(largest, row[j]);
      }
      for (std::size_t j = 0; j < 16; ++j) {
        float product = 0;
        for (std::size_t k = 0; k < 16; ++k) product += row[k] * static_cast<float>(values[k * 16 + j]);
        ASSERT_EQ(out[i * 16 + j], row[j] + total - 3 * largest) << i << ", " << j;
        ASSERT_EQ(out[256 + i * 16 + j], product) << i << ", " << j;
      }
    }
    for (std::size_t lane = 0; lane < 64; ++lane) ASSERT_NE(out[512 + lane], 12345) << "of lane " << lane;
  }
  static constexpr float poison = 77;
  std::vector<int> values;
  std::vector<std::uint16_t> b;
  std::vector<float> start, out;
};

/// Products of i8 with two steps along k. The second one is added to the first. Two subgroups compute separate columns
/// of c. `out` is 16 x 32. The words of the factors begin at `begin`, and rows have `stride` words.
struct MatrixWordsCase {
  bool shared, index64;
  std::int64_t begin, stride;
};
inline std::vector<MatrixWordsCase> matrix_words_cases() {
  return {{true, false, 0, 20}, {true, true, 8, 20}, {true, false, 3, 17}, {false, true, 4, 20}, {false, false, 1, 19}};
}
/// The parameters are the buffers a, b and out, each with `matrix_room` elements.
inline ir::Function matrix_words_kernel(const MatrixWordsCase& c, std::uint32_t threads) {
  using namespace ir;
  return zoo::block_kernel("words", {threads, 1, 1}, [&] {
    BufferRef a = buffer_param("a", DType::u32, Access::read), b = buffer_param("b", DType::u32, Access::read);
    const BufferRef out = buffer_param("out", DType::f32, Access::read_write);
    if (c.shared) {
      const BufferRef as = shared(DType::u32, matrix_room), bs = shared(DType::u32, matrix_room);
      for_(thread_id(), matrix_room, static_cast<std::int64_t>(threads),
           [&](Value e) { as.store(e, a.load(e)), bs.store(e, b.load(e)); });
      barrier();
      a = as, b = bs;
    }
    const Value column = subgroup_id() * 16;
    const Fragment left(FragmentRole::left, DType::i8), right(FragmentRole::right, DType::i8),
        sum(FragmentRole::accumulator, DType::f32);
    sum.fill(1e30f);
    for (const int step : {0, 1}) {
      left.load(a, c.begin + step * 8, c.stride);
      right.load_transposed(b, column * c.stride + c.begin + step * 8, c.stride);
      step == 0 ? sum.multiply(left, right) : sum.multiply_add(left, right);
    }
    sum.store(out, column, 32);
  });
}
struct MatrixWordsRun {
  MatrixWordsRun(const MatrixWordsCase& of, std::mt19937& random)
      : c(of), a(matrix_room), b(matrix_room), out(matrix_room, poison) {
    for (auto* factor : {&a, &b})
      for (std::uint32_t& word : *factor) word = static_cast<std::uint32_t>(random());
    a[static_cast<std::size_t>(c.begin)] = b[static_cast<std::size_t>(c.begin)] = 0x80808080;  // -128 each
  }
  void check() const {
    SCOPED_TRACE(std::string(c.shared ? "shared" : "buffers") + ", from " + std::to_string(c.begin) + " by " +
                 std::to_string(c.stride));
    const auto number = [&](const std::vector<std::uint32_t>& from, std::size_t row, std::size_t k) {
      const auto word = static_cast<std::size_t>(c.begin) + row * static_cast<std::size_t>(c.stride) + k / 4;
      return static_cast<std::int64_t>(value_of(DType::i8, from.at(word), k % 4));
    };
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t j = 0; j < 32; ++j) {
        std::int64_t sum = 0;
        for (std::size_t k = 0; k < 64; ++k) sum += number(a, i, k) * number(b, j, k);
        ASSERT_EQ(out[i * 32 + j], static_cast<float>(sum)) << i << ", " << j;
      }
    for (std::size_t e = 512; e < out.size(); ++e) ASSERT_EQ(out[e], poison);
  }
  static constexpr float poison = 77;
  MatrixWordsCase c;
  std::vector<std::uint32_t> a, b;
  std::vector<float> out;
};

/// The inputs of one case, and the check of its result. If `tf32`, the unit rounds factors of f32.
class MatrixRun {
 public:
  MatrixRun(const MatrixCase& c, bool tf32, std::mt19937& random)
      : c_(c), tf32_(tf32), start(matrix_room), out(matrix_room, poison) {
    std::uniform_real_distribution<float> any(-2, 2);
    const std::size_t size = dtype_size(c.t);
    for (auto* factor : {&a, &b}) {
      factor->resize(matrix_room * size);
      for (std::size_t at = 0; at < factor->size(); at += size) {
        const float x = any(random);
        const std::uint32_t bits = c.t == DType::f16    ? half(x).bits
                                   : c.t == DType::bf16 ? bfloat16(x).bits
                                                        : std::bit_cast<std::uint32_t>(x);
        std::memcpy(factor->data() + at, &bits, size);
      }
    }
    for (float& f : start) f = any(random);
  }
  /// f32 sums in any order are within this bound, even if they are truncated instead of rounded (docs/kernels.md).
  void check() const {
    SCOPED_TRACE(std::string(dtype_name(c_.t)) + (c_.left_transposed ? ", left transposed" : "") +
                 (c_.right_transposed ? ", right transposed" : "") + (c_.sums_transposed ? ", sums transposed" : "") +
                 (c_.shared ? ", shared" : "") + (c_.index64 ? ", wide" : "") + ", from " + std::to_string(c_.begin) +
                 " by " + std::to_string(c_.stride));
    std::vector<char> written(matrix_room);
    for (std::int64_t i = 0; i < 16; ++i)
      for (std::int64_t j = 0; j < 32; ++j) {
        auto at = [&](bool across, std::int64_t row, std::int64_t column) {
          return static_cast<std::size_t>(c_.begin + (across ? column * c_.stride + row : row * c_.stride + column));
        };
        double sum = start[at(c_.sums_transposed, i, j)], absolute = std::fabs(sum);
        for (std::int64_t k = 0; k < matrix_depth; ++k) {
          const double x = element(a, at(c_.left_transposed, i, k)), y = element(b, at(c_.right_transposed, k, j));
          sum += x * y, absolute += std::fabs(x * y);
        }
        const std::size_t place = at(false, i, j);
        written[place] = 1;
        ASSERT_NEAR(out[place], sum, 2 * (matrix_depth + 1) * 0x1p-24 * absolute) << i << ", " << j;
      }
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!written[i]) {
        ASSERT_EQ(out[i], poison) << "memory outside of the matrix was overwritten at " << i;
      }
  }

  static constexpr float poison = 77;

 private:
  /// An element of a factor, as the unit multiplies it.
  double element(const std::vector<std::byte>& from, std::size_t i) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, from.data() + i * dtype_size(c_.t), dtype_size(c_.t));
    const float x = value_of(c_.t, bits, 0);
    return c_.t == DType::f32 && tf32_ ? std::bit_cast<float>(tf32_bits(x)) : x;
  }
  MatrixCase c_;
  bool tf32_;

 public:
  std::vector<std::byte> a, b;
  std::vector<float> start, out;
};

}  // namespace tessera::test
