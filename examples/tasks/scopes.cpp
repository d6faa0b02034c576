// SPDX-License-Identifier: Apache-2.0
// How do I choose the devices that tasks may use?
// A Scope is a set of devices. Without one, a task runs on the device with most of its arrays, or on the CPU.
#include <cstdio>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  for (const BackendScope& backend : {cpu, cuda, rocm, oneapi, metal, opencl})
    if (can_compute(backend.backend))
      std::printf("%-7s %s\n", std::string(backend_name(backend.backend)).c_str(), to_string(backend(all)).c_str());
    else
      std::printf("%-7s none: %s\n", std::string(backend_name(backend.backend)).c_str(),
                  discover(backend.backend).reason.c_str());
  check.expect(can_compute(Backend::cpu), "the CPU computes");

  // A task runs in its own scope, or in the scope set by `with`, which nested tasks inherit. Otherwise it runs where
  // its arrays are.
  const auto where = [] { return this_task::device(); };
  check.expect(spawn(where).fetch() == Device{}, "CPU without a scope and arrays");
  const Scope gpus = accelerators();
  const Array there = Array::ones({4}, DType::f32, gpus.devices().back());
  check.expect(spawn([](const Array&) { return this_task::device(); }, in(there)).fetch() == there.device(),
               "on the device of its array");
  for (const Device one : gpus.devices())
    check.expect(spawn({.scope = one}, where).fetch() == one, "on the requested device");
  {
    const auto scope = with({.scope = gpus.devices().back()});
    const Task<Device> inner = spawn([&] { return spawn(where).fetch(); });
    check.expect(inner.fetch() == gpus.devices().back(), "nested tasks inherit the scope");
  }
  check.expect(spawn(where).fetch() == Device{}, "CPU again after the scope");

  // Union, intersection, and the devices of a backend by number.
  const Scope some = gpus | cpu();
  check.expect((some & gpus) == gpus && gpus.inside(some), "union and intersection");
  if (can_compute(Backend::cuda))
    check.expect(cuda({0}).inside(cuda(all)) && cuda() == cuda(0), "subset of all CUDA devices");
  std::printf("all: %s\n", to_string(some).c_str());

  // If a device does not exist, the error lists the devices that exist.
  try {
    cuda({0, 99});
    check.expect(false, "cuda:99 does not exist");
  } catch (const DeviceError& e) {
    std::printf("%s\n", e.what());
  }
  return check.failures();
}

// Output:
// cpu     cpu:0
// cuda    ...
// rocm    ...
// oneapi  ...
// metal   ...
// opencl  ...
// all: ...
// cuda:... does not exist: ...
