// SPDX-License-Identifier: Apache-2.0
// A fake of the functions of NVIDIA's driver library that Tessera calls. Signatures, values and rules follow the CUDA
// driver API reference. Does not include Tessera's declarations of these functions, so that tests detect wrong
// declarations.
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
/// Devices alternate between these GPUs.
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

/// A plain pointer, because calls may be made after the thread-local objects of a thread were destroyed.
thread_local Context* context_of_thread = nullptr;
Context* current() { return context_of_thread; }

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

/// The version, target and kernels of PTX text.
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
/// Returns the newest PTX version that the driver accepts: 7.2 to 7.8 for CUDA 11.2 to 11.8, 8.x for 12.x, 9.x for
/// 13.x.
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

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v1
  void* function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void **parameters, **extra;
};

using Address = unsigned long long;
constexpr int first_bus = 0x1a;
constexpr unsigned host_flags = 7, wait_flags = 1, event_flags = 7;
void allow_shared(Function*, unsigned) {}  // does nothing, because a function attribute must enable it

}  // namespace

#define NAME(cuda, hip) cuda
#define BEGIN() \
  if (const Code entered = machine().enter(__func__); entered != ok) return entered
/// Starts a call that needs a current context.
#define ENTER()                       \
  Context* const context = current(); \
  if (const Code entered = machine().enter(__func__, context); entered != ok) return entered
/// If the context has failed, the call releases resources before it returns the error.
#define ENTER_FAILED_TOO()                                 \
  Context* const context = current();                      \
  const Code entered = machine().enter(__func__, context); \
  if (entered != ok && (context == nullptr || entered != context->sticky)) return entered

#include "tests/drivers/vendors/like_cuda.h"

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
  BEGIN();
  if (number < 0 || number >= machine().settings().devices) return invalid_device;
  return *device = number, ok;
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
    default:
      return machine().breach("attribute " + std::to_string(attribute) + " is not supported by the fake",
                              invalid_value);
  }
  return ok;
}

// Contexts.

EXPORT Code cuDevicePrimaryCtxRetain(Context** context, int device) {
  DEVICE(device);
  return machine().retain(device, context);
}
EXPORT Code cuCtxGetCurrent(Context** context) {
  BEGIN();
  return *context = current(), ok;
}
EXPORT Code cuCtxSetCurrent(Context* context) {
  BEGIN();
  context_of_thread = nullptr;
  if (context == nullptr) return ok;
  for (int d = 0; d < machine().settings().devices; ++d)
    if (machine().primary(d) == context)
      return context_of_thread = context, ok;  // also accepts a failed context, whose calls report the error
  return machine().breach("invalid context handle", invalid_context);
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

// Memory.

EXPORT Code cuMemcpyPeerAsync(Address to, Context* target, Address from, Context* source, std::size_t bytes,
                              void* handle) {
  ENTER();
  STREAM(handle);
  return machine().copy_from_peer(*context, to, target, from, source, bytes, *stream);
}

// Streams.

EXPORT Code cuStreamQuery(void* handle) {
  ANY_STREAM(handle);
  return machine().query(*stream);
}

// Kernels.

// The linker. It compiles PTX to binaries, which are marked, so that the fault "cubin" does not refuse them.
namespace {
struct Linker {
  std::string text, binary;
};
constexpr std::string_view linked_magic = "FAKE LINKED";
}  // namespace
EXPORT Code cuLinkCreate_v2(unsigned options, int*, void**, Linker** linker) {
  ENTER();
  if (options != 0) return machine().breach("the fake linker knows no options", invalid_value);
  if (machine().faults().find("link", context->device)) return not_supported;
  return *linker = new Linker, ok;
}
EXPORT Code cuLinkAddData_v2(Linker* linker, int type, void* data, std::size_t bytes, const char*, unsigned, int*,
                             void**) {
  ENTER();
  const auto* text = static_cast<const char*>(data);
  if (type != 1 || bytes == 0 || text[bytes - 1] != 0) return machine().breach("not terminated PTX", invalid_value);
  linker->text = text;
  return ok;
}
EXPORT Code cuLinkComplete(Linker* linker, void** binary, std::size_t* bytes) {
  ENTER();
  const Gpu& g = gpu(context->device);
  Ptx ptx;
  if (!read_ptx(linker->text, &ptx) || ptx.version > newest_ptx() || ptx.target > 10 * g.major + g.minor ||
      linker->text.find("undeclared_name") != std::string::npos)
    return invalid_ptx;
  linker->binary = make_image(linked_magic, "sm_" + std::to_string(10 * g.major + g.minor), ptx.entries);
  return *binary = linker->binary.data(), *bytes = linker->binary.size(), ok;
}
EXPORT Code cuLinkDestroy(Linker* linker) {
  ENTER();
  return delete linker, ok;
}

EXPORT Code cuModuleLoadDataEx(Module** module, const void* image, unsigned options, int* kinds, void** values) {
  ENTER();
  const auto* text = static_cast<const char*>(image);
  const Gpu& g = gpu(context->device);
  if (const auto binary = read_image(cubin_magic, text)) {
    if (const Fault* f = machine().faults().find("cubin", context->device)) return f->code.value_or(no_binary_for_gpu);
    int architecture = 0;
    std::sscanf(binary->architecture.c_str(), "sm_%d", &architecture);
    // A binary runs on devices with the same major version and the same or a later minor version.
    if (architecture / 10 != g.major || architecture % 10 > g.minor) {
      say(options, kinds, values, "the binary is for a different architecture");
      return no_binary_for_gpu;
    }
    return machine().load(*context, binary->entries, module, binary->object);
  }
  if (const auto binary = read_image(linked_magic, text)) {
    if (binary->architecture != "sm_" + std::to_string(10 * g.major + g.minor)) return no_binary_for_gpu;
    return machine().load(*context, binary->entries, module);
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

// Graphs.

EXPORT Code cuGraphInstantiateWithFlags(Executable** executable, void* graph, unsigned long long flags) {
  ENTER();
  if (flags > 15) return machine().breach("unknown flags", invalid_value);
  return machine().instantiate(*context, graph, executable);
}
