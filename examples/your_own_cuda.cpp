// SPDX-License-Identifier: Apache-2.0
// A kernel of your own in CUDA C, compiled by NVRTC and launched through the driver's functions, in Tessera's stream
// and on Tessera's arrays: no copies, and ordered with everything else that uses them. Says so where there is no CUDA
// device.
#include <dlfcn.h>
#include <tessera/tessera.h>

#include <array>
#include <iostream>
#include <memory>
#include <stdexcept>

using namespace tessera;

namespace {

const char* const text = R"(
extern "C" __global__ void scale(const float* x, float* y, float a, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
})";

struct Library {
  void* handle = nullptr;
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names)
      if ((handle = ::dlopen(name, RTLD_NOW)) != nullptr) return;
    throw std::runtime_error(::dlerror());
  }
  template <class... Arguments>
  void operator()(const char* name, Arguments... arguments) const {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(handle, name));
    if (function == nullptr) throw std::runtime_error(std::string(name) + " is missing");
    if (const int code = function(arguments...)) throw std::runtime_error(name + (" answered " + std::to_string(code)));
  }
};

std::string compiled(const Library& nvrtc) {
  void* program = nullptr;
  nvrtc("nvrtcCreateProgram", &program, text, "scale.cu", 0, (const char**)nullptr, (const char**)nullptr);
  nvrtc("nvrtcCompileProgram", program, 0, (const char**)nullptr);
  std::size_t size = 0;
  nvrtc("nvrtcGetPTXSize", program, &size);
  std::string ptx(size, '\0');
  nvrtc("nvrtcGetPTX", program, ptx.data());
  nvrtc("nvrtcDestroyProgram", &program);
  return ptx;
}

}  // namespace

int main() {
  const BackendReport& row = discover(Backend::cuda);
  if (row.devices.empty()) {
    std::cout << "no CUDA device here: " << row.reason << "\n";
    return 0;
  }
  const Device device = row.devices[0].device;
  const Library cuda{"libcuda.so.1"}, nvrtc{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  const std::string ptx = compiled(nvrtc);

  constexpr unsigned n = 1000000;
  const Array x = Array::arange(n, 0, 1, DType::f32, device);
  const Array y = Array::empty({n}, DType::f32, device);
  const std::array reads = {x.view()}, writes = {y.view_for_writing()};
  Queue::of(device).submit_native("scale", reads, writes, [&](void* stream) {  // its context is current meanwhile
    void *module = nullptr, *function = nullptr;
    cuda("cuModuleLoadData", &module, ptx.c_str());
    cuda("cuModuleGetFunction", &function, module, "scale");
    // A buffer is {allocation, byte offset, length}.
    char* from = static_cast<char*>(reads[0].storage->native_handle()) + reads[0].byte_offset;
    char* to = static_cast<char*>(writes[0].storage->native_handle()) + writes[0].byte_offset;
    float a = 2;
    unsigned count = n;
    std::array<void*, 4> arguments = {&from, &to, &a, &count};
    cuda("cuLaunchKernel", function, (n + 255) / 256, 1u, 1u, 256u, 1u, 1u, 0u, stream, arguments.data(),
         (void**)nullptr);
  });
  const double total = sum(y.astype(DType::f64)).item<double>();  // after the kernel, without waiting by hand
  std::cout << "sum of 2 x is " << total << "\n";
  return total == double(n) * (n - 1) ? 0 : 1;
}
