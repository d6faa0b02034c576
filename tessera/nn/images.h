// SPDX-License-Identifier: Apache-2.0
// Layers for images (batch, channels, rows, columns). Names, arguments and defaults are PyTorch's.
#pragma once

#include "tessera/nn/setup.h"
#include "tessera/ops/convolution.h"

namespace tessera {

template <>
inline constexpr bool holds_no_arrays<Extents2d> = true;

/// A convolution (ops/convolution.h). weight (out, in / groups, kernel rows, kernel columns) and bias (out,) are
/// initialised as those of a Dense with as many inputs as a window has elements.
struct Conv2d {
  std::int64_t in = 0;               ///< channels; 0: taken from the input
  std::int64_t out = 0;              ///< Channels of the result.
  Extents2d kernel = 1;              ///< Rows and columns of the window.
  Extents2d stride = 1;              ///< Distance between windows.
  Extents2d padding = 0;             ///< Zeros added on each side.
  Extents2d dilation = 1;            ///< Distance between the elements of a window.
  std::int64_t groups = 1;           ///< Channels are split into this many groups, each convolved on its own.
  bool with_bias = true;             ///< Adds a bias to each channel.
  Parameter weight = {}, bias = {};  ///< (out, in / groups, rows, columns), and (out).

  Array operator()(const Array& x) const;        ///< x (batch, in, rows, columns) gives (batch, out, rows', columns').
  void set_up(const LayerSetup& at);             ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// The largest element of each window.
struct MaxPool2d {
  Extents2d kernel = 2;                  ///< Rows and columns of the window.
  std::optional<Extents2d> stride = {};  ///< the kernel's extents if empty
  Extents2d padding = 0;                 ///< Padding on each side; never the largest element.

  Array operator()(const Array& x) const;        ///< x (batch, channels, rows, columns) gives fewer rows and columns.
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// The mean of each window; padding counts as zero.
struct AveragePool2d {
  Extents2d kernel = 2;                  ///< Rows and columns of the window.
  std::optional<Extents2d> stride = {};  ///< Distance between windows; the kernel's extents if empty.
  Extents2d padding = 0;                 ///< Zeros added on each side.

  Array operator()(const Array& x) const;        ///< x (batch, channels, rows, columns) gives fewer rows and columns.
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

}  // namespace tessera
