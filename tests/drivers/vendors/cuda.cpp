// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver library as far as Tessera calls it, over the fake machine. Signatures, values and rules follow the
// CUDA driver API reference; nothing of ours is included, so that a wrong declaration there does not hide here.
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/drivers/image.h"
#include "tests/drivers/machine.h"

namespace {

using namespace tessera::fake;

struct Gpu {
  const char* name;
  int major, minor, processors;
  std::uint32_t shared_optin;
};
/// Devices take turns.
constexpr Gpu gpus[] = {{"Fake H100", 9, 0, 132, 227 << 10}, {"Fake T4", 7, 5, 40, 64 << 10}};
const Gpu& gpu(int device) { return gpus[device % 2]; }

struct Setup {
  Setup() {
    Machine::get().limits = [](int device) {
      const std::uint32_t warp = Machine::get().settings().warp;
      return Limits{.shared_optin = gpu(device).shared_optin, .warp = warp != 0 ? warp : 32, .parameter_bytes = 4096};
    };
  }
};
Machine& machine() {
  static Setup setup;
  return Machine::get();
}

/// Contexts of this thread. Plain memory: calls come after a thread's objects have been destroyed, too.
struct Contexts {
  std::array<Context*, 64> all;
  std::size_t depth;
  bool empty() const { return depth == 0; }
  Context* back() const { return all[depth - 1]; }
  void push_back(Context* context) {
    if (depth < all.size()) all[depth++] = context;
  }
  void pop_back() { --depth; }
};
thread_local Contexts stack = {};
Context* current() { return stack.empty() ? nullptr : stack.back(); }

int version() {
  const Fault* f = machine().faults().find("driver");
  return f != nullptr ? static_cast<int>(f->number) : 12040;
}

struct Name {
  Code code;
  const char *name, *text;
};
constexpr Name names[] = {
    {ok, "CUDA_SUCCESS", "no error"},
    {invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {invalid_image, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {no_binary_for_gpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {invalid_ptx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {unsupported_ptx, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {launch_out_of_resources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {peer_already_enabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {misaligned_address, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {not_supported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {illegal_state, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {unknown_error, "CUDA_ERROR_UNKNOWN", "unknown error"},
};
Code describe(Code code, const char** text, const char* Name::*which) {
  for (const Name& n : names)
    if (n.code == code) return *text = n.*which, ok;
  *text = nullptr;
  return invalid_value;
}

/// Version and kernels of PTX text.
struct Ptx {
  int version = 0;  ///< 84 for 8.4
  int target = 0;
  Entries entries;
};
bool read_ptx(std::string_view text, Ptx* out) {
  const std::size_t v = text.find(".version"), t = text.find(".target");
  int major = 0, minor = 0;
  if (v == text.npos || t == text.npos || std::sscanf(text.data() + v, ".version %d.%d", &major, &minor) != 2 ||
      std::sscanf(text.data() + t, ".target sm_%d", &out->target) != 1)
    return false;
  out->version = 10 * major + minor;
  for (std::size_t at = text.find(".entry"); at != text.npos; at = text.find(".entry", at + 1)) {
    std::size_t from = at + 6;
    while (from < text.size() && (text[from] == ' ' || text[from] == '\n')) ++from;
    std::size_t to = from;
    while (to < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[to])) || text[to] == '_' || text[to] == '$'))
      ++to;
    int parameters = 0;
    const std::size_t end = text.find('{', to);
    for (std::size_t p = text.find(".param", to); p != text.npos && p < end; p = text.find(".param", p + 1))
      ++parameters;
    out->entries[std::string(text.substr(from, to - from))] = parameters;
  }
  return true;
}
/// The newest PTX that a driver of this CUDA version takes: 11.2 to 11.8 are 7.2 to 7.8, 12.x are 8.x, 13.x are 9.x.
int newest_ptx() {
  const int major = version() / 1000, minor = version() % 1000 / 10;
  return (major - 4) * 10 + minor;
}

void say(unsigned options, int* kinds, void** values, const char* text) {
  char* buffer = nullptr;
  std::size_t size = 0;
  for (unsigned i = 0; i < options; ++i) {
    if (kinds[i] == 5) buffer = static_cast<char*>(values[i]);
    if (kinds[i] == 6) size = reinterpret_cast<std::size_t>(values[i]) & 0xffffffffu;
  }
  if (buffer != nullptr && size != 0) std::snprintf(buffer, size, "%s", text);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
/// Begins a call that needs a current context.
#define ENTER()                       \
  Context* const context = current(); \
  if (const Code entered = machine().enter(__func__, context); entered != ok) return entered
#define ENTER_WITHOUT_CONTEXT() \
  if (const Code entered = machine().enter(__func__); entered != ok) return entered
#define STREAM(handle)                                                        \
  Code stream_code = ok;                                                      \
  Stream* const stream = machine().stream_of(*context, handle, &stream_code); \
  if (stream == nullptr) return stream_code

EXPORT Code cuInit(unsigned flags) {
  if (flags != 0) return machine().breach("cuInit: flags must be 0", invalid_value);
  return machine().initialise(__func__);
}
EXPORT Code cuDriverGetVersion(int* out) { return *out = version(), ok; }
EXPORT Code cuGetErrorName(Code code, const char** text) { return describe(code, text, &Name::name); }
EXPORT Code cuGetErrorString(Code code, const char** text) { return describe(code, text, &Name::text); }

// Devices.

EXPORT Code cuDeviceGetCount(int* count) {
  *count = 0;
  const Code entered = machine().enter(__func__);
  if (entered == no_device) return ok;
  if (entered == ok) *count = machine().settings().devices;
  return entered;
}
EXPORT Code cuDeviceGet(int* device, int number) {
  ENTER_WITHOUT_CONTEXT();
  if (number < 0 || number >= machine().settings().devices) return invalid_device;
  return *device = number, ok;
}
#define DEVICE(device)     \
  ENTER_WITHOUT_CONTEXT(); \
  if (machine().primary(device) == nullptr) return machine().breach("no such device", invalid_device)
EXPORT Code cuDeviceGetName(char* name, int bytes, int device) {
  DEVICE(device);
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", gpu(device).name);
  return ok;
}
EXPORT Code cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  DEVICE(device);
  return *bytes = machine().settings().memory, ok;
}
EXPORT Code cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  DEVICE(device);
  if (bytes < 13) return machine().breach("the text needs 13 bytes", invalid_value);
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", 0x1a + device);
  return ok;
}
EXPORT Code cuDeviceGetUuid_v2(char* uuid, int device) {
  DEVICE(device);
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(0xc0 + 16 * device + i);
  return ok;
}
EXPORT Code cuDeviceGetUuid(char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
EXPORT Code cuDeviceGetAttribute(int* value, int attribute, int device) {
  DEVICE(device);
  const Gpu& g = gpu(device);
  switch (attribute) {
    case 1: *value = 1024; break;
    case 2:
    case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;
    case 6:
    case 7: *value = 65535; break;
    case 8: *value = 48 << 10; break;
    case 10: *value = static_cast<int>(machine().limits(device).warp); break;
    case 13: *value = 1500000; break;  // kHz
    case 16: *value = g.processors; break;
    case 18: *value = 0; break;
    case 19: *value = 1; break;
    case 20: *value = 0; break;
    case 33: *value = 0x1a + device; break;
    case 34: *value = 0; break;
    case 36: *value = 2619000; break;  // kHz
    case 37: *value = 5120; break;     // bits
    case 38: *value = 50 << 20; break;
    case 39: *value = 2048; break;
    case 40: *value = 3; break;
    case 41: *value = 1; break;
    case 50: *value = 0; break;
    case 75: *value = g.major; break;
    case 76: *value = g.minor; break;
    case 81: *value = static_cast<int>(g.shared_optin) + 1024; break;
    case 82: *value = 65536; break;
    case 97: *value = static_cast<int>(g.shared_optin); break;
    case 115: *value = 0; break;
    default: return machine().breach("attribute " + std::to_string(attribute) + " is not known here", invalid_value);
  }
  return ok;
}
EXPORT Code cuDeviceCanAccessPeer(int* can, int device, int peer) {
  DEVICE(device);
  if (machine().primary(peer) == nullptr) return machine().breach("no such device", invalid_device);
  return *can = machine().can_reach(device, peer), ok;
}

// Contexts.

EXPORT Code cuDevicePrimaryCtxRetain(Context** context, int device) {
  DEVICE(device);
  return machine().retain(device, context);
}
EXPORT Code cuDevicePrimaryCtxRelease_v2(int device) {
  DEVICE(device);
  return machine().release(device);
}
EXPORT Code cuCtxGetCurrent(Context** context) {
  ENTER_WITHOUT_CONTEXT();
  return *context = current(), ok;
}
EXPORT Code cuCtxSetCurrent(Context* context) {
  ENTER_WITHOUT_CONTEXT();
  if (!stack.empty()) stack.pop_back();
  if (context == nullptr) return ok;
  for (int d = 0; d < machine().settings().devices; ++d)
    if (machine().primary(d) == context) {
      stack.push_back(context);
      return ok;  // a failed one may be current; its calls answer the error
    }
  return machine().breach("this is no context", invalid_context);
}
EXPORT Code cuCtxPushCurrent_v2(Context* context) {
  ENTER_WITHOUT_CONTEXT();
  stack.push_back(context);
  return context != nullptr ? ok : invalid_context;
}
EXPORT Code cuCtxPopCurrent_v2(Context** context) {
  ENTER_WITHOUT_CONTEXT();
  if (stack.empty()) return machine().breach("there is no context to pop", invalid_context);
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return ok;
}
EXPORT Code cuCtxGetDevice(int* device) {
  ENTER();
  return *device = context->device, ok;
}
EXPORT Code cuCtxSynchronize() {
  ENTER();
  return machine().synchronise(*context);
}
EXPORT Code cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
  ENTER();
  if (flags != 0 || peer == nullptr || peer == context) return machine().breach("no such peer", invalid_value);
  return machine().enable_peer(*context, peer->device);
}
EXPORT Code cuCtxDisablePeerAccess(Context* peer) {
  ENTER();
  return context->peers.erase(peer->device) != 0 ? ok : peer_not_enabled;
}

// Memory.

EXPORT Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER();
  *free = machine().free_bytes(context->device);
  *total = machine().settings().memory;
  return ok;
}
EXPORT Code cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  ENTER();
  std::uint64_t made = 0;
  const Code code = machine().allocate(*context, bytes, &made);
  if (code == ok) *address = made;
  return code;
}
EXPORT Code cuMemFree_v2(unsigned long long address) {
  Context* const context = current();
  const Code entered = machine().enter(__func__, context);
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered;
  return machine().free(address);  // of a failed context too: then it answers its error
}
EXPORT Code cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  ENTER();
  if ((flags & ~7u) != 0) return machine().breach("unknown flags", invalid_value);
  return machine().allocate_host(*context, bytes, address);
}
EXPORT Code cuMemAllocHost_v2(void** address, std::size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }
EXPORT Code cuMemFreeHost(void* address) {
  Context* const context = current();
  const Code entered = machine().enter(__func__, context);
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered;
  return machine().free_host(address);
}
EXPORT Code cuMemHostGetDevicePointer_v2(unsigned long long* address, void* host, unsigned flags) {
  ENTER();
  if (flags != 0) return machine().breach("flags must be 0", invalid_value);
  return *address = reinterpret_cast<unsigned long long>(host), ok;
}

#define COPY(to, from, bytes, direction, waits)                                                                \
  return machine().copy(*context, (std::uint64_t)(to), (std::uint64_t)(from), bytes, Machine::Copy::direction, \
                        *stream, waits)
using Address = unsigned long long;
EXPORT Code cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  COPY(to, from, bytes, to_device, false);
}
EXPORT Code cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  COPY(to, from, bytes, to_host, false);
}
EXPORT Code cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, void* handle) {
  ENTER();
  STREAM(handle);
  COPY(to, from, bytes, on_device, false);
}
EXPORT Code cuMemcpyPeerAsync(Address to, Context* target, Address from, Context* source, std::size_t bytes,
                              void* handle) {
  ENTER();
  STREAM(handle);
  return machine().copy_from_peer(*context, to, target, from, source, bytes, *stream);
}
EXPORT Code cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  ENTER();
  STREAM(nullptr);
  COPY(to, from, bytes, to_device, true);
}
EXPORT Code cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  ENTER();
  STREAM(nullptr);
  COPY(to, from, bytes, to_host, true);
}
EXPORT Code cuMemcpyDtoD_v2(Address to, Address from, std::size_t bytes) {
  ENTER();
  STREAM(nullptr);
  COPY(to, from, bytes, on_device, false);
}
#define FILL(name, type, unit)                                                       \
  EXPORT Code name##Async(Address to, type value, std::size_t count, void* handle) { \
    ENTER();                                                                         \
    STREAM(handle);                                                                  \
    return machine().fill(*context, to, value, unit, count, *stream, false);         \
  }                                                                                  \
  EXPORT Code name##_v2(Address to, type value, std::size_t count) {                 \
    ENTER();                                                                         \
    STREAM(nullptr);                                                                 \
    return machine().fill(*context, to, value, unit, count, *stream, false);         \
  }
