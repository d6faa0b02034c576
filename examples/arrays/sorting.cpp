// SPDX-License-Identifier: Apache-2.0
// How do I sort, find the k largest, or remove duplicates?
#include <tessera/array/functions.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Array scores = Array::from({0.3f, 2.5f, -1.f, 2.5f, 0.f});
  std::printf("sorted     %s\n", to_string(sort(scores)).c_str());
  std::printf("positions  %s\n", to_string(argsort(scores)).c_str());  // stable: equal elements keep their order
  std::printf("distinct   %s\n", to_string(unique(scores)).c_str());

  const Array top = flip(argsort(scores)).slice(0, 0, 2);  // the positions of the 2 largest elements
  std::printf("2 largest  %s at %s\n", to_string(take(scores, top)).c_str(), to_string(top).c_str());

  // Sorts each row of a matrix, and applies the same order to the rows of another array.
  const Array keys = Array::from({3, 1, 2, 6, 5, 4}, Shape{2, 3});
  const Array values = keys * 10;
  const Array sorted = take_along_axis(values, argsort(keys, 1), 1);
  std::printf("%s\n", to_string(sorted).c_str());
  return sorted.to_vector<int>() == std::vector<int>{10, 20, 30, 40, 50, 60} &&
                 take(scores, top).to_vector<float>() == std::vector<float>{2.5f, 2.5f}
             ? 0
             : 1;
}

// Output:
// sorted     array([ -1,   0, 0.3, 2.5, 2.5], f32, ...)
// positions  array([2, 4, 0, 1, 3], i64, ...)
// distinct   array([ -1,   0, 0.3, 2.5], f32, ...)
// 2 largest  array([2.5, 2.5], f32, ...) at array([3, 1], i64, cpu:0)
// array([[10, 20, 30],
//        [40, 50, 60]], i32, ...)
