// SPDX-License-Identifier: Apache-2.0
// Functions of arrays to differentiate, at points where they have a derivative.
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
  bool only_f32 = false;  ///< no f64 is taken: differences of f32, to 1e-2
  bool once = false;      ///< there is no second derivative
};

/// All of the tables below.
std::vector<Case> grad_cases();
/// Of array.h, products and the operations of transformers; of array/functions.h, convolution.h and attention.h.
std::vector<Case> array_cases();
std::vector<Case> function_cases();

}  // namespace tessera::test
