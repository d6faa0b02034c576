// SPDX-License-Identifier: Apache-2.0
// mistake 1: the result of an atomic must be named before it is used: auto old = atomic_add(b, i, v);
// mistake 2: the result of an atomic must be named before it is used: auto old = atomic_add(b, i, v);
// mistake 3: the result of an atomic must be named before it is used: auto old = atomic_add(b, i, v);
// mistake 4: the result of an atomic must be named before it is used: auto old = atomic_add(b, i, v);
// mistake 5: atomics support std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float and double
#include "tessera/kernel/kernel.h"
using namespace tessera;

auto k = kernel("k", [](Buffer<int> b, Buffer<std::uint8_t> d) {
  auto i = global_id();
#if MISTAKE == 1
  b[i] = atomic_add(b, 0, 1) + atomic_add(b, 1, 1);
#elif MISTAKE == 2
  b[atomic_add(b, 0, 1)] = 5;
#elif MISTAKE == 3
  b[i] = atomic_add(b, 0, 1);
#elif MISTAKE == 4
  b[i] = max(atomic_add(b, 0, 1), 4);
#elif MISTAKE == 5
  atomic_add(d, 0, 1);
#else
  auto first = atomic_add(b, 0, 1);
  Val<int> second = atomic_cas(b, 1, 0, first);
  Var<int> third = atomic_load(b, 3), fourth;
  fourth = atomic_add(b, 4, third);
  third += fourth;
  b[first] = max(first, 4) + second + first;
  atomic_max(b, 2, 1);
  d[i] = 1;
#endif
});