FILL(cuMemsetD8, unsigned char, 1)
FILL(cuMemsetD16, unsigned short, 2)
FILL(cuMemsetD32, unsigned, 4)

// Streams and events.

EXPORT Code cuStreamCreate(Stream** stream, unsigned flags) {
  ENTER();
  if (flags > 1) return machine().breach("unknown flags", invalid_value);
  return machine().create_stream(*context, flags != 1, stream);
}
EXPORT Code cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
/// Of a failed context too; whichever context is current.
#define ANY_STREAM(handle)                                                                 \
  Context* const context = current();                                                      \
  const Code entered = machine().enter(__func__, context);                                 \
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered; \
  Code stream_code = ok;                                                                   \
  Stream* const stream = machine().stream_of(*context, handle, &stream_code, false);       \
  if (stream == nullptr) return stream_code
EXPORT Code cuStreamDestroy_v2(Stream* handle) {
  ANY_STREAM(handle);
  if (stream->null) return machine().breach("the context's own stream is not destroyed", invalid_handle);
  return machine().destroy(stream);
}
EXPORT Code cuStreamSynchronize(void* handle) {
  ANY_STREAM(handle);
  return machine().synchronise(*stream);
}
EXPORT Code cuStreamQuery(void* handle) {
  ANY_STREAM(handle);
  return machine().query(*stream);
}
#define EVENT(handle)                                           \
  Code event_code = ok;                                         \
  Event* const event = machine().event_of(handle, &event_code); \
  if (event == nullptr) return event_code
