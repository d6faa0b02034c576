// SPDX-License-Identifier: Apache-2.0
// AMD's HIP runtime as far as Tessera calls it, over the fake machine. Signatures, values and rules follow the HIP
// runtime API reference of ROCm 5 and 6; nothing of ours is included, so that a wrong declaration there does not hide
// here.
#include <cstdio>
#include <cstring>
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
/// Devices take turns: both widths of subgroups.
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

/// The runtime initialises itself with the first call; so does each device.
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
  return machine().enter(call, primary, false);  // counted once
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

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define BEGIN() \
  if (const Code begun = begin(__func__); begun != ok) return begun
#define ENTER()               \
  Context* context = nullptr; \
  if (const Code entered = context_of_thread(__func__, &context); entered != ok) return entered
/// A failed device answers its error, after the call has done what it can.
#define ENTER_FAILED_TOO()                                    \
  Context* context = nullptr;                                 \
  const Code entered = context_of_thread(__func__, &context); \
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered
#define STREAM(handle)                                                        \
  Code stream_code = ok;                                                      \
  Stream* const stream = machine().stream_of(*context, handle, &stream_code); \
  if (stream == nullptr) return stream_code
#define ANY_STREAM(handle)                                                           \
  ENTER_FAILED_TOO();                                                                \
  Code stream_code = ok;                                                             \
  Stream* const stream = machine().stream_of(*context, handle, &stream_code, false); \
  if (stream == nullptr) return stream_code
#define EVENT(handle)                                           \
  Code event_code = ok;                                         \
  Event* const event = machine().event_of(handle, &event_code); \
  if (event == nullptr) return event_code
#define DEVICE(device) \
  BEGIN();             \
  if (machine().primary(device) == nullptr) return machine().breach("no such device", invalid_device)

EXPORT Code hipInit(unsigned flags) {
  if (flags != 0) return machine().breach("hipInit: flags must be 0", invalid_value);
  return machine().initialise(__func__);
}
EXPORT Code hipRuntimeGetVersion(int* version) { return *version = major() * 10000000 + 232830, ok; }
EXPORT Code hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }
EXPORT const char* hipGetErrorName(Code code) { return describe(code, &Name::name); }
EXPORT const char* hipGetErrorString(Code code) { return describe(code, &Name::text); }
EXPORT Code hipGetLastError() { return ok; }

// Devices.

EXPORT Code hipGetDeviceCount(int* count) {
  *count = 0;
  BEGIN();
  return *count = machine().settings().devices, ok;
}
EXPORT Code hipDeviceGet(int* device, int number) {
  DEVICE(number);
  return *device = number, ok;
}
EXPORT Code hipSetDevice(int device) {
  DEVICE(device);
  return device_of_thread = device, ok;
}
EXPORT Code hipGetDevice(int* device) {
  BEGIN();
  return *device = device_of_thread, ok;
}
EXPORT Code hipDeviceGetName(char* name, int bytes, int device) {
  DEVICE(device);
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", gpu(device).name);
  return ok;
}
EXPORT Code hipDeviceTotalMem(std::size_t* bytes, int device) {
  DEVICE(device);
  return *bytes = machine().settings().memory, ok;
}
EXPORT Code hipDeviceGetPCIBusId(char* text, int bytes, int device) {
  DEVICE(device);
  if (bytes < 13) return machine().breach("the text needs 13 bytes", invalid_value);
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", 0xc1 + device);
  return ok;
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
    default: return machine().breach("attribute " + std::to_string(attribute) + " is not known here", invalid_value);
  }
  return ok;
}
namespace {
/// The name, and where each major version keeps the architecture's name.
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
EXPORT Code hipDeviceCanAccessPeer(int* can, int device, int peer) {
  DEVICE(device);
  if (machine().primary(peer) == nullptr) return machine().breach("no such device", invalid_device);
  return *can = machine().can_reach(device, peer), ok;
}
EXPORT Code hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  ENTER();
  if (flags != 0 || peer == context->device) return machine().breach("no such peer", invalid_value);
  return machine().enable_peer(*context, peer);
}
EXPORT Code hipDeviceSynchronize() {
  ENTER_FAILED_TOO();
  return machine().synchronise(*context);
}

// Memory.

