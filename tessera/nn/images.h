// SPDX-License-Identifier: Apache-2.0
// Layers for images (batch, channels, rows, columns). Names, arguments and defaults match PyTorch.
#pragma once

#include "tessera/nn/setup.h"
#include "tessera/ops/convolution.h"

namespace tessera {

template <>
inline constexpr bool holds_no_arrays<Extents2d> = true;

/// A 2-D convolution (ops/convolution.h). weight (out, in / groups, kernel rows, kernel columns) and bias (out,) are
/// initialised like those of a Dense layer that has as inputs the elements of one window.
struct Conv2d {
  std::int64_t in = 0;               ///< Channels of the input; 0: inferred from the input.
  std::int64_t out = 0;              ///< Channels of the result.
  Extents2d kernel = 1;              ///< Rows and columns of the kernel.
  Extents2d stride = 1;              ///< Distance between windows.
  Extents2d padding = 0;             ///< Zeros added on each side.
  Extents2d dilation = 1;            ///< Distance between neighbouring elements of a window.
  std::int64_t groups = 1;           ///< Splits the channels into groups that are convolved separately.
  bool with_bias = true;             ///< Adds a bias to each output channel.
  Parameter weight = {}, bias = {};  ///< Shapes (out, in / groups, rows, columns) and (out).

  Array operator()(const Array& x) const;  ///< x (batch, in, rows, columns); returns (batch, out, rows', columns').
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// Max pooling: returns the largest element of each window.
struct MaxPool2d {
  Extents2d kernel = 2;                  ///< Rows and columns of the window.
  std::optional<Extents2d> stride = {};  ///< Distance between windows; default: the kernel's extents.
  Extents2d padding = 0;                 ///< Padding on each side; padding is never the maximum.

  Array operator()(const Array& x) const;        ///< x (batch, channels, rows, columns); reduces rows and columns.
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// Average pooling: returns the mean of each window. Padding is included in the mean as zeros.
struct AveragePool2d {
  Extents2d kernel = 2;                  ///< Rows and columns of the window.
  std::optional<Extents2d> stride = {};  ///< Distance between windows; default: the kernel's extents.
  Extents2d padding = 0;                 ///< Zeros added on each side.

  Array operator()(const Array& x) const;        ///< x (batch, channels, rows, columns); reduces rows and columns.
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

}  // namespace tessera
