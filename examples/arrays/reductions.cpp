// SPDX-License-Identifier: Apache-2.0
// How do I reduce along an axis?
// Reductions take a list of axes. With keep = true the result can be broadcast with the original array.
#include <tessera/array/functions.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Array x = Array::from({3.f, 1.f, 2.f, 9.f, 7.f, 8.f}, Shape{2, 3});
  const auto show = [](const char* name, const Array& a) { std::printf("%-12s %s\n", name, to_string(a).c_str()); };
  show("all", sum(x));
  show("columns", sum(x, {0}));
  show("rows", sum(x, {1}));
  show("largest", max(x, {1}));
  show("position", argmax(x, 1));
  show("cumulative", cumsum(x, 1));
  show("deviation", stddev(x, {1}));

  const Array normalised = (x - mean(x, {1}, true)) / stddev(x, {1}, 1, true);
  show("normalised", normalised);
  return sum(x).item<float>() == 30 && argmax(x, 1).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0} &&
                 max(abs(mean(normalised, {1}))).item<float>() < 1e-6f
             ? 0
             : 1;
}

// Output:
// all          array(30, f32, ...)
// columns      array([12,  8, 10], f32, ...)
// rows         array([ 6, 24], f32, ...)
// largest      array([3, 9], f32, ...)
// position     array([0, 0], i64, ...)
// cumulative   array([[ 3,  4,  6],
//        [ 9, 16, 24]], f32, ...)
// deviation    array([1, 1], f32, ...)
// normalised   array([[ 1, -1,  0],
//        [ 1, -1,  0]], f32, ...)
