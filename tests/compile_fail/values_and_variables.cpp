// SPDX-License-Identifier: Apache-2.0
// mistake 1: a Val is immutable: declare it Var<T>
// mistake 2: a Val is immutable: declare it Var<T>
// mistake 3: a Val is immutable: declare it Var<T>
// mistake 4: this name is the value that was read, not the element: to store, write b[i] = ...
// mistake 5: 16-bit floats can only be stored in buffers: use Var<float>
// mistake 6: this operator takes numbers: convert a bool with cast<T>(...) or select(cond, a, b)
// mistake 7: &&, || and ! take bools: compare first, as in x != 0
// mistake 8: this function takes floats: use cast<float>(...)
// mistake 9: a subscript must be an integer: use cast<Index>(...)
// mistake 10: the body of for_ takes the counter, which has the bounds' type: [&](Val<Index> i) { ... }
// mistake 11: this operator takes integers: use cast<T>(...) or bitcast<T>(...)
#include "tessera/kernel/kernel.h"
using namespace tessera;

auto k = kernel("k", [](Buffer<float> x, Buffer<int> n, Val<float> f) {
  auto i = global_id();
  Val<float> v = 1.0f;
  auto here = x[i];
#if MISTAKE == 1
  v = f;
#elif MISTAKE == 2
  v += 1;
#elif MISTAKE == 3
  v = 2.0f;
#elif MISTAKE == 4
  here = f;
#elif MISTAKE == 5
  Var<half> h = 1.0f;
#elif MISTAKE == 6
  n[i] = cast<int>((v < f) + (f < v));
#elif MISTAKE == 7
  if_(i && n[i], [&] { x[i] = 1; });
#elif MISTAKE == 8
  x[i] = exp(n[i]);
#elif MISTAKE == 9
  x[v] = 1;
#elif MISTAKE == 10
  for_(0, 4, [&](Val<int> j) { n[j] = 1; });
#elif MISTAKE == 11
  x[i] = f & 3;
#else
  Var<float> h = f;
  h = v, h += 1, h = 2.0f;
  x[i] = here + h;
  n[i] = select(v < f, 1, 0) + cast<int>(f < v);
  if_(i != 0 && n[i] != 0, [&] { x[i] = exp(cast<float>(n[i])); });
  x[cast<Index>(v)] = 1;
  for_(0, 4, [&](Val<Index> j) { n[j] = 1; });
  n[i] = bitcast<int>(f) & 3;
#endif
});
