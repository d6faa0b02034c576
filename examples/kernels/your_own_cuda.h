// SPDX-License-Identifier: Apache-2.0
// Helpers for your_own_cuda.cpp: functions of the CUDA driver and of NVRTC, declared without their headers.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

/// A shared library with functions that return 0 for success. Call them as library("name", arguments...).
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
    if (const int code = function(arguments...)) throw std::runtime_error(name + (" failed: " + std::to_string(code)));
  }
};

/// Compiles CUDA C to PTX.
inline std::string compile_to_ptx(const Library& nvrtc, const char* source) {
  void* program = nullptr;
  nvrtc("nvrtcCreateProgram", &program, source, "program.cu", 0, (const char**)nullptr, (const char**)nullptr);
  nvrtc("nvrtcCompileProgram", program, 0, (const char**)nullptr);
  std::size_t size = 0;
  nvrtc("nvrtcGetPTXSize", program, &size);
  std::string ptx(size, '\0');
  nvrtc("nvrtcGetPTX", program, ptx.data());
  nvrtc("nvrtcDestroyProgram", &program);
  return ptx;
}
