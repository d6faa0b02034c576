// SPDX-License-Identifier: Apache-2.0
// mistake 1: a kernel's parameters must have explicit types, not auto
// mistake 2: a kernel's parameters must be taken by value: Buffer<T>, View<T, n> or Val<T>, without &
// mistake 3: a kernel's parameters must be Buffer<T>, View<T, n> or Val<T>; host data is not visible in a kernel
// mistake 4: a kernel must return void: it writes its results to buffers
// mistake 5: a buffer's elements must be bool, std::int8_t to std::uint64_t, half, bfloat16, float or double
#include <vector>

#include "tessera/kernel/kernel.h"
using namespace tessera;

void plain_function(Buffer<float> x) { x[global_id()] = 1; }

#if MISTAKE == 1
auto k = kernel("k", [](auto x) { x[global_id()] = 1; });
#elif MISTAKE == 2
auto k = kernel("k", [](const Buffer<float>& x) { x[global_id()] = 1; });
#elif MISTAKE == 3
auto k = kernel("k", [](Buffer<float> x, std::vector<float> y) { x[global_id()] = y[0]; });
#elif MISTAKE == 4
auto k = kernel("k", [](Buffer<float> x) { return x[0]; });
#elif MISTAKE == 5
auto k = kernel("k", [](Buffer<Index> x) { x[0] = 1; });
#else
auto k = kernel("k", [](Buffer<float> x) { x[global_id()] = 1; });
auto l = kernel("l", plain_function);
#endif