EXPORT Code cuStreamWaitEvent(void* handle, void* event_handle, unsigned flags) {
  ENTER();
  STREAM(handle);
  EVENT(event_handle);
  if (flags > 1) return machine().breach("unknown flags", invalid_value);
  return machine().wait(*stream, *event);
}
EXPORT Code cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  ENTER();
  STREAM(handle);
  return machine().callback(*stream, [function, data] { function(data); });
}
EXPORT Code cuEventCreate(Event** event, unsigned flags) {
  ENTER();
  if (flags > 7) return machine().breach("unknown flags", invalid_value);
  return machine().create_event(*context, (flags & 2) == 0, event);
}
EXPORT Code cuEventRecord(void* event_handle, void* handle) {
  ENTER();
  EVENT(event_handle);
  STREAM(handle);
  return machine().record(*context, *event, *stream);
}
EXPORT Code cuEventQuery(void* event_handle) {
  ENTER_WITHOUT_CONTEXT();
  EVENT(event_handle);
  return machine().query(*event);
}
EXPORT Code cuEventSynchronize(void* event_handle) {
  ENTER_WITHOUT_CONTEXT();
  EVENT(event_handle);
  return machine().synchronise(*event);
}
EXPORT Code cuEventDestroy_v2(void* event_handle) {
  ENTER_WITHOUT_CONTEXT();
  EVENT(event_handle);
  return machine().destroy(event);
}

