// SPDX-License-Identifier: Apache-2.0
// Layers of images (batch, channels, rows, columns). Names, arguments and defaults are PyTorch's.
#pragma once

#include "tessera/nn/setup.h"
#include "tessera/ops/convolution.h"

namespace tessera {

template <>
inline constexpr bool holds_no_arrays<Extents2d> = true;

/// A convolution (ops/convolution.h). weight (out, in / groups, kernel rows, kernel columns) and bias (out,) begin as a
/// Dense's of as many inputs as a window has.
struct Conv2d {
  std::int64_t in = 0;  ///< channels; 0: as many as come
  std::int64_t out = 0;
  Extents2d kernel = 1;
  Extents2d stride = 1;
  Extents2d padding = 0;
  Extents2d dilation = 1;
  std::int64_t groups = 1;
  bool with_bias = true;
  Parameter weight = {}, bias = {};

  Array operator()(const Array& x) const;
  void set_up(const LayerSetup& at);
  Shape output_shape(const Shape& input) const;
};

/// The largest of each window.
struct MaxPool2d {
  Extents2d kernel = 2;
  std::optional<Extents2d> stride = {};  ///< the kernel's extents if empty
  Extents2d padding = 0;

  Array operator()(const Array& x) const;
  Shape output_shape(const Shape& input) const;
};

/// The mean of each window; padding counts as zeros.
struct AveragePool2d {
  Extents2d kernel = 2;
  std::optional<Extents2d> stride = {};
  Extents2d padding = 0;

  Array operator()(const Array& x) const;
  Shape output_shape(const Shape& input) const;
};

}  // namespace tessera
