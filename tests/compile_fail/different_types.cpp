// SPDX-License-Identifier: Apache-2.0
// mistake 1: operands have different types: use cast<T>(...)
// mistake 2: operands have different types: use cast<T>(...)
// mistake 3: operands have different types: use cast<T>(...)
// mistake 4: operands have different types: use cast<T>(...)
// mistake 5: operands have different types: use cast<T>(...)
// mistake 6: operands have different types: use cast<T>(...)
// mistake 7: operands have different types: use cast<T>(...)
// mistake 8: operands have different types: use cast<T>(...)
#include "tessera/kernel/kernel.h"
using namespace tessera;

auto k = kernel("k", [](Buffer<float> x, Buffer<half> h, Val<float> f, Val<int> n) {
  auto i = global_id();
  Var<float> sum = 0.0f;
#if MISTAKE == 1
  x[i] = f + n;
#elif MISTAKE == 2
  x[i] = cast<float>(i * 0.5f);
#elif MISTAKE == 3
  sum += i;
#elif MISTAKE == 4
  if_(i < n, [&] { x[i] = 1; });
#elif MISTAKE == 5
  x[i] = max(sum, n);
#elif MISTAKE == 6
  x[i] = n;
#elif MISTAKE == 7
  x[i] = select(i > 0, f, n);
#elif MISTAKE == 8
  x[i] += n;
#else
  x[i] = f + cast<float>(n);
  x[i] = 0.5f * cast<float>(i);
  sum += cast<float>(i);
  if_(i < cast<Index>(n), [&] { x[i] = 1; });
  x[i] = max(sum, 2);
  x[i] = h[i] + f * h[i] + 2;  // 16-bit floats are computed as float
  h[i] = sum * 1.5;  // and are rounded when they are stored
#endif
});
