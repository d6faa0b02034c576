// SPDX-License-Identifier: Apache-2.0
// mistake 1: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 2: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 3: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 4: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 5: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 6: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 7: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 8: host data is not visible in a kernel: pass it as a Buffer argument
// mistake 9: host data is not visible in a kernel: pass it as a Buffer argument
#include <array>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
using namespace tessera;

void make(std::vector<float> table, std::array<float, 4> weights, const Array& array, DeviceBuffer<float>& buffer) {
  float plain[4] = {1, 2, 3, 4};
  auto k = kernel("k", [&](Buffer<float> x, Buffer<const float> data) {
    auto i = global_id();
#if MISTAKE == 1
    x[i] = table[i];
#elif MISTAKE == 2
    x[i] = weights[i % 4];
#elif MISTAKE == 3
    x[i] = plain[i];
#elif MISTAKE == 4
    x[i] = x[i] + array;
#elif MISTAKE == 5
    x[i] = array * x[i];
#elif MISTAKE == 6
    x[i] = table;
#elif MISTAKE == 7
    x[i] += buffer;
#elif MISTAKE == 8
    x[i] = max(x[i], weights);
#elif MISTAKE == 9
    x[i] = array;
#else
    x[i] = data[i] + table[2] * weights[1] + plain[0];  // host numbers become constants
#endif
  });
  k.launch({4}, buffer, buffer);
  (void)array;
}
