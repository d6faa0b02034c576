// SPDX-License-Identifier: Apache-2.0
// A fake of the functions of AMD's HIP runtime that Tessera calls. Signatures, values and rules follow the HIP runtime
// API reference of ROCm 5 and 6. Does not include Tessera's declarations of these functions, so that tests detect wrong
// declarations.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/drivers/image.h"
#include "tests/drivers/machine.h"

namespace {

using namespace tessera::fake;

struct Gpu {
  const char *name, *architecture, *features;
  int processors;
  std::uint32_t warp;
};
/// Devices alternate between these GPUs, which have different subgroup widths.
constexpr Gpu gpus[] = {{"Fake MI250X", "gfx90a", ":sramecc+:xnack-", 110, 64},
                        {"Fake RX 6900", "gfx1030", "", 40, 32}};
const Gpu& gpu(int device) { return gpus[device % 2]; }

struct Setup {
  Setup() {
    Machine::get().limits = [](int device) {
      return Limits{.max_block = {1024, 1024, 1024},
                    .max_grid = {2147483647, 2147483647, 2147483647},
                    .shared = 64 << 10,
                    .shared_optin = 64 << 10,
                    .warp = Machine::get().settings().warp != 0 ? Machine::get().settings().warp : gpu(device).warp};
    };
  }
};
Machine& machine() {
  static Setup setup;
  return Machine::get();
}

thread_local int device_of_thread = 0;

int major() {
  const Fault* f = machine().faults().find("hip-major");
  return f != nullptr ? static_cast<int>(f->number) : 6;
}

/// Starts a call. The first call initialises the runtime.
Code begin(const char* call) {
  if (const Code code = machine().initialise(call); code != ok) return code;
  return machine().enter(call);
}
Code context_of_thread(const char* call, Context** context) {
  if (const Code code = begin(call); code != ok) return code;
  Context* primary = machine().primary(device_of_thread);
  if (primary == nullptr) return invalid_device;
  if (primary->retained == 0) {
    static std::mutex first;
    std::lock_guard hold(first);
    if (primary->retained == 0)
      if (const Code code = machine().retain(device_of_thread, &primary); code != ok) return code;
  }
  *context = primary;
  return machine().enter(call, primary, false);  // the call was already counted
}

struct Name {
  Code code;
  const char *name, *text;
};
constexpr Name names[] = {
    {ok, "hipSuccess", "no error"},
    {invalid_value, "hipErrorInvalidValue", "invalid argument"},
    {out_of_memory, "hipErrorOutOfMemory", "out of memory"},
    {not_initialized, "hipErrorNotInitialized", "initialization error"},
    {invalid_configuration, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {no_device, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {invalid_device, "hipErrorInvalidDevice", "invalid device ordinal"},
    {invalid_image, "hipErrorInvalidImage", "device kernel image is invalid"},
    {invalid_context, "hipErrorInvalidContext", "invalid device context"},
    {no_binary_for_gpu, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {invalid_handle, "hipErrorInvalidHandle", "invalid resource handle"},
    {not_found, "hipErrorNotFound", "named symbol not found"},
    {not_ready, "hipErrorNotReady", "device not ready"},
    {illegal_address, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {launch_out_of_resources, "hipErrorLaunchOutOfResources", "too many resources requested for launch"},
    {peer_already_enabled, "hipErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {launch_failed, "hipErrorLaunchFailure", "unspecified launch failure"},
    {not_supported, "hipErrorNotSupported", "operation not supported"},
    {unknown_error, "hipErrorUnknown", "unknown error"},
};
const char* describe(Code code, const char* Name::*which) {
  for (const Name& n : names)
    if (n.code == code) return n.*which;
  return which == &Name::name ? "hipErrorUnknown" : "unknown error";
}

struct KernelNodeParams {  // hipKernelNodeParams
  unsigned block_x, block_y, block_z;
  void** extra;
  void* function;
  unsigned grid_x, grid_y, grid_z;
  void** parameters;
  unsigned shared_bytes;
};

using Address = void*;
constexpr int first_bus = 0xc1;
constexpr unsigned host_flags = ~0u, wait_flags = 0, event_flags = ~0u;
/// HIP has no function attribute for this and allows every size up to the limit.
void allow_shared(Function* function, unsigned bytes) {
  if (bytes <= (64u << 10)) function->max_dynamic_shared = 64 << 10;
}

}  // namespace

#define NAME(cuda, hip) hip
#define BEGIN() \
  if (const Code begun = begin(__func__); begun != ok) return begun
#define ENTER()               \
  Context* context = nullptr; \
  if (const Code entered = context_of_thread(__func__, &context); entered != ok) return entered
/// If the device has failed, the call releases resources before it returns the error.
#define ENTER_FAILED_TOO()                                    \
  Context* context = nullptr;                                 \
  const Code entered = context_of_thread(__func__, &context); \
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered

#include "tests/drivers/vendors/like_cuda.h"

EXPORT Code hipInit(unsigned flags) {
  if (flags != 0) return machine().breach("hipInit: flags must be 0", invalid_value);
  return machine().initialise(__func__);
}
EXPORT Code hipRuntimeGetVersion(int* version) { return *version = major() * 10000000 + 232830, ok; }
EXPORT Code hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }
EXPORT const char* hipGetErrorName(Code code) { return describe(code, &Name::name); }
EXPORT const char* hipGetErrorString(Code code) { return describe(code, &Name::text); }

// Devices.

EXPORT Code hipGetDeviceCount(int* count) {
  *count = 0;
  BEGIN();
  return *count = machine().settings().devices, ok;
}
EXPORT Code hipSetDevice(int device) {
  DEVICE(device);
  return device_of_thread = device, ok;
}
EXPORT Code hipGetDevice(int* device) {
  BEGIN();
  return *device = device_of_thread, ok;
}
EXPORT Code hipDeviceGetUuid(char* uuid, int device) {
  DEVICE(device);
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>("0123456789abcdef"[(i + device) % 16]);
  return ok;
}
EXPORT Code hipDeviceGetAttribute(int* value, int attribute, int device) {
  DEVICE(device);
  const Gpu& g = gpu(device);
  const int capability = std::atoi(g.architecture + 3);
  switch (attribute) {
    case 3: *value = 1; break;
    case 5: *value = 1700000; break;  // kHz
    case 6: *value = 0; break;
    case 16: *value = 0; break;
    case 23: *value = capability >= 1000 ? 10 : 9; break;
    case 26:
    case 27:
    case 28: *value = 1024; break;
    case 29:
    case 30:
    case 31: *value = 2147483647; break;
    case 56: *value = 1024; break;
    case 61: *value = capability >= 1000 ? 3 : 0; break;
    case 63: *value = g.processors; break;
    case 67: *value = 0xc1 + device; break;
    case 68: *value = 0; break;
    case 74: *value = 64 << 10; break;
    case 85: *value = 1; break;
    case 87: *value = static_cast<int>(machine().limits(device).warp); break;
    default:
      return machine().breach("attribute " + std::to_string(attribute) + " is not supported by the fake",
                              invalid_value);
  }
  return ok;
}
namespace {
/// Fills in the properties. `architecture` is the offset of the architecture's name, which depends on the major
/// version.
Code properties(void* out, int device, std::size_t bytes, std::size_t architecture) {
  auto* to = static_cast<char*>(out);
  std::memset(to, 0, bytes);
  std::snprintf(to, 256, "%s", gpu(device).name);
  std::snprintf(to + architecture, 256, "%s%s", gpu(device).architecture, gpu(device).features);
  return ok;
}
}  // namespace
EXPORT Code hipGetDeviceProperties(void* out, int device) {
  DEVICE(device);
  return properties(out, device, 792, 396);
}
EXPORT Code hipGetDevicePropertiesR0600(void* out, int device) {
  DEVICE(device);
  return properties(out, device, 1472, 1160);
}
EXPORT Code hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  ENTER();
  if (flags != 0 || peer == context->device) return machine().breach("no such peer", invalid_value);
  return machine().enable_peer(*context, peer);
}

// Memory.

EXPORT Code hipMemcpyPeerAsync(void* to, int device, const void* from, int peer, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  return machine().copy_from_peer(*context, (std::uint64_t)to, machine().primary(device), (std::uint64_t)from,
                                  machine().primary(peer), bytes, *stream);
}
// Kernels.

EXPORT Code hipModuleLoadData(Module** module, const void* image) {
  ENTER();
  const auto binary = read_image(code_object_magic, static_cast<const char*>(image));
  if (!binary) return invalid_image;
  if (const Fault* f = machine().faults().find("cubin", context->device)) return f->code.value_or(no_binary_for_gpu);
  if (binary->architecture != gpu(context->device).architecture) return no_binary_for_gpu;
  return machine().load(*context, binary->entries, module, binary->object);
}
EXPORT Code hipFuncGetAttribute(int* value, int attribute, void* handle) {
  ENTER();
  FUNCTION(handle);
  if (attribute != 0) return machine().breach("unknown attribute of a function", invalid_value);
  const Fault* f = machine().faults().find("threads", context->device);
  *value = f != nullptr ? static_cast<int>(f->number) : 1024;
  return ok;
}

// Graphs.

EXPORT Code hipGraphInstantiate(Executable** executable, void* graph, void** wrong, char* log, std::size_t bytes) {
  ENTER();
  if (wrong != nullptr) *wrong = nullptr;
  if (log != nullptr && bytes != 0) *log = 0;
  return machine().instantiate(*context, graph, executable);
}
