// SPDX-License-Identifier: Apache-2.0
// Internal to fft/. The kernels of Fourier transforms. Kernels compute sums of x[j] exp(-2 pi i j k / n); the inverse
// transform exchanges the real and imaginary parts of its input and output.
#pragma once

#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/device/device.h"
#include "tessera/ir/fwd.h"

namespace tessera::fft {

/// Prime factors up to this limit have their own butterflies. Other lengths use Bluestein's algorithm.
constexpr std::int64_t largest_radix = 13;

/// True if n has only prime factors up to largest_radix.
bool is_smooth(std::int64_t n);
/// The radices of the passes, whose product is n: first powers of two, so that later passes have long contiguous runs.
std::vector<std::uint32_t> radices_of(std::int64_t n);

/// Sequences of real numbers, seen as complex numbers of half the length.
enum class Reals : std::uint8_t {
  none,     ///< the input and the output are n complex numbers
  forward,  ///< the input is 2 n real numbers, the output the first n + 1 elements of their spectrum
  inverse,  ///< the input is such a spectrum, the output 2 n real numbers of the inverse transform
};

/// Where element k of sequence c is.
enum class Order : std::uint8_t {
  rows,     ///< at c extent + k, where `extent` is the number of elements of a sequence
  columns,  ///< at k count + c, where `count` is the number of sequences of one outer index
};

/// A kernel in which each block transforms `columns` sequences of n elements. Intermediate results are in shared
/// memory.
struct TransformSpec {
  DType dtype;            ///< f32 or f64
  std::uint32_t n;        ///< a smooth length
  std::uint32_t threads;  ///< of a block
  std::uint32_t columns;  ///< sequences of a block
  Order in, out;
  bool ragged = false;    ///< the last block of an outer index has fewer columns
  bool twiddled = false;  ///< multiplies output k of column j by exp(-2 pi i j k / (n count))
  Reals reals = Reals::none;
  friend bool operator==(const TransformSpec&, const TransformSpec&) = default;
  std::size_t hash() const {
    return std::size_t{n} << 32 | threads << 20 | columns << 10 | static_cast<std::size_t>(reals) << 6 |
           static_cast<std::size_t>(in) << 5 | static_cast<std::size_t>(out) << 4 | ragged << 3 | twiddled << 2 |
           (dtype == DType::f64);
  }
};
/// Parameters: in (real and imaginary parts, or one buffer of real numbers), twiddles, turns (if twiddled), roots (for
/// real numbers), out (like in), count, tiles (blocks of an outer index), scale (a factor, unless twiddled). The grid
/// has one block for each tile of each outer index.
ir::Function trace_transform(const TransformSpec& spec);
/// The factors between passes, in the order of their use: for each pass but the last, for i = 1 to radix - 1, the real
/// and then the imaginary parts of exp(-2 pi i p i / (n / stride)) for all p.
std::vector<double> transform_twiddles(std::int64_t n);
/// The factors of `twiddled`: the real, then the imaginary parts for all columns j of exp(-2 pi i j q / (n count)), for
/// the first q = 0 to n / radix - 1, then for multiples i n / radix with i = 1 to radix - 1, with the last radix.
std::vector<double> column_turns(std::int64_t n, std::int64_t count);

/// exp(-2 pi i k / n) for k >= 0, with an error of at most two units in the last place.
struct Root {
  double re, im;
};
Root root_of_unity(std::int64_t k, std::int64_t n);

/// Kernels that convert between the spectra of n real numbers and of the same numbers as n / 2 complex ones, for rows
/// that are too long for one block.
struct RealSpec {
  DType dtype;
  bool inverse;  ///< from the spectrum of the real numbers to that of the complex ones
  friend bool operator==(const RealSpec&, const RealSpec&) = default;
  std::size_t hash() const { return inverse * 2u + (dtype == DType::f64); }
};
/// Parameters: re, im (input), roots, out_re, out_im, half (n / 2). The grid has one thread per output element and row.
ir::Function trace_real(const RealSpec& spec);

}  // namespace tessera::fft
