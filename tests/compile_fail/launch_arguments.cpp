// SPDX-License-Identifier: Apache-2.0
// mistake 1: this kernel takes:
// mistake 1: Buffer<const float>, tessera::Buffer<float>, tessera::Val<float>
// mistake 2: this kernel takes:
// mistake 2: Buffer<const float>, tessera::Buffer<float>, tessera::Val<float>
// mistake 3: this kernel takes:
// mistake 3: Buffer<const float>, tessera::Buffer<float>, tessera::Val<float>
// mistake 4: this kernel takes:
// mistake 5: this kernel takes:
// mistake 6: this kernel writes to one of its buffers, but that argument is const
// mistake 7: a map kernel has no blocks: launch it with {n}
// mistake 8: this kernel takes:
// mistake 9: the first argument of a launch is the number of threads
// mistake 10: the first argument of a launch is the number of threads
#include <vector>

#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
using namespace tessera;

auto saxpy = kernel("saxpy", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
  auto i = global_id();
  y[i] = a * x[i] + y[i];
});
auto count = kernel("count", block(64), [](Buffer<int> x, Val<Index> n) {
  auto i = global_id();
  if_(i < n, [&] { x[i] = 1; });
});

void run(const DeviceBuffer<float>& x, DeviceBuffer<float>& y, DeviceBuffer<int>& z, std::vector<float> host, long n) {
#if MISTAKE == 1
  saxpy.launch({n}, x, y);
#elif MISTAKE == 2
  saxpy.launch({n}, x, 2.0f, y);
#elif MISTAKE == 3
  saxpy.launch({n}, host, y, 2.0f);
#elif MISTAKE == 4
  saxpy.launch({n}, x, z, 2.0f);
#elif MISTAKE == 5
  count.launch({n}, z, 2.5);
#elif MISTAKE == 6
  saxpy.launch({n}, x, x, 2.0f);
#elif MISTAKE == 7
  saxpy.launch(blocks(n), x, y, 2.0f);
#elif MISTAKE == 8
  count.launch({n}, z, slot(0, 2.5f));
#elif MISTAKE == 9
  saxpy.launch(x, y, 2.0f);
#elif MISTAKE == 10
  count.launch(2.5, z, 7);
#else
  saxpy.launch(n, x, y, 2.0f);
  saxpy.launch({n}, x, y, slot(0, 2.0f));
  saxpy.launch({n}, x, y, 2.0f);
  saxpy.launch({n}, x, y, 2);
  saxpy.launch({n}, x.view(), y.view(), 2.0);
  count.launch({n}, z, n);
  count.launch(blocks(n), z, 7u);
  count.launch_on(Queue::of(z.device()), blocks(n), z, 7);
#endif
  (void)host;
}
