// SPDX-License-Identifier: Apache-2.0
// Encoders of K formats. A block has 256 numbers in parts of 16 or 32, and x = d * factor * q - m * minimum, where the
// factor and the minimum of a part are small integers, and d and m belong to the block. q3_K and q6_K have no minimum.
//
// Each part is fitted alone, with real factors: about 20 divisions into steps are tried, and a step and an offset are
// fitted to the integers of each by least squares. Then d and m are chosen from the largest fits, the factors next to
// the fitted ones are tried, and d and m are fitted once more to all integers.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tessera/ops/block_encoder.h"

namespace tessera::ops {
namespace {

constexpr std::size_t size = 256;

template <std::size_t part_size_, int least_, int most_, int least_factor_, int most_factor_>
struct KFormat {
  static constexpr std::size_t part_size = part_size_, parts = size / part_size;
  static constexpr int least = least_, most = most_;                              ///< integers
  static constexpr int least_factor = least_factor_, most_factor = most_factor_;  ///< factors, and minimums
  static constexpr bool has_minimum = least == 0;
};
using Q2 = KFormat<16, 0, 3, 0, 15>;
using Q3 = KFormat<16, -4, 3, -32, 31>;
using Q4 = KFormat<32, 0, 15, 0, 63>;
using Q5 = KFormat<32, 0, 31, 0, 63>;
using Q6 = KFormat<16, -32, 31, -128, 127>;

template <class Format>
struct KBlock {
  float d = 0, m = 0;
  std::array<int, Format::parts> factor{}, minimum{};
  std::array<int, size> q{};
};

int rounded(float v, int least, int most) {
  return truncated(v - static_cast<float>(least) + 0.5f, most - least) + least;
}
/// Rounds to f16. Numbers other than 0 do not become 0, because a block without a scale has no numbers.
float as_half(float v) {
  const auto rounded = static_cast<float>(half(v));
  return rounded == 0 && v != 0 ? std::copysign(0x1p-24f, v) : rounded;
}
float inverse_of(float v) { return v != 0 ? 1.0f / v : 0.0f; }

float sum_of(const float (&lanes)[8]) { return std::accumulate(lanes, lanes + 8, 0.0f); }

/// Sums for fitting x = step * q + offset.
struct Sums {
  float w = 0, q = 0, qq = 0, x = 0, xq = 0;
};
/// The same in 8 lanes, because compilers vectorise no sums of floats.
struct Lanes {
  float w[8] = {}, q[8] = {}, qq[8] = {}, x[8] = {}, xq[8] = {};
  Sums sums() const { return {sum_of(w), sum_of(q), sum_of(qq), sum_of(x), sum_of(xq)}; }
};

struct Line {
  float step = 0, offset = 0;
};

/// Returns the line of the least weighted squared error, with an offset of at most 0, or of 0.
Line fitted(const Sums& s, bool has_offset) {
  if (has_offset) {
    // If all integers are equal, the determinant is 0, and its rounding error is not.
    const float determinant = s.w * s.qq - s.q * s.q;
    if (determinant > 1e-5f * s.w * s.qq) {
      const Line line{(s.w * s.xq - s.q * s.x) / determinant, (s.qq * s.x - s.q * s.xq) / determinant};
      if (line.offset <= 0) return line;
    } else if (s.qq == 0) {
      return {0, s.w > 0 ? std::min(s.x / s.w, 0.0f) : 0.0f};
    }
  }
  return {s.qq > 0 ? s.xq / s.qq : 0.0f, 0};
}

template <class Format>
class Encoder {
 public:
  explicit Encoder(const float* numbers) : x_(numbers) {
    for (std::size_t part = 0; part < Format::parts; ++part) {
      const float* const x = x_ + part * n;
      float squares = 0;
      for (std::size_t i = 0; i < n; ++i) squares += x[i] * x[i];
      const float mean = std::sqrt(squares / static_cast<float>(n));
      for (std::size_t i = 0; i < n; ++i) w_[part * n + i] = mean + std::fabs(x[i]);
    }
  }

  KBlock<Format> block() {
    std::array<Line, Format::parts> lines;
    for (std::size_t part = 0; part < Format::parts; ++part) lines[part] = fit(part);
    KBlock<Format> out;
    float step = 0, offset = 0;
    for (const Line& l : lines) {
      if (std::fabs(l.step) > std::fabs(step)) step = l.step;
      offset = std::min(offset, l.offset);
    }
    constexpr int extreme = Format::has_minimum ? Format::most_factor : Format::least_factor;
    set_scales(out, step / static_cast<float>(extreme), -offset / static_cast<float>(Format::most_factor));
    float best = choose(out, lines);
    for (int i = 0; i < 2; ++i) {
      KBlock<Format> next = out;
      refit(next);
      const float error = choose(next, lines);
      if (!(error < best)) break;
      best = error, out = next;
    }
    return out;
  }

