// SPDX-License-Identifier: Apache-2.0
// clang-format off
// mistake 1: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 2: this buffer is read-only in this kernel: declare it Buffer<T>
// mistake 3: a struct is not a value: use one of its fields, such as b[i][&S::mass]
// mistake 4: structs are stored field by field: b[i][&S::mass] = ...
// mistake 5: fields that a kernel accesses must be std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float or
// mistake 6: this field belongs to a different struct than the buffer's
// mistake 7: this struct cannot be a buffer's element: it is not trivially copyable
// mistake 8: this struct cannot be a buffer's element: it is not a standard-layout type
// mistake 9: this struct cannot be a buffer's element: its size and field offsets must be multiples of 4
// mistake 10: this struct cannot be a buffer's element: it is not an aggregate
// mistake 11: this struct cannot be a buffer's element: it has no fields
// mistake 12: this struct cannot be a buffer's element: it is not trivially copyable
// mistake 13: this kernel takes:
// mistake 14: this kernel writes to one of its buffers, but that argument is const
// mistake 15: operands have different types: use cast<T>(...)
// mistake 16: this name is the value that was read, not the element: to store, write b[i] = ...
// mistake 17: a struct is not a value: use one of its fields, such as b[i][&S::mass]
// clang-format on
#include <string>

#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
using namespace tessera;

struct Particle {
  float x, v;
  std::int32_t hits;
  bool alive;
};
struct Other {
  float x;
};
struct Named {
  std::string name;
};
struct Derived : Other {
  float y;
};
struct Packed {
  std::uint16_t a, b, c;
};
struct Constructed {
  Constructed(float v) : x(v) {}
  float x;
};
struct Empty {};

auto move = kernel("move", [](Buffer<Particle> p, Buffer<const Particle> q, Buffer<float> y) {
  auto i = global_id();
  auto read = p[i][&Particle::x];
#if MISTAKE == 1
  q[i][&Particle::x] = 1;
#elif MISTAKE == 2
  q[i][&Particle::x] += y[i];
#elif MISTAKE == 3
  y[i] = p[i];
#elif MISTAKE == 4
  p[i] = q[i];
#elif MISTAKE == 5
  if_(p[i][&Particle::alive], [&] { y[i] = 1; });
#elif MISTAKE == 6
  p[i][&Other::x] = 1;
#elif MISTAKE == 15
  p[i][&Particle::hits] = y[i];
#elif MISTAKE == 16
  read = 1.0f;
#elif MISTAKE == 17
  y[i] = p[i] + y[i];
#else
  p[i][&Particle::x] = read + 1;
  p[i][&Particle::x] += y[i];
  p[i][&Particle::x] = q[i][&Particle::x];
  p[i][&Particle::hits] = cast<int>(y[i]);
  if_(p[i][&Particle::hits] != 0, [&] { y[i] = p[i][&Particle::v] + 1; });
#endif
});

#if MISTAKE == 7
auto k = kernel("k", [](Buffer<Named>) {});
#elif MISTAKE == 8
auto k = kernel("k", [](Buffer<const Derived>) {});
#elif MISTAKE == 9
auto k = kernel("k", [](Buffer<Packed>) {});
#elif MISTAKE == 10
auto k = kernel("k", [](Buffer<Constructed>) {});
#elif MISTAKE == 11
auto k = kernel("k", [](Buffer<const Empty>) {});
#elif MISTAKE == 12
DeviceBuffer<Named> named(3);
#else
auto k = kernel("k", [](Buffer<Other>, Buffer<const Particle>) {});
DeviceBuffer<Other> others(3);
#endif

void run(DeviceBuffer<Particle>& p, const DeviceBuffer<Particle>& q, DeviceBuffer<float>& y,
         DeviceBuffer<std::uint32_t>& words) {
#if MISTAKE == 13
  move.launch({3}, words, q, y);
#elif MISTAKE == 14
  move.launch({3}, q, q, y);
#else
  move.launch({3}, p, q, y);
  move.launch({3}, words.view(), q, y);
#endif
}
