// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The products of convolution without im2col: images with weights, and images with images. The CPU
// kernels stage padded bands of images in shared memory.
#pragma once

#include "tessera/ops/convolution.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Relates elements of x and the weight: y(row) is the sum over k of x(row * stride - padding + k * dilation) *
/// weight(k). Elements outside x are 0. The padding may be negative, and y may have fewer or more rows than x has
/// windows.
struct Correlation {
  Extents2d kernel = 1, stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
  friend bool operator==(const Correlation&, const Correlation&) = default;
};

struct CorrelationSpec {
  enum Kind : std::uint8_t {
    images,  ///< y (n, out, rows, columns) from x and the weight, which is packed in panels of one tile's channels
    weights  ///< the weight's gradient from x and y: sums over images, rows and columns
  } kind = images;
  DType x = DType::f32, y = DType::f32, sum = DType::f32;
  /// True: vectors are `lanes` channels of y, and a tile is tn of them by tm windows of a row (images) or by tm pairs
  /// of a tap and a channel of x (weights). False: vectors are windows, and a tile is tn of them, or tn taps, by tm
  /// channels of y.
  bool by_channels = false;
  std::uint32_t lanes = 16, tm = 8, tn = 3;
  bool x_unit = true, y_unit = true;       ///< columns are contiguous
  bool bias = false;                       ///< only for images
  bool dilated = false;                    ///< the dilation is greater than 1
  std::array<std::uint8_t, 4> sizes = {};  ///< rows and columns of kernel and stride; 0: known only at launch
  static constexpr std::uint8_t no_edge = 255;
  /// For images by channels: the padding of columns if a tile is a whole row, its taps are known and the stride is 1.
  /// Taps in the padding are then skipped. Otherwise no_edge.
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

/// Packs the weight for a correlation of images: [group][panel][channel of x][tap][channel of y], 0 past y's last
/// channel.
struct WeightPackSpec {
  DType from = DType::f32, to = DType::f32;
  std::uint32_t width = 8, lanes = 8;  ///< channels of a panel; threads (width is a multiple)
  bool unit = true;                    ///< the taps of a row are contiguous
  bool flipped = false;                ///< taps are stored in reverse order
  friend bool operator==(const WeightPackSpec&, const WeightPackSpec&) = default;
  std::size_t hash() const {
    return hash_of({static_cast<std::uint64_t>(from) | static_cast<std::uint64_t>(to) << 8 | std::uint64_t{unit} << 16 |
                        std::uint64_t{flipped} << 17,
                    width | std::uint64_t{lanes} << 32});
  }
};
ir::Function trace_weight_pack(const WeightPackSpec& spec);

/// The extents of a band, and the part of it that one block computes.
struct CorrelationPlan {
  CorrelationSpec spec;
  std::int64_t images = 1, rows = 1, columns = 1;  ///< of a band; if less than y's columns, y is computed in parts
  /// Staged rows in addition to those of windows, elements per row, and padding rows that adjacent images share.
  std::int64_t more_rows = 0, pitch = 1, shared_rows = 0;
  std::int64_t positions() const { return (images * (rows + more_rows) + shared_rows + 1) * pitch; }
  std::int64_t used() const { return ((images - 1) * (rows + more_rows) + rows) * pitch; }
  std::int64_t bands(const Shape& y) const { return ceil_div(y[2], rows) * ceil_div(y[0], images); }
  std::int64_t chunk = 1, block_panels = 1;  ///< channels of x staged at a time, panels of a block (images)
  std::int64_t x_block = 1, y_block = 1, block_bands = 1,
               kernel_rows = 1;  ///< channels and bands of a block, rows of the kernel computed at a time (weights)
};
/// Returns the cheapest plan, or nothing if the device does not stage bands in shared memory or none fits; then
/// trace_product computes the convolution. `x` is (n, channels, rows, columns); `y` are the result's extents.
std::optional<CorrelationPlan> choose_correlation(const Tiles& tiles, CorrelationSpec spec, const Correlation& c,
                                                  const Shape& x, const Shape& y);

/// Writes y: x (n, groups * in, rows, columns) correlated with the weight (groups, out, in, kernel rows, kernel
/// columns), with taps in reverse order if `flipped`. `bias` (channels of y,) is optional.
void correlate(Array& y, const Array& x, const Array& weight, const std::optional<Array>& bias, bool flipped,
               const Correlation& c);
/// Returns the weight's gradient (channels of y, in, kernel rows, kernel columns) in `dtype`: the sum over all windows
/// of y's element times the window's elements of x.
Array correlate_weights(const Array& x, const Array& y, DType dtype, const Correlation& c);

}  // namespace tessera::ops
