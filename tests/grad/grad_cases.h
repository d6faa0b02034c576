// SPDX-License-Identifier: Apache-2.0
// Functions of arrays to differentiate, at points where they are differentiable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::test {

using Arrays = std::vector<Array>;

struct Case {
  std::string name;
  std::vector<Shape> shapes;  ///< of the arguments
  std::function<Array(const Arrays&)> f;
  double low = -2, high = 2;
  bool only_f32 = false;  ///< f64 is not supported: compared with differences in f32, to 1e-2
  bool once = false;      ///< has no second derivative
};

/// All cases below.
std::vector<Case> grad_cases();
/// Cases for array.h, products and transformer operations; and for array/functions.h, convolution.h and attention.h.
std::vector<Case> array_cases();
std::vector<Case> function_cases();

}  // namespace tessera::test