// Kernels.

EXPORT Code cuModuleLoadDataEx(Module** module, const void* image, unsigned options, int* kinds, void** values) {
  ENTER();
  const auto* text = static_cast<const char*>(image);
  const Gpu& g = gpu(context->device);
  if (const auto binary = read_image(cubin_magic, text)) {
    if (const Fault* f = machine().faults().find("cubin", context->device)) return f->code.value_or(no_binary_for_gpu);
    int architecture = 0;
    std::sscanf(binary->architecture.c_str(), "sm_%d", &architecture);
    // A binary runs on its major architecture, from its minor one on.
    if (architecture / 10 != g.major || architecture % 10 > g.minor) {
      say(options, kinds, values, "the binary is of another architecture");
      return no_binary_for_gpu;
    }
    return machine().load(*context, binary->entries, module, binary->object);
  }
  Ptx ptx;
  if (!read_ptx(text, &ptx)) {
    say(options, kinds, values, "ptxas fatal   : neither a binary nor PTX");
    return invalid_image;
  }
  if (ptx.version > newest_ptx()) {
    say(options, kinds, values, "ptxas application ptx input, line 1; fatal   : Unsupported .version");
    return unsupported_ptx;
  }
  if (ptx.target > 10 * g.major + g.minor || std::string_view(text).find("undeclared_name") != std::string_view::npos) {
    say(options, kinds, values, "ptxas fatal   : the PTX is for a newer architecture, or is wrong");
    return invalid_ptx;
  }
  return machine().load(*context, ptx.entries, module);
}
EXPORT Code cuModuleLoadData(Module** module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
EXPORT Code cuModuleUnload(Module* module) {
  Context* const context = current();
  const Code entered = machine().enter(__func__, context);
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered;
  return machine().unload(context, module);
}
EXPORT Code cuModuleGetFunction(Function** function, Module* module, const char* entry) {
  ENTER();
  return machine().function(*context, module, entry, function);
}
#define FUNCTION(handle)                                                    \
  Code function_code = ok;                                                  \
  Function* const function = machine().function_of(handle, &function_code); \
  if (function == nullptr) return function_code
EXPORT Code cuFuncGetAttribute(int* value, int attribute, void* handle) {
  ENTER();
  FUNCTION(handle);
  switch (attribute) {
    case 0: {
      const Fault* f = machine().faults().find("threads", context->device);
      *value = f != nullptr ? static_cast<int>(f->number) : 1024;
      break;
    }
    case 1:
    case 2:
    case 3: *value = 0; break;
    case 4: *value = 32; break;
    case 8: *value = static_cast<int>(function->max_dynamic_shared); break;
    default: return machine().breach("unknown attribute of a function", invalid_value);
  }
  return ok;
}
EXPORT Code cuFuncSetAttribute(void* handle, int attribute, int value) {
  ENTER();
  FUNCTION(handle);
  if (attribute == 9) return ok;
  if (attribute != 8) return machine().breach("this attribute cannot be set", invalid_value);
  return machine().raise_shared(*function, value);
}
EXPORT Code cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream_handle,
                           void** parameters, void** extra) {
  ENTER();
  FUNCTION(handle);
  STREAM(stream_handle);
  return machine().launch(*context, *function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                          *stream, parameters, extra);
}

