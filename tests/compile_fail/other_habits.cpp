// SPDX-License-Identifier: Apache-2.0
// Code in the style of CUDA, Kokkos, NumPy or the standard library that does not work in kernels.
// clang-format off
// mistake 1: swap elements through a value: auto a = x[i]; x[i] = x[j]; x[j] = a;
// mistake 2: as a function's argument: kernels have their own functions, without std::
// mistake 3: as a function's argument: kernels have their own functions, without std::
// mistake 4: as a function's argument: kernels have their own functions, without std::
// mistake 5: as a function's argument: kernels have their own functions, without std::
// mistake 6: as a function's argument: kernels have their own functions, without std::
// mistake 7: as a function's argument: kernels have their own functions, without std::
// mistake 8: kernels have their own functions, without std::, such as max(a, b)
// mistake 9: kernels have their own functions, without std::, such as min(a, b)
// mistake 10: kernels have their own functions, without std::, such as min(max(x, low), high)
// mistake 11: kernels have their own functions, without std::, such as popcount(n)
// mistake 12: in kernels use bitcast<T>(x)
// mistake 13: in kernels a function has one name for all types: sqrt(x), abs(x), min(a, b)
// mistake 14: in kernels a function has one name for all types: sqrt(x), abs(x), min(a, b)
// mistake 15: in kernels a function has one name for all types: sqrt(x), abs(x), min(a, b)
// mistake 16: operands have different types: use cast<T>(...)
// mistake 17: elements have no address: read with auto v = x[i], write with x[i] = v
// mistake 18: elements have no address: read with auto v = x[i], write with x[i] = v
// mistake 19: elements have no address: read with auto v = x[i], write with x[i] = v
// mistake 20: elements have no address: read with auto v = x[i], write with x[i] = v
// mistake 21: a number has no elements: index two-dimensional memory as t(row, column)
// mistake 22: access elements as x[i], or as x[row * width + column] in a buffer of rows
// mistake 23: memory needs a size: Shared<float> t(64), or in two dimensions t(rows, columns)
// mistake 24: memory needs a size: Shared<float> t(64), or in two dimensions t(rows, columns)
// mistake 25: kernels have no pointers: atomics take the memory and the index, atomic_add(x, i, v)
// mistake 26: a buffer is not a pointer: its first element is x[0]
// mistake 27: a buffer is not a pointer: the next element is x[i + 1]
// mistake 28: atomics take the memory and the index, not the element: atomic_add(x, i, v)
// mistake 29: atomic_cas takes the expected and the new value: atomic_cas(x, i, expected, v)
// mistake 30: a buffer is assigned element by element: x[i] = ...
// mistake 31: to loop over elements, use for_(0, x.size(), [&](Val<Index> i) { ... x[i] ... })
// mistake 32: if_ takes its body as a function
// mistake 33: if_ takes its body as a function
// mistake 34: the condition of if_ must be a value, not a function
// mistake 35: a body must not return a value: store it in a Var
// mistake 36: while_ takes its condition and its body as functions
// mistake 37: for_ takes its begin and end: for_(0, n, [&](Val<Index> i) { ... });
// mistake 38: this Var is const: [=] captures a copy, so capture by reference
// mistake 39: this Var is const: [=] captures a copy, so capture by reference
// mistake 40: this Var is const: [=] captures a copy, so capture by reference
// mistake 41: a body must not be a mutable lambda: [=] captures copies, so capture by reference
// mistake 42: a Val is immutable: declare it Var<T>
// mistake 43: a Val is immutable: declare it Var<T>
// mistake 44: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 45: this name is the value that was read, not the element: to store, write b[i] = ...
// mistake 46: this name is the value that was read, not the element: to store, write b[i] = ...
// mistake 47: a Val must be initialised and is immutable: declare it Var<T>
// mistake 48: operands have different types: use cast<T>(...)
// mistake 49: operands have different types: use cast<T>(...)
// mistake 50: T in Val<T> must be bool, std::int8_t to std::uint64_t, half, bfloat16, float, double or Index
// mistake 51: this operation takes a kernel value: give the number a type, Val<int>(1)
// mistake 52: cast converts kernel values: for a number write Val<T>(number), or static_cast<T>(number)
// mistake 53: in kernels use print(
// mistake 54: print takes a format first, with {} for each value
// mistake 55: print takes numbers and text: pass an element such as x[i]
// mistake 56: a traced value is not a C++ number
// mistake 57: &&, || and ! take bools: compare first, as in x != 0
// mistake 58: &&, || and ! take bools: compare first, as in x != 0
// mistake 59: a traced value is not a C++ bool
// mistake 60: a traced value is not a C++ number
// mistake 61: a traced value is not a C++ number
// mistake 62: a traced value is not a C++ number
// mistake 63: a traced value is not a C++ number
// mistake 64: a traced value is not a C++ number
// clang-format on
#include <algorithm>
#include <bit>
#include <cmath>
#include <iostream>
#include <vector>

#include "tessera/kernel/kernel.h"
using namespace tessera;

struct P {
  float a, b;
};
auto halve(Val<float> v) { return v / 2; }

