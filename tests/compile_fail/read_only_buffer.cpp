// SPDX-License-Identifier: Apache-2.0
// mistake 1: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 2: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 3: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 4: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 5: this buffer is read-only in this kernel: declare it Buffer<T>
#include "tessera/kernel/kernel.h"
using namespace tessera;

auto k = kernel("k", [](Buffer<const float> x, Buffer<float> y) {
  auto i = global_id();
#if MISTAKE == 1
  x[i] = 2.0f;
#elif MISTAKE == 2
  x[i] = x[i + 1];
#elif MISTAKE == 3
  x[i] *= y[i];
#elif MISTAKE == 4
  x.store(i, y.load<4>(i));
#elif MISTAKE == 5
  atomic_add(x, i, 1);
#else
  y[i] = 2.0f;
  y[i] = y[i + 1];
  y[i] *= x[i];
  y.store(i, x.load<4>(i));
  atomic_add(y, i, 1);
#endif
});
