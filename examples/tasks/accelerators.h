// SPDX-License-Identifier: Apache-2.0
// Helpers for the examples of tasks: the devices that they use, and checks of their results.
#pragma once

#include <tessera/task/block_array.h>
#include <tessera/task/products.h>
#include <tessera/task/region.h>
#include <tessera/task/scope.h>
#include <tessera/task/synchronize.h>
#include <tessera/task/this_task.h>
#include <tessera/task/variants.h>

#include <cstdio>
#include <vector>

/// Returns all GPUs and OpenCL devices of the machine, from all vendors. Returns the CPU if there are none.
inline tessera::Scope accelerators() {
  std::vector<tessera::Device> found;
  for (const tessera::BackendScope& backend :
       {tessera::cuda, tessera::rocm, tessera::oneapi, tessera::metal, tessera::opencl})
    if (tessera::can_compute(backend.backend))
      for (const tessera::Device device : backend(tessera::all).devices()) found.push_back(device);
  return found.empty() ? tessera::cpu() : tessera::Scope(found);
}

/// Prints checks that fail. failures() is the exit status of an example.
class Checks {
 public:
  void expect(bool right, const char* what) {
    if (right) return;
    std::printf("FAILED: %s\n", what);
    ++failures_;
  }
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
};
