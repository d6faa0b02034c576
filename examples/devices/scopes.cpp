// SPDX-License-Identifier: Apache-2.0
// Which devices there are, sets of them, and where tasks run: in their scope, or else where their arrays are.
#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  for (const BackendScope& of : {cpu, cuda, rocm, oneapi, metal, opencl})
    if (can_compute(of.backend))
      std::printf("%-7s %s\n", std::string(backend_name(of.backend)).c_str(), to_string(of(all)).c_str());
    else
      std::printf("%-7s no: %s\n", std::string(backend_name(of.backend)).c_str(), discover(of.backend).reason.c_str());
  check.expect(can_compute(Backend::cpu), "the CPU computes");

  // Where a task runs: with its arrays, or on the CPU without any; in a scope of its own; in that of `with` around it,
  // which tasks made by tasks inherit.
  const auto where = [] { return this_task::device(); };
  check.expect(spawn(where).fetch() == Device{}, "no scope and no arrays, so it is the CPU");
  const Scope gpus = accelerators();
  const Array there = Array::ones({4}, DType::f32, gpus.devices().back());
  check.expect(spawn([](const Array&) { return this_task::device(); }, in(there)).fetch() == there.device(),
               "with its array");
  for (const Device one : gpus.devices())
    check.expect(spawn({.scope = one}, where).fetch() == one, "the one asked for");
  {
    const auto in_force = with({.scope = gpus.devices().back()});
    const Task<Device> inner = spawn([&] { return spawn(where).fetch(); });
    check.expect(inner.fetch() == gpus.devices().back(), "tasks of tasks are there too");
  }
  check.expect(spawn(where).fetch() == Device{}, "and then it is the CPU again");

  // Sets: all of a vendor, some by number, either of two, both.
  const Scope some = gpus | cpu();
  check.expect((some & gpus) == gpus && gpus.inside(some), "of either, of both");
  if (can_compute(Backend::cuda)) check.expect(cuda({0}).inside(cuda(all)) && cuda() == cuda(0), "cuda:0 of all");
  std::printf("all: %s\n", to_string(some).c_str());

  // What does not exist is an error that says what does. Backends are asked for by name: nothing is skipped in silence.
  try {
    cuda({0, 99});
    check.expect(false, "cuda:99 does not exist");
  } catch (const DeviceError& e) {
    std::printf("%s\n", e.what());
  }
  return check.wrong();
}
