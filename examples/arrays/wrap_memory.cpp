// SPDX-License-Identifier: Apache-2.0
// How do I use an array over memory that I own, or get a pointer to an array's elements?
// Storage::wrap_host() wraps memory without a copy. host_access() returns a pointer if the device shares host memory.
#include <tessera/array/array.h>

#include <cstdio>
#include <memory>
#include <numeric>

using namespace tessera;

int main() {
  const auto mine = std::make_shared<std::vector<float>>(1000, 1.0f);  // the storage holds a reference
  const auto storage = Storage::wrap_host(mine->data(), mine->size() * sizeof(float), mine);
  Array x = Array::wrap(storage, DType::f32, {10, 100});
  x.select(0, 3) *= 5;
  x.eval();
  Queue::of(x.device()).finish();
  std::printf("sum of my vector: %.0f\n", std::accumulate(mine->begin(), mine->end(), 0.0));

  {
    HostAccess access = x.host_access();  // waits for pending work; destroy it before the array is used again
    for (float& v : access.as<float>()) v += 1;
  }
  std::printf("sum of the array: %.0f\n", static_cast<double>(sum(x).item<float>()));
  return (*mine)[300] == 6 && sum(x).item<float>() == 2400 ? 0 : 1;
}

// Output:
// sum of my vector: 1400
// sum of the array: 2400
