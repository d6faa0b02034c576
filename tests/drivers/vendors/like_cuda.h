// SPDX-License-Identifier: Apache-2.0
// The functions that the fake CUDA driver and the fake HIP runtime have in common. Included by cuda.cpp and hip.cpp,
// which first define the macros at the start of a call (BEGIN, ENTER, ENTER_FAILED_TOO), `machine()`, `gpu()`, the type
// `Address`, the flags, and NAME(cuda, hip), which selects the name of an entry point.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define STREAM(handle)                                                        \
  Code stream_code = ok;                                                      \
  Stream* const stream = machine().stream_of(*context, handle, &stream_code); \
  if (stream == nullptr) return stream_code
/// Also accepts streams of failed contexts and of contexts that are not current.
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
#define FUNCTION(handle)                                                    \
  Code function_code = ok;                                                  \
  Function* const function = machine().function_of(handle, &function_code); \
  if (function == nullptr) return function_code

// Devices.

EXPORT Code NAME(cuDeviceGetName, hipDeviceGetName)(char* name, int bytes, int device) {
  DEVICE(device);
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", gpu(device).name);
  return ok;
}
EXPORT Code NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(std::size_t* bytes, int device) {
  DEVICE(device);
  return *bytes = machine().settings().memory, ok;
}
EXPORT Code NAME(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char* text, int bytes, int device) {
  DEVICE(device);
  if (bytes < 13) return machine().breach("the buffer has fewer than 13 bytes", invalid_value);
  std::snprintf(text, static_cast<std::size_t>(bytes), NAME("0000:%02X:00.0", "0000:%02x:00.0"), first_bus + device);
  return ok;
}
EXPORT Code NAME(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)(int* can, int device, int peer) {
  DEVICE(device);
  if (machine().primary(peer) == nullptr) return machine().breach("no such device", invalid_device);
  return *can = machine().can_reach(device, peer), ok;
}

// Memory.

EXPORT Code NAME(cuMemGetInfo_v2, hipMemGetInfo)(std::size_t* free, std::size_t* total) {
  ENTER();
  *free = machine().free_bytes(context->device);
  *total = machine().settings().memory;
  return ok;
}
EXPORT Code NAME(cuMemAlloc_v2, hipMalloc)(Address* address, std::size_t bytes) {
  ENTER();
  std::uint64_t made = 0;
  const Code code = machine().allocate(*context, bytes, &made);
  if (code == ok) *address = (Address)made;
  return code;
}
EXPORT Code NAME(cuMemFree_v2, hipFree)(Address address) {
  ENTER_FAILED_TOO();
  return machine().free((std::uint64_t)address);
}
EXPORT Code NAME(cuMemHostAlloc, hipHostMalloc)(void** address, std::size_t bytes, unsigned flags) {
  ENTER();
  if ((flags & ~host_flags) != 0) return machine().breach("unknown flags", invalid_value);
  return machine().allocate_host(*context, bytes, address);
}
EXPORT Code NAME(cuMemFreeHost, hipHostFree)(void* address) {
  ENTER_FAILED_TOO();
  return machine().free_host(address);
}
#define COPY(cuda, hip, To, From, direction)                                                                          \
  EXPORT Code NAME(cuda, hip)(To to, From from, std::size_t bytes, void* handle) {                                    \
    ENTER();                                                                                                          \
    STREAM(handle);                                                                                                   \
    return machine().copy(*context, (std::uint64_t)to, (std::uint64_t)from, bytes, Machine::Copy::direction, *stream, \
                          false);                                                                                     \
  }
COPY(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, Address, const void*, to_device)
COPY(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, void*, Address, to_host)
COPY(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, Address, Address, on_device)
#define FILL(cuda, hip, type, unit)                                                                             \
  EXPORT Code NAME(cuda, hip)(Address to, type value, std::size_t count, void* handle) {                        \
    ENTER();                                                                                                    \
    STREAM(handle);                                                                                             \
    return machine().fill(*context, (std::uint64_t)to, static_cast<std::uint32_t>(value), unit, count, *stream, \
                          false);                                                                               \
  }
FILL(cuMemsetD8Async, hipMemsetD8Async, unsigned char, 1)
FILL(cuMemsetD16Async, hipMemsetD16Async, unsigned short, 2)
FILL(cuMemsetD32Async, hipMemsetD32Async, unsigned, 4)  // the parameter is an int in HIP

// Streams and events.

