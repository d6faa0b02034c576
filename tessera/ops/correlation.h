// SPDX-License-Identifier: Apache-2.0
// The products behind convolution, without a matrix of windows: images with weights, and images with images. Their
// kernels for a processor's vectors gather padded bands of images in shared memory. Inside ops/ only.
#pragma once

#include "tessera/ops/convolution.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Which element of x meets which of the weight: y(row) sums x(row * stride - padding + k * dilation) over k. Rows and
/// columns that x lacks are 0. The padding may be negative, and y may have fewer or more rows than there are windows.
struct Correlation {
  Extents2d kernel = 1, stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
  friend bool operator==(const Correlation&, const Correlation&) = default;
};

struct CorrelationSpec {
  enum Kind : std::uint8_t {
    images,  ///< y (n, out, rows, columns) from x and the weight, which is packed in panels of a tile's channels
    weights  ///< the weight's shape from x and y: sums over images, rows and columns
  } kind = images;
  DType x = DType::f32, y = DType::f32, sum = DType::f32;
  /// Vectors are `lanes` channels of y, a tile tn of them by tm windows of a row (images) or tm products of a tap and a
  /// channel of x (weights). Else vectors are windows: tn of them, or tn taps, by tm channels of y.
  bool by_channels = false;
  std::uint32_t lanes = 16, tm = 8, tn = 3;
  bool x_unit = true, y_unit = true;       ///< columns lie side by side
  bool bias = false;                       ///< of images
  bool dilated = false;                    ///< by more than 1
  std::array<std::uint8_t, 4> sizes = {};  ///< rows and columns of kernel and stride; 0: only launches know them
  static constexpr std::uint8_t no_edge = 255;
  /// Of images by channels: the padding of columns where a tile is a row whose taps are known, and windows move by one
  /// column. Taps in the padding are left out. no_edge elsewhere.
  std::uint8_t edge = no_edge;
  std::uint32_t staged = 0, sums = 0;  ///< elements of shared memory
  /// Channels of y in a tile.
  std::uint32_t channels() const { return by_channels ? tn * lanes : tm; }
  friend bool operator==(const CorrelationSpec&, const CorrelationSpec&) = default;
  std::size_t hash() const {
    const auto d = [](DType t) { return static_cast<std::uint64_t>(t); };
    return hash_of({kind | d(x) << 8 | d(y) << 16 | d(sum) << 24 | std::uint64_t{lanes} << 32 |
                        std::uint64_t{tm} << 40 | std::uint64_t{tn} << 48 | std::uint64_t{x_unit} << 56 |
                        std::uint64_t{y_unit} << 57 | std::uint64_t{bias} << 58 | std::uint64_t{by_channels} << 59 |
                        std::uint64_t{dilated} << 60,
                    sizes[0] | std::uint64_t{sizes[1]} << 8 | std::uint64_t{sizes[2]} << 16 |
                        std::uint64_t{sizes[3]} << 24 | std::uint64_t{edge} << 32,
                    staged | std::uint64_t{sums} << 32});
  }
};
ir::Function trace_correlation(const CorrelationSpec& spec);

/// The weight as a correlation of images reads it: [group][panel][channel of x][tap][channel of y], 0 past y's
/// channels.
struct WeightPackSpec {
  DType from = DType::f32, to = DType::f32;
  std::uint32_t width = 8, lanes = 8;  ///< channels of a panel; threads, of which it is a multiple
  bool unit = true;                    ///< taps of a row lie side by side
  bool flipped = false;                ///< taps are met in reverse order
  friend bool operator==(const WeightPackSpec&, const WeightPackSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(from) | static_cast<std::uint64_t>(to) << 8 | std::uint64_t{unit} << 16 |
                        std::uint64_t{flipped} << 17,
                    width | std::uint64_t{lanes} << 32});
  }
};
ir::Function trace_weight_pack(const WeightPackSpec& spec);

/// Extents of a band and of what a block computes of it, in channels; of weights the bands of a block.
struct CorrelationPlan {
  CorrelationSpec spec;
  std::int64_t images = 1, rows = 1, columns = 1;  ///< of a band; fewer columns than y has: y is computed in parts
  /// Rows of memory beside those of windows, what a row takes, and rows of padding that images share.
  std::int64_t more_rows = 0, pitch = 1, shared_rows = 0;
  std::int64_t positions() const { return (images * (rows + more_rows) + shared_rows + 1) * pitch; }
  std::int64_t used() const { return ((images - 1) * (rows + more_rows) + rows) * pitch; }
  std::int64_t bands(const Shape& y) const { return ceil_div(y[2], rows) * ceil_div(y[0], images); }
  std::int64_t chunk = 1, block_panels = 1;  ///< of images
  std::int64_t x_block = 1, y_block = 1, block_bands = 1,
               kernel_rows = 1;  ///< of weights, whose kernel may be in parts
};
/// Nothing if blocks do not gather bands in shared memory on such a device, or none fits: trace_product computes it
/// then. `x` (n, channels, rows, columns); y's extents.
std::optional<CorrelationPlan> choose_correlation(const Tiles& tiles, CorrelationSpec spec, const Correlation& c,
                                                  const Shape& x, const Shape& y);

/// y, which is written: x (n, groups * in, rows, columns) with the weight (groups, out, in, kernel rows, kernel
/// columns), whose taps are met in reverse order if it is flipped. `bias` (channels of y,) may be empty.
void correlate(Array& y, const Array& x, const Array& weight, const std::optional<Array>& bias, bool flipped,
               const Correlation& c);
/// (channels of y, in, kernel rows, kernel columns) in `dtype`: the sum over all windows of y's elements times what the
/// window sees of x.
Array correlate_weights(const Array& x, const Array& y, DType dtype, const Correlation& c);

}  // namespace tessera::ops
