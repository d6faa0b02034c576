// SPDX-License-Identifier: Apache-2.0
// How do I combine arrays of different shapes?
// Shapes broadcast as in NumPy: axes are aligned at the end, and an axis of size 1 is repeated.
#include <tessera/array/array.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Array grid = Array::arange(6).reshape({2, 3});
  const Array row = Array::from({10.f, 20.f, 30.f});              // (3,) broadcasts to (2, 3): added to each row
  const Array column = Array::from({100.f, 200.f}, Shape{2, 1});  // (2, 1): added to each column
  const Array all = grid + row + column;
  std::printf("%s\n", to_string(all).c_str());

  // All pairs: the result of (4, 1) and (1, 3) is (4, 3).
  const Array x = Array::arange(4).unsqueeze(1), y = Array::arange(3).unsqueeze(0);
  const Array distances = abs(x - y);
  std::printf("%s\n", to_string(distances).c_str());

  bool refused = false;
  try {
    grid + Array::ones({2});  // 3 and 2 do not match
  } catch (const ShapeError& e) {
    std::printf("%s\n", e.what());
    refused = true;
  }
  const bool right = all.to_vector<float>() == std::vector<float>{110, 121, 132, 213, 224, 235};
  return right && distances.shape() == Shape{4, 3} && refused ? 0 : 1;
}

// Output:
// array([[110, 121, 132],
//        [213, 224, 235]], f32, ...)
// array([[0, 1, 2],
//        [1, 0, 1],
//        [2, 1, 0],
//        [3, 2, 1]], f32, ...)
// [+] ...(left = (2, 3), right = (2,))...
