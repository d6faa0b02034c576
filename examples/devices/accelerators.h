// SPDX-License-Identifier: Apache-2.0
// What the examples in this folder run on: every GPU and OpenCL device of the machine, of any vendor, else the CPU.
#pragma once

#include <tessera/tessera.h>

#include <cstdio>
#include <vector>

inline tessera::Scope accelerators() {
  std::vector<tessera::Device> found;
  for (const tessera::BackendScope& of :
       {tessera::cuda, tessera::rocm, tessera::oneapi, tessera::metal, tessera::opencl})
    if (tessera::can_compute(of.backend))
      for (const tessera::Device device : of(tessera::all).devices()) found.push_back(device);
  return found.empty() ? tessera::cpu() : tessera::Scope(found);
}

/// Says what is wrong; the number of things that are is what an example returns.
class Checks {
 public:
  void expect(bool right, const char* what) {
    if (right) return;
    std::printf("WRONG: %s\n", what);
    ++wrong_;
  }
  int wrong() const { return wrong_; }

 private:
  int wrong_ = 0;
};
