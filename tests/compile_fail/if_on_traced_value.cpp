// SPDX-License-Identifier: Apache-2.0
// clang-format off
// mistake 1: a traced value is not a C++ bool: use if_(cond, [&]{ ... }) or select(cond, a, b); for loops for_(begin, end, body) or while_(cond, body)
// mistake 2: a traced value is not a C++ bool: use if_(cond, [&]{ ... }) or select(cond, a, b); for loops for_(begin, end, body) or while_(cond, body)
// mistake 3: a traced value is not a C++ bool: use if_(cond, [&]{ ... }) or select(cond, a, b); for loops for_(begin, end, body) or while_(cond, body)
// mistake 4: a traced value is not a C++ bool: use if_(cond, [&]{ ... }) or select(cond, a, b); for loops for_(begin, end, body) or while_(cond, body)
// mistake 5: kernels have their own functions, without std::, such as max(a, b)
// clang-format on
#include <algorithm>

#include "tessera/kernel/kernel.h"
using namespace tessera;

auto k = kernel("k", [](Buffer<const float> x, Buffer<float> y) {
  auto i = global_id();
#if MISTAKE == 1
  if (x[i] < y[i]) y[i] = x[i];
#elif MISTAKE == 2
  Var<bool> smaller = x[i] < y[i];
  while (smaller) smaller = false;
#elif MISTAKE == 3
  y[i] = (x[i] < y[i] && i > 3) ? x[i] : y[i];
#elif MISTAKE == 4
  for (int j = 0; j < x.size(); ++j) y[i] += x[j];
#elif MISTAKE == 5
  Val<float> a = x[i], b = y[i];
  y[i] = std::max(a, b);
#else
  if_(x[i] < y[i], [&] { y[i] = x[i]; });
  Var<bool> smaller = x[i] < y[i];
  while_([&] { return smaller.get(); }, [&] { smaller = false; });
  y[i] = select(x[i] < y[i] && i > 3, x[i], y[i]);
  for_(0, x.size(), [&](Val<Index> j) { y[i] += x[j]; });
  y[i] = max(x[i], y[i]);
#endif
});
