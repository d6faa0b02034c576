// SPDX-License-Identifier: Apache-2.0
// How do I pass structs to a kernel?
// A Buffer<S> has the same layout as a vector of S. Fields are accessed by member pointers.
#include <tessera/kernel/buffer.h>
#include <tessera/kernel/kernel.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

struct Particle {
  float height, speed;
  std::int32_t bounces;
};

const auto fall = kernel("fall", [](Buffer<Particle> particles, Val<float> dt) {
  auto p = particles[global_id()];  // a reference: each p[...] reads or writes memory
  p[&Particle::speed] -= 9.81f * dt;
  p[&Particle::height] += dt * p[&Particle::speed];
  if_(p[&Particle::height] < 0, [&] {
    p[&Particle::height] = -p[&Particle::height];
    p[&Particle::speed] = -0.8f * p[&Particle::speed];
    p[&Particle::bounces] += 1;
  });
});

int main() {
  std::vector<Particle> particles;
  for (int i = 0; i < 1000; ++i) particles.push_back({.height = 1.0f + 0.001f * i, .speed = 0, .bounces = 0});
  DeviceBuffer<Particle> buffer(particles);
  for (int step = 0; step < 200; ++step) fall.launch({particles.size()}, buffer, 0.01f);

  const std::vector<Particle> after = buffer.to_vector();
  Particle p = particles.back();
  for (int step = 0; step < 200; ++step) {
    p.speed -= 0.0981f, p.height += 0.01f * p.speed;
    if (p.height < 0) p = {-p.height, -0.8f * p.speed, p.bounces + 1};
  }
  std::printf("after 2 s the last particle is %.2f m high and has bounced %d times\n",
              static_cast<double>(after.back().height), after.back().bounces);
  return after.back().bounces == p.bounces && std::abs(after.back().height - p.height) < 1e-2f ? 0 : 1;
}

// Output:
// after 2 s the last particle is 0.83 m high and has bounced 2 times