// Graphs.

/// Of a failed context too.
#define ENTER_FAILED()                                     \
  Context* const context = current();                      \
  const Code entered = machine().enter(__func__, context); \
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered

EXPORT Code cuStreamBeginCapture_v2(void* handle, int mode) {
  ENTER();
  STREAM(handle);
  if (mode < 0 || mode > 2) return machine().breach("unknown mode", invalid_value);
  return machine().begin_capture(*stream, mode);
}
EXPORT Code cuThreadExchangeStreamCaptureMode(int* mode) {
  if (const Code entered = machine().enter(__func__); entered != ok) return entered;
  return machine().exchange_capture_mode(mode);
}
EXPORT Code cuStreamEndCapture(void* handle, Graph** graph) {
  ENTER();
  STREAM(handle);
  return machine().end_capture(*stream, graph);
}
EXPORT Code cuStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, Graph** graph,
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
EXPORT Code cuGraphInstantiateWithFlags(Executable** executable, void* graph, unsigned long long flags) {
  ENTER();
  if (flags > 15) return machine().breach("unknown flags", invalid_value);
  return machine().instantiate(*context, graph, executable);
}
EXPORT Code cuGraphDestroy(void* graph) {
  ENTER_FAILED();
  return machine().destroy_graph(graph);
}
EXPORT Code cuGraphExecDestroy(void* executable) {
  ENTER_FAILED();
  return machine().destroy_executable(executable);
}
EXPORT Code cuGraphLaunch(void* executable, void* handle) {
  ENTER();
  STREAM(handle);
  return machine().launch_graph(*context, executable, *stream);
}
struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v1
  void* function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void **parameters, **extra;
};
EXPORT Code cuGraphExecKernelNodeSetParams(void* executable, void* node, const KernelNodeParams* p) {
  ENTER();
  FUNCTION(p->function);
  return machine().set_kernel_node(*context, executable, node, *function, {p->grid_x, p->grid_y, p->grid_z},
                                   {p->block_x, p->block_y, p->block_z}, p->shared_bytes, p->parameters, p->extra);
}