EXPORT Code hipMemGetInfo(std::size_t* free, std::size_t* total) {
  ENTER();
  *free = machine().free_bytes(context->device);
  *total = machine().settings().memory;
  return ok;
}
EXPORT Code hipMalloc(void** address, std::size_t bytes) {
  ENTER();
  std::uint64_t made = 0;
  const Code code = machine().allocate(*context, bytes, &made);
  *address = reinterpret_cast<void*>(made);
  return code;
}
EXPORT Code hipFree(void* address) {
  ENTER_FAILED_TOO();
  return machine().free(reinterpret_cast<std::uint64_t>(address));
}
EXPORT Code hipHostMalloc(void** address, std::size_t bytes, unsigned) {
  ENTER();
  return machine().allocate_host(*context, bytes, address);
}
EXPORT Code hipHostFree(void* address) {
  ENTER_FAILED_TOO();
  return machine().free_host(address);
}
#define COPY(to, from, bytes, direction, waits)                                                                \
  return machine().copy(*context, (std::uint64_t)(to), (std::uint64_t)(from), bytes, Machine::Copy::direction, \
                        *stream, waits)
EXPORT Code hipMemcpyHtoDAsync(void* to, void* from, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  COPY(to, from, bytes, to_device, false);
}
EXPORT Code hipMemcpyDtoHAsync(void* to, void* from, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  COPY(to, from, bytes, to_host, false);
}
EXPORT Code hipMemcpyDtoDAsync(void* to, void* from, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  COPY(to, from, bytes, on_device, false);
}
EXPORT Code hipMemcpyPeerAsync(void* to, int device, const void* from, int peer, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  return machine().copy_from_peer(*context, (std::uint64_t)to, machine().primary(device), (std::uint64_t)from,
                                  machine().primary(peer), bytes, *stream);
}
EXPORT Code hipMemcpyHtoD(void* to, void* from, std::size_t bytes) {
  ENTER();
  STREAM(nullptr);
  COPY(to, from, bytes, to_device, true);
}
EXPORT Code hipMemcpyDtoH(void* to, void* from, std::size_t bytes) {
  ENTER();
  STREAM(nullptr);
  COPY(to, from, bytes, to_host, true);
}
#define FILL(name, type, unit)                                                                                    \
  EXPORT Code name##Async(void* to, type value, std::size_t count, void* handle) {                                \
    ENTER();                                                                                                      \
    STREAM(handle);                                                                                               \
    return machine().fill(*context, reinterpret_cast<std::uint64_t>(to), static_cast<std::uint32_t>(value), unit, \
                          count, *stream, false);                                                                 \
  }
FILL(hipMemsetD8, unsigned char, 1)
FILL(hipMemsetD16, unsigned short, 2)
FILL(hipMemsetD32, int, 4)

// Streams and events.

EXPORT Code hipStreamCreateWithFlags(Stream** stream, unsigned flags) {
  ENTER();
  if (flags > 1) return machine().breach("unknown flags", invalid_value);
  return machine().create_stream(*context, flags != 1, stream);
}
EXPORT Code hipStreamCreate(Stream** stream) { return hipStreamCreateWithFlags(stream, 0); }
EXPORT Code hipStreamDestroy(void* handle) {
  ANY_STREAM(handle);
  if (stream->null) return machine().breach("the device's own stream is not destroyed", invalid_handle);
  return machine().destroy(stream);
}
EXPORT Code hipStreamSynchronize(void* handle) {
  ANY_STREAM(handle);
  return machine().synchronise(*stream);
}
EXPORT Code hipStreamQuery(void* handle) {
  ANY_STREAM(handle);
  return machine().query(*stream);
}
EXPORT Code hipStreamWaitEvent(void* handle, void* event_handle, unsigned flags) {
  ENTER();
  STREAM(handle);
  EVENT(event_handle);
  if (flags != 0) return machine().breach("flags must be 0", invalid_value);
  return machine().wait(*stream, *event);
}
EXPORT Code hipEventCreateWithFlags(Event** event, unsigned flags) {
  ENTER();
  return machine().create_event(*context, (flags & 2) == 0, event);
}
EXPORT Code hipEventRecord(void* event_handle, void* handle) {
  ENTER();
  EVENT(event_handle);
  STREAM(handle);
  return machine().record(*context, *event, *stream);
}
EXPORT Code hipEventQuery(void* event_handle) {
  BEGIN();
  EVENT(event_handle);
  return machine().query(*event);
}
EXPORT Code hipEventSynchronize(void* event_handle) {
  BEGIN();
  EVENT(event_handle);
  return machine().synchronise(*event);
}
EXPORT Code hipEventDestroy(void* event_handle) {
  BEGIN();
  EVENT(event_handle);
  return machine().destroy(event);
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
EXPORT Code hipModuleUnload(Module* module) {
  ENTER_FAILED_TOO();
  return machine().unload(context, module);
}
EXPORT Code hipModuleGetFunction(Function** function, Module* module, const char* entry) {
  ENTER();
  return machine().function(*context, module, entry, function);
}
#define FUNCTION(handle)                                                    \
  Code function_code = ok;                                                  \
  Function* const function = machine().function_of(handle, &function_code); \
  if (function == nullptr) return function_code
EXPORT Code hipFuncGetAttribute(int* value, int attribute, void* handle) {
  ENTER();
  FUNCTION(handle);
  if (attribute != 0) return machine().breach("unknown attribute of a function", invalid_value);
  const Fault* f = machine().faults().find("threads", context->device);
  *value = f != nullptr ? static_cast<int>(f->number) : 1024;
  return ok;
}
EXPORT Code hipModuleLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                  unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream_handle,
                                  void** parameters, void** extra) {
  ENTER();
  FUNCTION(handle);
  STREAM(stream_handle);
  // HIP has no opt-in: what fits may be asked for.
  if (shared_bytes <= (64u << 10)) function->max_dynamic_shared = 64 << 10;
  return machine().launch(*context, *function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                          *stream, parameters, extra);
}

