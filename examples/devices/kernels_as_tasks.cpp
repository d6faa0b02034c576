// SPDX-License-Identifier: Apache-2.0
// A kernel is a task as it is: written once, it runs on the CPU or on any GPU, and what it writes is in its signature.
#include "accelerators.h"

using namespace tessera;

const auto vector_add = kernel("vector_add", [](Buffer<float> c, Buffer<const float> a, Buffer<const float> b) {
  auto i = global_id();
  c[i] = a[i] + b[i];
});
const auto fill_with = kernel("fill_with", [](Buffer<float> x, Val<float> value) { x[global_id()] = value; });

int main() {
  Checks check;
  const auto all_are = [](const Array& x, float value) {
    return min(x).item<float>() == value && max(x).item<float>() == value;
  };
  const Extent n{1000};

  Array on_cpu = Array::zeros({1000}, DType::f32, Device{});
  spawn(fill_with, n, on_cpu, 42.0f).wait();  // on the CPU
  check.expect(all_are(on_cpu, 42), "filled on the CPU");

  for (const Device device : accelerators().devices()) {
    const auto in_force = with({.scope = device});
    Array a = Array::zeros({1000}, DType::f32, device), b = Array::zeros({1000}, DType::f32, device),
          c = Array::zeros({1000}, DType::f32, device);
    // Four tasks: the third comes after the first two, whose results it reads. Nobody says so.
    spawn(fill_with, n, a, 40.0f);
    spawn(fill_with, n, b, 2.0f);
    const Task<void> added = spawn(vector_add, n, c, a, b);
    spawn(fill_with, n, a, 0.0f);  // and this one after the third
    std::printf("%s runs on %s\n", added.name().c_str(), to_string(added.device()).c_str());
    check.expect(added.device() == device, "where it was asked for");
    check.expect(all_are(c, 42) && all_are(a, 0), "as if one after the other");  // reading waits
  }
  return check.wrong();
}