EXPORT Code NAME(cuStreamCreate, hipStreamCreateWithFlags)(Stream** stream, unsigned flags) {
  ENTER();
  if (flags > 1) return machine().breach("unknown flags", invalid_value);
  return machine().create_stream(*context, flags != 1, stream);
}
EXPORT Code NAME(cuStreamDestroy_v2, hipStreamDestroy)(void* handle) {
  ANY_STREAM(handle);
  if (stream->null) return machine().breach("the context's own stream cannot be destroyed", invalid_handle);
  return machine().destroy(stream);
}
EXPORT Code NAME(cuStreamSynchronize, hipStreamSynchronize)(void* handle) {
  ANY_STREAM(handle);
  return machine().synchronise(*stream);
}
EXPORT Code NAME(cuStreamWaitEvent, hipStreamWaitEvent)(void* handle, void* event_handle, unsigned flags) {
  ENTER();
  STREAM(handle);
  EVENT(event_handle);
  if ((flags & ~wait_flags) != 0) return machine().breach("unknown flags", invalid_value);
  return machine().wait(*stream, *event);
}
EXPORT Code NAME(cuEventCreate, hipEventCreateWithFlags)(Event** event, unsigned flags) {
  ENTER();
  if ((flags & ~event_flags) != 0) return machine().breach("unknown flags", invalid_value);
  const Code code = machine().create_event(*context, (flags & 2) == 0, event);
  if (code == ok) (*event)->blocking = (flags & 1) != 0;
  return code;
}
EXPORT Code NAME(cuEventRecord, hipEventRecord)(void* event_handle, void* handle) {
  ENTER();
  EVENT(event_handle);
  STREAM(handle);
  return machine().record(*context, *event, *stream);
}
EXPORT Code NAME(cuEventQuery, hipEventQuery)(void* event_handle) {
  BEGIN();
  EVENT(event_handle);
  return machine().query(*event);
}
EXPORT Code NAME(cuEventSynchronize, hipEventSynchronize)(void* event_handle) {
  BEGIN();
  EVENT(event_handle);
  return machine().synchronise(*event);
}
EXPORT Code NAME(cuEventDestroy_v2, hipEventDestroy)(void* event_handle) {
  BEGIN();
  EVENT(event_handle);
  return machine().destroy(event);
}

// Kernels.

EXPORT Code NAME(cuModuleUnload, hipModuleUnload)(Module* module) {
  ENTER_FAILED_TOO();
  return machine().unload(context, module);
}
EXPORT Code NAME(cuModuleGetFunction, hipModuleGetFunction)(Function** function, Module* module, const char* entry) {
  ENTER();
  return machine().function(*context, module, entry, function);
}
EXPORT Code NAME(cuLaunchKernel, hipModuleLaunchKernel)(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                                        unsigned block_x, unsigned block_y, unsigned block_z,
                                                        unsigned shared_bytes, void* stream_handle, void** parameters,
                                                        void** extra) {
  ENTER();
  FUNCTION(handle);
  STREAM(stream_handle);
  allow_shared(function, shared_bytes);
  return machine().launch(*context, *function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                          *stream, parameters, extra);
}

// Graphs.

EXPORT Code NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void* handle, int mode) {
  ENTER();
  STREAM(handle);
  if (mode < 0 || mode > 2) return machine().breach("unknown mode", invalid_value);
  return machine().begin_capture(*stream, mode);
}
EXPORT Code NAME(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode)(int* mode) {
  if (const Code entered = machine().enter(__func__); entered != ok) return entered;
  return machine().exchange_capture_mode(mode);
}
EXPORT Code NAME(cuStreamEndCapture, hipStreamEndCapture)(void* handle, Graph** graph) {
  ENTER();
  STREAM(handle);
  return machine().end_capture(*stream, graph);
}
EXPORT Code NAME(cuStreamGetCaptureInfo_v2,
                 hipStreamGetCaptureInfo_v2)(void* handle, int* status, unsigned long long* id, Graph** graph,
                                             const void* const** newest, std::size_t* count) {
  ENTER();
  STREAM(handle);
  if (status == nullptr) return machine().breach("the status pointer is null", invalid_value);
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
EXPORT Code NAME(cuGraphDestroy, hipGraphDestroy)(void* graph) {
  ENTER_FAILED_TOO();
  return machine().destroy_graph(graph);
}
EXPORT Code NAME(cuGraphExecDestroy, hipGraphExecDestroy)(void* executable) {
  ENTER_FAILED_TOO();
  return machine().destroy_executable(executable);
}
EXPORT Code NAME(cuGraphLaunch, hipGraphLaunch)(void* executable, void* handle) {
  ENTER();
  STREAM(handle);
  return machine().launch_graph(*context, executable, *stream);
}
EXPORT Code NAME(cuGraphExecKernelNodeSetParams, hipGraphExecKernelNodeSetParams)(void* executable, void* node,
                                                                                  const KernelNodeParams* p) {
  ENTER();
  FUNCTION(p->function);
  return machine().set_kernel_node(*context, executable, node, *function, {p->grid_x, p->grid_y, p->grid_z},
                                   {p->block_x, p->block_y, p->block_z}, p->shared_bytes, p->parameters, p->extra);
}