 private:
  static constexpr std::size_t n = Format::part_size;

  static void set_scales(KBlock<Format>& b, float d, float m) { b.d = as_half(d), b.m = as_half(m); }

  /// Fits the numbers of a part alone.
  Line fit(std::size_t part) const {
    const float *const x = x_ + part * n, *const w = w_.data() + part * n;
    float from = 0, range;
    if constexpr (Format::has_minimum) {
      const auto [low, high] = std::minmax_element(x, x + n);
      from = std::min(*low, 0.0f);
      range = *high - from;
    } else {
      range = -*std::max_element(x, x + n, [](float l, float r) { return std::fabs(l) < std::fabs(r); });
    }
    if (range == 0) return {0, from};  // all numbers are equal, and not positive
    constexpr float levels = Format::has_minimum ? Format::most : -Format::least;
    Line best;
    float least_error = 0;
    for (int i = -10; i <= 10; ++i) {
      const float inverse = (levels + 0.1f * static_cast<float>(i)) / range;
      Lanes lanes;
      for (std::size_t k = 0; k < n; k += 8)
        for (std::size_t lane = 0; lane < 8; ++lane) {
          const float number = x[k + lane], weight = w[k + lane];
          const auto q = static_cast<float>(rounded((number - from) * inverse, Format::least, Format::most));
          lanes.w[lane] += weight, lanes.q[lane] += weight * q, lanes.qq[lane] += weight * q * q;
          lanes.x[lane] += weight * number, lanes.xq[lane] += weight * number * q;
        }
      const Sums sums = lanes.sums();
      const Line line = fitted(sums, Format::has_minimum);
      // The sum of w * (x - step * q - offset)^2 without the sum of w * x^2, which is the same for all lines.
      const float error = line.step * (line.step * sums.qq - 2 * sums.xq) +
                          line.offset * (line.offset * sums.w + 2 * line.step * sums.q - 2 * sums.x);
      if (i == -10 || error < least_error) least_error = error, best = line;
    }
    return best;
  }

  /// Returns the error of a part whose numbers are rounded to `line`, and writes the integers to `q`.
  template <bool writes>
  float error_of(std::size_t part, const Line& line, int* q) const {
    const float *const x = x_ + part * n, *const w = w_.data() + part * n;
    const float inverse = inverse_of(line.step);
    float error[8] = {};
    for (std::size_t k = 0; k < n; k += 8)
      for (std::size_t lane = 0; lane < 8; ++lane) {
        const float number = x[k + lane];
        const int integer = rounded((number - line.offset) * inverse, Format::least, Format::most);
        const float e = number - line.step * static_cast<float>(integer) - line.offset;
        error[lane] += w[k + lane] * e * e;
        if constexpr (writes) q[k + lane] = integer;
      }
    return sum_of(error);
  }

  /// Chooses the factors, minimums and integers of all parts for d and m. Returns the error.
  float choose(KBlock<Format>& b, const std::array<Line, Format::parts>& lines) const {
    float sum = 0;
    for (std::size_t part = 0; part < Format::parts; ++part) {
      const int factor = rounded(lines[part].step * inverse_of(b.d), Format::least_factor, Format::most_factor);
      const int minimum =
          Format::has_minimum ? rounded(-lines[part].offset * inverse_of(b.m), 0, Format::most_factor) : 0;
      float least_error = -1;
      const auto consider = [&](int f, int m) {
        const float error = error_of<false>(part, line_of(b, f, m), nullptr);
        if (least_error >= 0 && !(error < least_error)) return;
        least_error = error, b.factor[part] = f, b.minimum[part] = m;
      };
      for (int f = std::max(factor - 1, Format::least_factor); f <= std::min(factor + 1, Format::most_factor); ++f)
        for (int m = std::max(minimum - 1, 0);
             m <= (Format::has_minimum ? std::min(minimum + 1, Format::most_factor) : 0); ++m)
          consider(f, m);
      sum += error_of<true>(part, line_of(b, b.factor[part], b.minimum[part]), b.q.data() + part * n);
    }
    return sum;
  }
  static Line line_of(const KBlock<Format>& b, int factor, int minimum) {
    return {b.d * static_cast<float>(factor), -b.m * static_cast<float>(minimum)};
  }

