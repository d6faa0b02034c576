// SPDX-License-Identifier: Apache-2.0
// How do I write tasks that share data?
// In a Region, tasks declare what they read and write. They behave as if run in order, but may run in parallel.
#include <tessera/task/block_array.h>
#include <tessera/task/region.h>
#include <tessera/task/scope.h>

#include <cstdio>
#include <vector>

using namespace tessera;

void compute(const Scope& devices, std::vector<Array>& parts, Array& total) {
  Region r({.scope = devices});
  for (Array& x : parts) {
    r.spawn([](Array& v) { v *= 2; }, inout(x));                             // these run in parallel
    r.spawn([](const Array& v, Array& s) { s += v; }, in(x), inout(total));  // these run one after another
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
  const float sum_of_all = sum(total).item<float>();
  std::printf("sum %.0f\n%s\n", static_cast<double>(sum_of_all), factor(devices).where().c_str());
  return sum_of_all == 16000 ? 0 : 1;
}

// Output:
// sum 16000
// (512, 512) f32 in tiles of (128, 128):
//   cpu:0: (0, 0) ...
// ...
