// SPDX-License-Identifier: Apache-2.0
// A shared library that uses Tessera. plugins.cpp loads two of them.
#include <tessera/tessera.h>

extern "C" __attribute__((visibility("default"))) float tessera_plugin_run(float x) {
  using namespace tessera;
  const auto add =
      kernel("add", [](Buffer<const float> a, Buffer<float> b) { b[global_id()] = a[global_id()] + PLUGIN; });
  const DeviceBuffer<float> a(std::vector<float>{x});
  DeviceBuffer<float> b(1);
  add.launch({1}, a, b);
  const Task<float> task = spawn([&] { return (Array::from(b.to_vector(), Shape{1}) * 2).item<float>(); });
  try {
    fail<ShapeError>({.operation = "plugin", .wrong = "thrown on purpose"});
  } catch (const ShapeError&) {
    return task.fetch();
  }
}
