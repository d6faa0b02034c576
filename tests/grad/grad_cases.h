// SPDX-License-Identifier: Apache-2.0
// Functions of arrays to differentiate, with points at which they are differentiable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::test {

using Arrays = std::vector<Array>;

struct Case {
  std::string name;
  std::vector<Shape> shapes;  ///< shapes of the arguments
  std::function<Array(const Arrays&)> f;
  double low = -2, high = 2;
  bool only_f32 = false;  ///< f64 is not supported, so the gradient is compared with differences in f32, to 1e-2
  bool once = false;      ///< the function has no second derivative
};

/// Returns all cases below.
std::vector<Case> grad_cases();
/// The parts of grad_cases. The first covers array.h, products and transformer operations. The second covers
/// array/functions.h, convolution.h and attention.h. The third covers linalg/linalg.h.
std::vector<Case> array_cases();
std::vector<Case> function_cases();
std::vector<Case> linalg_cases();

}  // namespace tessera::test