// Graphs.

EXPORT Code hipStreamBeginCapture(void* handle, int mode) {
  ENTER();
  STREAM(handle);
  if (mode < 0 || mode > 2) return machine().breach("unknown mode", invalid_value);
  return machine().begin_capture(*stream, mode);
}
EXPORT Code hipThreadExchangeStreamCaptureMode(int* mode) {
  if (const Code entered = machine().enter(__func__); entered != ok) return entered;
  return machine().exchange_capture_mode(mode);
}
EXPORT Code hipStreamEndCapture(void* handle, Graph** graph) {
  ENTER();
  STREAM(handle);
  return machine().end_capture(*stream, graph);
}
EXPORT Code hipStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, Graph** graph,
                                       const void* const** newest, std::size_t* count) {
  ENTER();
  STREAM(handle);
  if (status == nullptr) return machine().breach("the status is asked for always", invalid_value);
  *status = stream->capture == nullptr ? 0 : stream->spoilt ? 2 : 1;
  if (stream->capture == nullptr) return ok;
  static thread_local Node* last = nullptr;
  if (const Code code = machine().newest_node(*stream, &last); code != ok) return code;
  if (id != nullptr) *id = reinterpret_cast<std::uintptr_t>(stream->capture);
  if (graph != nullptr) *graph = stream->capture;
  if (newest != nullptr) *newest = reinterpret_cast<const void* const*>(&last);
  if (count != nullptr) *count = last != nullptr ? 1 : 0;
  return ok;
}
EXPORT Code hipGraphInstantiate(Executable** executable, void* graph, void** wrong, char* log, std::size_t bytes) {
  ENTER();
  if (wrong != nullptr) *wrong = nullptr;
  if (log != nullptr && bytes != 0) *log = 0;
  return machine().instantiate(*context, graph, executable);
}
EXPORT Code hipGraphDestroy(void* graph) {
  ENTER_FAILED_TOO();
  return machine().destroy_graph(graph);
}
EXPORT Code hipGraphExecDestroy(void* executable) {
  ENTER_FAILED_TOO();
  return machine().destroy_executable(executable);
}
EXPORT Code hipGraphLaunch(void* executable, void* handle) {
  ENTER();
  STREAM(handle);
  return machine().launch_graph(*context, executable, *stream);
}
struct KernelNodeParams {  // hipKernelNodeParams
  unsigned block_x, block_y, block_z;
  void** extra;
  void* function;
  unsigned grid_x, grid_y, grid_z;
  void** parameters;
  unsigned shared_bytes;
};
EXPORT Code hipGraphExecKernelNodeSetParams(void* executable, void* node, const KernelNodeParams* p) {
  ENTER();
  FUNCTION(p->function);
  return machine().set_kernel_node(*context, executable, node, *function, {p->grid_x, p->grid_y, p->grid_z},
                                   {p->block_x, p->block_y, p->block_z}, p->shared_bytes, p->parameters, p->extra);
}
