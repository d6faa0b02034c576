// SPDX-License-Identifier: Apache-2.0
// Boxes of inputs, over which properties are proven.
#pragma once

#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

/// A set of inputs: all f32 samples whose elements are between two bounds, inclusive. Elements are in C order.
struct InputBox {
  Shape shape = {};                        ///< The shape of one sample.
  std::vector<float> low = {}, high = {};  ///< Lower and upper bounds of the elements.

  /// A box with the same bounds for all elements, or with a lower and an upper bound for each element. Throws
  /// ArgumentError if bounds are not finite, or if a lower bound exceeds its upper bound.
  static InputBox of(const Shape& shape, float low, float high);
  static InputBox of(const Array& low, const Array& high);
  /// A box of all inputs whose elements differ from those of a sample by at most `radius` (a ball of the infinity
  /// norm).
  static InputBox around(const Array& sample, double radius);
  /// A box that contains a single input.
  static InputBox at(const Array& sample) { return around(sample, 0); }

  void check() const;  ///< throws ArgumentError like of(), and ShapeError if the number of bounds is wrong
  bool holds(const float* input) const;  ///< Returns true if each element of `input` is within its bounds.
};
std::string to_string(const InputBox& box);  ///< Formats as "(2,) from -1 to 1".

}  // namespace tessera