auto k = kernel("k", block(64), [](Buffer<float> x, Buffer<const float> c, Buffer<int> n, Val<float> f, Val<Index> w) {
  auto i = global_id();
  Var<float> sum = 0.0f;
  Shared<float> t(32, 33);
  auto here = x[i];
  // clang-format off
#if MISTAKE == 1
  std::swap(x[i], x[0]);
#elif MISTAKE == 2
  x[i] = std::sin(x[i]);
#elif MISTAKE == 3
  x[i] = std::abs(f);
#elif MISTAKE == 4
  x[i] = std::pow(f, 2);
#elif MISTAKE == 5
  n[i] = std::abs(n[i]);
#elif MISTAKE == 6
  x[i] = std::fma(x[i], f, f);
#elif MISTAKE == 7
  x[i] = std::isnan(f) ? 1 : 0;
#elif MISTAKE == 8
  x[i] = std::max(x[i], 0.0f);
#elif MISTAKE == 9
  x[i] = std::min(f, f);
#elif MISTAKE == 10
  x[i] = std::clamp(x[i], 0.0f, 1.0f);
#elif MISTAKE == 11
  n[i] = std::popcount(n[i]);
#elif MISTAKE == 12
  n[i] = std::bit_cast<int>(f);
#elif MISTAKE == 13
  x[i] = sqrtf(x[i]);
#elif MISTAKE == 14
  x[i] = fmaxf(x[i], 0.0f);
#elif MISTAKE == 15
  x[i] = fabs(f);
#elif MISTAKE == 16
  x[i] = min(x[i], n[i]);
#elif MISTAKE == 17
  x[i] = x[i].load();
#elif MISTAKE == 18
  x[i].store(1.0f);
#elif MISTAKE == 19
  x[i] = x.load(i);
#elif MISTAKE == 20
  x.store(i, 1.0f);
#elif MISTAKE == 21
  x[i] = t[1][2];
#elif MISTAKE == 22
  x[i] = x(i, 0);
#elif MISTAKE == 23
  Shared<float> u;
#elif MISTAKE == 24
  LocalArray<int> u[4];
#elif MISTAKE == 25
  float* p = &x[i];
#elif MISTAKE == 26
  x[i] = *x;
#elif MISTAKE == 27
  auto p = x + 1;
#elif MISTAKE == 28
  atomic_add(x[i], 1.0f);
#elif MISTAKE == 29
  atomic_cas(n, i, 0);
#elif MISTAKE == 30
  x = 1.0f;
#elif MISTAKE == 31
  for (auto v : x) x[i] = v;
#elif MISTAKE == 32
  if_(i < w, x[i] = 1.0f);
#elif MISTAKE == 33
  if_(x[i] > 0, [&](Val<Index> j) { x[j] = 1; });
#elif MISTAKE == 34
  if_([&] { return x[i] > 0; }, [&] { x[i] = 1; });
#elif MISTAKE == 35
  if_(x[i] > 0, [&] { return x[i]; });
#elif MISTAKE == 36
  while_(n[i] < 4, [&] { n[i] += 1; });
#elif MISTAKE == 37
  for_(w, [&](Val<Index> j) { x[j] = 1; });
#elif MISTAKE == 38
  if_(x[i] > 0, [=] { sum = 1; });
#elif MISTAKE == 39
  for_(0, 4, [=](Val<Index>) { sum += 1; });
#elif MISTAKE == 40
  if_(x[i] > 0, [=] { ++sum; });
#elif MISTAKE == 41
  if_(x[i] > 0, [=]() mutable { sum = 1; });
#elif MISTAKE == 42
  i++;
#elif MISTAKE == 43
  ++f;
#elif MISTAKE == 44
  c[i]++;
#elif MISTAKE == 45
  here += 1;
#elif MISTAKE == 46
  here++;
#elif MISTAKE == 47
  Val<float> later; later = x[i];
#elif MISTAKE == 48
  Val<float> v = n[i];
#elif MISTAKE == 49
  x[i] = halve(n[i]);
#elif MISTAKE == 50
  Val<P> v = x[i];
#elif MISTAKE == 51
  x[i] = block_sum(1);
#elif MISTAKE == 52
  x[i] = cast<float>(1);
#elif MISTAKE == 53
  printf("%d", n[i]);
#elif MISTAKE == 54
  print(n[i]);
#elif MISTAKE == 55
  print("{}", x);
#elif MISTAKE == 56
  std::cout << x[i];
#elif MISTAKE == 57
  x[i] = x[i] > 0 && f;
#elif MISTAKE == 58
  if_(!n[i], [&] { x[i] = 1; });
#elif MISTAKE == 59
  x[i] = x[i] > 0 ? x[i] : 0.0f;
#elif MISTAKE == 60
  float s = x[i];
#elif MISTAKE == 61
  x[i] = static_cast<float>(n[i]);
#elif MISTAKE == 62
  std::vector<float> v(4); v[i] = 1;
#elif MISTAKE == 63
  switch (n[i]) { default: x[i] = 1; }
#elif MISTAKE == 64
  LocalArray<float> u(n[i]);
#else
  // clang-format on
  auto a = x[i];
  x[i] = x[0];
  x[0] = a;
  x[i] = sqrt(abs(f)) + pow(f, 2) + fma(x[i], f, f) + max(x[i], 0.0f) + halve(cast<float>(n[i])) + c[i];
  n[i] = popcount(n[i]) + bitcast<int>(f);
  t(1, i) = x[i];
  x[i] = t(i % 32, 2) + t[i];
  atomic_add(x, i, 1.0f);
  if_(i >= w, [&] { return_(); });
  if_(x[i] > 0, [&] { sum = 1; });
  while_([&] { return n[i] < 4; }, [&] { n[i]++; });
  for_(0, w, [&](Val<Index> j) { x[j]++; });
  Var s = here;  // a float
  s++, ++s, sum--;
  std::swap(s, sum);  // variables are swapped as in C++
  x[i] = x[0] = s;
  Val<bool> positive = subgroup_broadcast(x[i] > 0, 0);
  if_(positive && n[i] != 0, [&] { print("{} {:.3} {} {}", n[i], x[i], "text", 3); });
#endif
});
