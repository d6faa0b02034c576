// SPDX-License-Identifier: Apache-2.0
// How do I share arrays with PyTorch, NumPy or CuPy without a copy?
// Use DLPack: to_dlpack() exports the memory of an array, and from_dlpack() imports a tensor. Both sides share the
// memory.
#include <tessera/array/dlpack.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Array x = Array::arange(6).reshape({2, 3});
  dlpack::Owned<dlpack::ManagedVersioned> exported = dlpack::to_dlpack(x);
  std::printf("exported: %d dimensions, device type %d\n", exported->tensor.ndim, exported->tensor.device.type);

  // The consumer calls exported.release() and later the deleter. In this example the consumer is Tessera itself.
  const Array y = dlpack::from_dlpack(std::move(exported));
  Array(y).fill(7);
  std::printf("%s\n", to_string(x).c_str());

  // A tensor of another library, on the CPU.
  static float data[4] = {1, 2, 3, 4};
  static std::int64_t shape[2] = {2, 2};
  dlpack::ManagedVersioned foreign{.version = {1, 0},
                                   .manager_context = nullptr,
                                   .deleter = [](dlpack::ManagedVersioned*) { std::puts("the tensor is released"); },
                                   .flags = 0,
                                   .tensor = {data, {dlpack::cpu, 0}, 2, {dlpack::floating, 32, 1}, shape, nullptr, 0}};
  {
    const Array imported = dlpack::from_dlpack(dlpack::Owned<dlpack::ManagedVersioned>(&foreign));
    Array(imported) *= 2;
    imported.eval();
  }
  return x.to_vector<float>() == std::vector<float>(6, 7) && data[3] == 8 ? 0 : 1;
}

// Output:
// exported: 2 dimensions, device type ...
// array([[7, 7, 7],
//        [7, 7, 7]], f32, ...)
// the tensor is released
