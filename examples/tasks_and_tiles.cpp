// SPDX-License-Identifier: Apache-2.0
// Tasks that say what they read and write, and an array in tiles, on all the devices that OpenCL has and the CPU.
#include <tessera/tessera.h>

#include <cstdio>
#include <vector>

using namespace tessera;

void compute(const Scope& devices, std::vector<Array>& parts, Array& total) {
  Region r({.scope = devices});
  for (Array& x : parts) {
    r.spawn([](Array& v) { v *= 2; }, inout(x));                             // at once
    r.spawn([](const Array& v, Array& s) { s += v; }, in(x), inout(total));  // in turn
  }
  r.wait();
}

BlockArray factor(const Scope& devices) {
  BlockArray a = BlockArray::random_normal({512, 512}, {128, 128}, 1, devices);
  return cholesky(matmul(a, transpose(a)) + 512 * BlockArray::identity(512, {128, 128}, DType::f32, devices));
}

int main() {
  const Scope devices = can_compute(Backend::opencl) ? opencl(all) | cpu() : cpu();
  std::vector<Array> parts(8);
  for (Array& x : parts) x = Array::ones({1000});
  Array total = Array::zeros({1000});
  compute(devices, parts, total);
  const float all_of_them = sum(total).item<float>();
  std::printf("sum %.0f\n%s\n", static_cast<double>(all_of_them), factor(devices).where().c_str());
  return all_of_them == 16000 ? 0 : 1;
}
