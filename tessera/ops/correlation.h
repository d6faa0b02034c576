// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The products that make up a convolution, without im2col: images with weights, and images with
// images. The CPU kernels stage padded bands of images in shared memory.
#pragma once

#include "tessera/ops/convolution.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Relates elements of x, y and the weight: y(row) is the sum over k of x(row * stride - padding + k * dilation) *
/// weight(k). Elements outside x are 0. The padding may be negative. The number of rows of y may differ from the number
/// of windows in x.
struct Correlation {
  Extents2d kernel = 1, stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
  friend bool operator==(const Correlation&, const Correlation&) = default;
};

struct CorrelationSpec {
  enum Kind : std::uint8_t {
    /// computes y (n, out, rows, columns) from x and the weight; each panel of the packed weight has the channels of
    /// one tile
    images,
    weights  ///< computes the gradient of the weight from x and y by summing over images, rows and columns
  } kind = images;
  DType x = DType::f32, y = DType::f32, sum = DType::f32;
  /// Selects the layout of vectors and tiles.
  /// - True: a vector has `lanes` channels of y. A tile has tn vectors by tm windows of a row (images), or tn vectors
  ///   by tm pairs of a tap and a channel of x (weights).
  /// - False: a vector has `lanes` consecutive windows. A tile has tm channels of y by tn vectors (images) or by tn
  ///   taps (weights).
  bool by_channels = false;
  std::uint32_t lanes = 16, tm = 8, tn = 3;
  bool x_unit = true, y_unit = true;  ///< columns are contiguous
  bool bias = false;                  ///< only for `images`
  bool dilated = false;               ///< the dilation is greater than 1
  /// rows and columns of the kernel, then of the stride; 0 if known only at launch
  std::array<std::uint8_t, 4> sizes = {};
  static constexpr std::uint8_t no_edge = 255;
  /// The padding of columns, or no_edge. If it is set, the kernel skips taps in the padding. It is set only for images
  /// by channels, if a tile is a whole row, its taps are known and the stride is 1.
  std::uint8_t edge = no_edge;
  std::uint32_t staged = 0, sums = 0;  ///< number of elements in shared memory
  /// The number of channels of y in a tile.
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

/// Packs the weight for a correlation of images. The layout is [group][panel][channel of x][tap][channel of y].
/// Elements after the last channel of y are 0.
struct WeightPackSpec {
  DType from = DType::f32, to = DType::f32;
  std::uint32_t width = 8, lanes = 8;  ///< channels of a panel (a multiple of `lanes`); threads of a block
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

/// The extents of a band, and the part of the work that one block computes.
struct CorrelationPlan {
  CorrelationSpec spec;
  /// The extents of a band. If `columns` is less than the columns of y, y is computed in parts.
  std::int64_t images = 1, rows = 1, columns = 1;
  /// The staged rows in addition to those of the windows, the elements per row, and the padding rows that adjacent
  /// images share.
  std::int64_t more_rows = 0, pitch = 1, shared_rows = 0;
  std::int64_t positions() const { return (images * (rows + more_rows) + shared_rows + 1) * pitch; }
  std::int64_t used() const { return ((images - 1) * (rows + more_rows) + rows) * pitch; }
  std::int64_t bands(const Shape& y) const { return ceil_div(y[2], rows) * ceil_div(y[0], images); }
  std::int64_t chunk = 1, block_panels = 1;  ///< for images: channels of x staged at a time, panels of a block
  std::int64_t x_block = 1, y_block = 1, block_bands = 1,
               kernel_rows = 1;  ///< for weights: channels and bands of a block, rows of the kernel computed at a time
};
/// Returns the cheapest plan. Returns std::nullopt if the device does not stage bands in shared memory or no band fits;
/// trace_product then computes the convolution. `x` is (n, channels, rows, columns), and `y` is the shape of the
/// result.
std::optional<CorrelationPlan> choose_correlation(const Tiles& tiles, CorrelationSpec spec, const Correlation& c,
                                                  const Shape& x, const Shape& y);

/// Writes y, the correlation of x (n, groups * in, rows, columns) with the weight (groups, out, in, kernel rows, kernel
/// columns). If `flipped` is true, the taps are used in reverse order. `bias` has one element per channel of y and is
/// optional.
void correlate(Array& y, const Array& x, const Array& weight, const std::optional<Array>& bias, bool flipped,
               const Correlation& c);
/// Returns the gradient of the weight (channels of y, in, kernel rows, kernel columns) in `dtype`. It is the sum, over
/// all windows, of the element of y times the elements of x in the window.
Array correlate_weights(const Array& x, const Array& y, DType dtype, const Correlation& c);

}  // namespace tessera::ops
