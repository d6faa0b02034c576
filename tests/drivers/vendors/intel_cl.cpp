// SPDX-License-Identifier: Apache-2.0
// A fake of Intel's OpenCL driver, with the functions needed to use it as a compiler. It lists the cards of the fake
// Level Zero driver with their PCI addresses, and creates the binaries that this driver loads.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/drivers/faults.h"
#include "tests/drivers/image.h"

namespace {
using namespace tessera::fake;

const Settings& settings() {
  static const Settings* const the_settings = new Settings(Settings::from_environment());
  return *the_settings;
}
struct Program {
  std::string source, binary, log;
};
char context;
std::array<char, 64> devices;

int give(const void* value, std::size_t size, std::size_t room, void* to, std::size_t* needed) {
  if (needed != nullptr) *needed = size;
  if (to == nullptr) return 0;
  if (room < size) return -30;
  std::memcpy(to, value, size);
  return 0;
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
/// A platform starts with a pointer to the driver's dispatch table (cl_khr_icd).
void* table[40];
struct {
  void** functions = table;
} platform;
void fill_table();
}  // namespace

EXPORT int clGetPlatformIDs(std::uint32_t room, void** to, std::uint32_t* count) {
  fill_table();
  if (room != 0 && to != nullptr) to[0] = &platform;
  if (count != nullptr) *count = 1;
  return 0;
}
EXPORT int clGetDeviceIDs(void*, std::uint64_t, std::uint32_t room, void** to, std::uint32_t* count) {
  const auto all = static_cast<std::uint32_t>(settings().devices);
  if (to != nullptr)
    for (std::uint32_t i = 0; i < std::min(room, all); ++i) to[i] = &devices[i];
  if (count != nullptr) *count = all;
  return 0;
}
EXPORT int clGetDeviceInfo(void* device, std::uint32_t what, std::size_t room, void* to, std::size_t* needed) {
  const auto number = static_cast<std::uint32_t>(static_cast<char*>(device) - devices.data());
  if (what == 0x1001) return give(std::array<std::uint32_t, 1>{0x8086}.data(), 4, room, to, needed);
  if (what == 0x410F) return give(std::array<std::uint32_t, 4>{0, 3 + number, 0, 0}.data(), 16, room, to, needed);
  return -30;
}
EXPORT void* clCreateContext(const std::intptr_t*, std::uint32_t, void* const*,
                             void (*)(const char*, const void*, std::size_t, void*), void*, int* code) {
  return *code = 0, &context;
}
EXPORT void* clCreateProgramWithSource(void*, std::uint32_t count, const char** texts, const std::size_t* lengths,
                                       int* code) {
  auto* const program = new Program;
  for (std::uint32_t i = 0; i < count; ++i) program->source.append(texts[i], lengths[i]);
  return *code = 0, program;
}
EXPORT int clBuildProgram(void* handle, std::uint32_t, void* const* list, const char*, void (*)(void*, void*), void*) {
  auto& program = *static_cast<Program*>(handle);
  program.log = Faults::from_environment().find("compile") ? "kernels:1:1: error: refused\n"
                                                           : complaint(program.source, "kernels");
  if (!program.log.empty()) return -11;
  const bool second = (static_cast<char*>(list[0]) - devices.data()) % 2 != 0;
  program.binary = make_image(intel_magic, second ? "tgllp" : "dg2", find_kernels(program.source, "__kernel"));
  return 0;
}
EXPORT int clGetProgramBuildInfo(void* handle, void*, std::uint32_t what, std::size_t room, void* to,
                                 std::size_t* needed) {
  const std::string& log = static_cast<Program*>(handle)->log;
  return what == 0x1183 ? give(log.c_str(), log.size() + 1, room, to, needed) : -30;
}
EXPORT int clGetProgramInfo(void* handle, std::uint32_t what, std::size_t room, void* to, std::size_t* needed) {
  const std::string& binary = static_cast<Program*>(handle)->binary;
  const std::size_t bytes = binary.size();
  if (what == 0x1165) return give(&bytes, sizeof bytes, room, to, needed);
  if (what != 0x1166 || room < sizeof(char*)) return -30;
  std::memcpy(*static_cast<char**>(to), binary.data(), bytes);
  return 0;
}
EXPORT int clReleaseProgram(void* handle) { return delete static_cast<Program*>(handle), 0; }
EXPORT void* clGetExtensionFunctionAddress(const char* name) {
  return std::strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? reinterpret_cast<void*>(&clGetPlatformIDs) : nullptr;
}

namespace {
// The indices follow struct _cl_icd_dispatch in cl_icd.h.
void fill_table() {
  table[2] = reinterpret_cast<void*>(&clGetDeviceIDs);
  table[3] = reinterpret_cast<void*>(&clGetDeviceInfo);
  table[4] = reinterpret_cast<void*>(&clCreateContext);
  table[26] = reinterpret_cast<void*>(&clCreateProgramWithSource);
  table[29] = reinterpret_cast<void*>(&clReleaseProgram);
  table[30] = reinterpret_cast<void*>(&clBuildProgram);
  table[32] = reinterpret_cast<void*>(&clGetProgramInfo);
  table[33] = reinterpret_cast<void*>(&clGetProgramBuildInfo);
}
}  // namespace