  /// Fits d and m to the integers of all parts.
  void refit(KBlock<Format>& b) const {
    float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;  // x = d * a - m * b
    for (std::size_t i = 0; i < size; ++i) {
      const float w = w_[i], at = static_cast<float>(b.factor[i / n] * b.q[i]),
                  bt = static_cast<float>(b.minimum[i / n]);
      aa += w * at * at, ab += w * at * bt, bb += w * bt * bt, xa += w * x_[i] * at, xb += w * x_[i] * bt;
    }
    const float determinant = aa * bb - ab * ab;
    if (Format::has_minimum && determinant > 0) {
      const float d = (xa * bb - xb * ab) / determinant, m = (xa * ab - xb * aa) / determinant;
      if (d >= 0 && m >= 0) set_scales(b, d, m);
    } else if (aa > 0) {
      set_scales(b, xa / aa, 0);
    }
  }

  const float* x_;
  std::array<float, size> w_;
};

template <class Format>
KBlock<Format> encoded(const float* numbers) {
  return Encoder<Format>(numbers).block();
}

void add_bits(std::byte* to, int bits, std::size_t shift) { *to |= static_cast<std::byte>(bits << shift); }

/// Writes the factors and minimums of q4_K and q5_K, of 6 bits each, to 12 bytes: the inverse of k_factors().
template <class Format>
void put_factors(const KBlock<Format>& b, std::byte* to) {
  for (std::size_t part = 0; part < 4; ++part) {
    add_bits(to + part, b.factor[part], 0), add_bits(to + part + 4, b.minimum[part], 0);
    const int factor = b.factor[part + 4], minimum = b.minimum[part + 4];
    add_bits(to + part + 8, factor & 15, 0), add_bits(to + part + 8, minimum & 15, 4);
    add_bits(to + part, factor >> 4, 6), add_bits(to + part + 4, minimum >> 4, 6);
  }
}

/// Writes bits `shift` and above of integers of 2 bits: bits 2 j of 32 bytes belong to part j of 128 numbers.
void put_pair(std::byte* to, std::size_t i, int bits) { add_bits(to + i / 128 * 32 + i % 32, bits, 2 * (i / 32 % 4)); }

}  // namespace

void put_q4_K(const float* numbers, std::byte* to) {
  const KBlock<Q4> b = encoded<Q4>(numbers);
  std::fill_n(to, 144, std::byte{0});
  put_half(to, b.d), put_half(to + 2, b.m), put_factors(b, to + 4);
  for (std::size_t i = 0; i < size; ++i) add_bits(to + 16 + i / 64 * 32 + i % 32, b.q[i], i / 32 % 2 * 4);
}

void put_q5_K(const float* numbers, std::byte* to) {
  const KBlock<Q5> b = encoded<Q5>(numbers);
  std::fill_n(to, 176, std::byte{0});
  put_half(to, b.d), put_half(to + 2, b.m), put_factors(b, to + 4);
  for (std::size_t i = 0; i < size; ++i) {
    add_bits(to + 48 + i / 64 * 32 + i % 32, b.q[i] & 15, i / 32 % 2 * 4);
    add_bits(to + 16 + i % 32, b.q[i] >> 4, i / 32);
  }
}

void put_q6_K(const float* numbers, std::byte* to) {
  const KBlock<Q6> b = encoded<Q6>(numbers);
  std::fill_n(to, 210, std::byte{0});
  for (std::size_t i = 0; i < size; ++i) {
    const int q = b.q[i] + 32;
    add_bits(to + i / 128 * 64 + i / 32 % 2 * 32 + i % 32, q & 15, i / 64 % 2 * 4);
    put_pair(to + 128, i, q >> 4);
  }
  for (std::size_t part = 0; part < 16; ++part) to[192 + part] = static_cast<std::byte>(b.factor[part]);
  put_half(to + 208, b.d);
}

void put_q2_K(const float* numbers, std::byte* to) {
  const KBlock<Q2> b = encoded<Q2>(numbers);
  std::fill_n(to, 84, std::byte{0});
  for (std::size_t part = 0; part < 16; ++part)
    add_bits(to + part, b.factor[part], 0), add_bits(to + part, b.minimum[part], 4);
  for (std::size_t i = 0; i < size; ++i) put_pair(to + 16, i, b.q[i]);
  put_half(to + 80, b.d), put_half(to + 82, b.m);
}

void put_q3_K(const float* numbers, std::byte* to) {
  const KBlock<Q3> b = encoded<Q3>(numbers);
  std::fill_n(to, 110, std::byte{0});
  for (std::size_t i = 0; i < size; ++i) {
    const int q = b.q[i] + 4;
    put_pair(to + 32, i, q & 3);
    add_bits(to + i % 32, q >> 2, i / 32);
  }
  for (std::size_t part = 0; part < 16; ++part) {
    const int factor = b.factor[part] + 32;
    add_bits(to + 96 + part % 8, factor & 15, part / 8 * 4);
    add_bits(to + 104 + part % 4, factor >> 4, part / 4 * 2);
  }
  put_half(to + 108, b.d);
}

}  // namespace tessera::ops
