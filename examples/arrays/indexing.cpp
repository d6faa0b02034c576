// SPDX-License-Identifier: Apache-2.0
// How do I slice, gather, scatter and mask?
// Slices are views. take() and masked_select() copy. scatter() and scatter_add() return a new array.
#include <tessera/array/functions.h>

#include <cstdio>

using namespace tessera;

int main() {
  Array table = Array::arange(12).reshape({4, 3});
  table.slice(0, 1, 2).fill(-1);                                 // writes row 1 of the table
  table.select(1, 2).assign(Array::from({7.f, 7.f, 7.f, 7.f}));  // writes column 2
  std::printf("%s\n", to_string(table).c_str());

  const Array rows = take(table, Array::from({3, 0, 3}));
  std::printf("%s\n", to_string(rows).c_str());

  const Array positive = masked_select(table, table > 6);
  std::printf("%s\n", to_string(positive).c_str());
  const Array clipped = where(table > 6, 6, table);

  // Counts labels. Updates with equal indices are added in order, so the result is the same in every run.
  const Array labels = Array::from({2, 0, 2, 1, 2});
  const Array counts = scatter_add(Array::zeros({3}), labels, Array::ones({5}));
  std::printf("%s\n", to_string(counts).c_str());
  return counts.to_vector<float>() == std::vector<float>{1, 1, 3} && max(clipped).item<float>() == 6 &&
                 rows.shape() == Shape{3, 3} && positive.size() == 7
             ? 0
             : 1;
}

// Output:
// array([[ 0,  1,  7],
//        [-1, -1,  7],
//        [ 6,  7,  7],
//        [ 9, 10,  7]], f32, ...)
// array([[ 9, 10,  7],
//        [ 0,  1,  7],
//        [ 9, 10,  7]], f32, ...)
// array([ 7,  7,  7,  7,  9, 10,  7], f32, ...)
// array([1, 1, 3], f32, ...)
