// SPDX-License-Identifier: Apache-2.0
// How do I call my own CUDA code on Tessera's arrays?
// submit_native() passes the stream and orders your work with all other work on the arrays. Nothing is copied.
// On a machine without a CUDA device, the example prints a message and succeeds.
#include "your_own_cuda.h"

#include <tessera/array/array.h>

#include <array>
#include <iostream>

using namespace tessera;

const char* const source = R"(
extern "C" __global__ void scale(const float* x, float* y, float a, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
})";

int main() {
  const BackendReport& report = discover(Backend::cuda);
  if (report.devices.empty()) {
    std::cout << "no CUDA device: " << report.reason << "\n";
    return 0;
  }
  const Device device = report.devices[0].device;
  const Library cuda{"libcuda.so.1"}, nvrtc{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  const std::string ptx = compile_to_ptx(nvrtc, source);

  constexpr unsigned n = 1000000;
  const Array x = Array::arange(n, 0, 1, DType::f32, device);
  const Array y = Array::empty({n}, DType::f32, device);
  const std::array reads = {x.view()}, writes = {y.view_for_writing()};
  Queue::of(device).submit_native("scale", reads, writes, [&](void* stream) {  // the CUDA context is current here
    void *module = nullptr, *function = nullptr;
    cuda("cuModuleLoadData", &module, ptx.c_str());
    cuda("cuModuleGetFunction", &function, module, "scale");
    char* from = static_cast<char*>(reads[0].storage->native_handle()) + reads[0].byte_offset;
    char* to = static_cast<char*>(writes[0].storage->native_handle()) + writes[0].byte_offset;
    float a = 2;
    unsigned count = n;
    std::array<void*, 4> arguments = {&from, &to, &a, &count};
    cuda("cuLaunchKernel", function, (n + 255) / 256, 1u, 1u, 256u, 1u, 1u, 0u, stream, arguments.data(),
         (void**)nullptr);
  });
  const double total = sum(y.astype(DType::f64)).item<double>();  // runs after the kernel
  std::cout << "sum of 2 x: " << total << "\n";
  return total == double(n) * (n - 1) ? 0 : 1;
}

// Output:
// ...
