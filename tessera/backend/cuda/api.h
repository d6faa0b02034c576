// SPDX-License-Identifier: Apache-2.0
// The functions of NVIDIA's driver library and of NVRTC that Tessera calls, declared here so that no CUDA header is
// needed to build. Names, values and signatures follow the CUDA driver API reference and the NVRTC guide (11.2 to 13).
// If NVIDIA's headers are installed, tests/compilers/vendor_headers_*_test.cpp compare the declarations with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera::cuda {

struct Context_;
struct Stream_;
struct Event_;
struct Module_;
struct Function_;
struct Program_;
struct Graph_;
struct Node_;
struct Executable_;
struct Linker_;
using Context = Context_*;
using Stream = Stream_*;
using Event = Event_*;
using Module = Module_*;
using Function = Function_*;
using Program = Program_*;
using Graph = Graph_*;
using Node = Node_*;                 ///< of a graph
using Executable = Executable_*;     ///< an instantiated graph
using Linker = Linker_*;             ///< CUlinkState
using Code = int;                    ///< CUresult, nvrtcResult
using Ordinal = int;                 ///< CUdevice
using Address = unsigned long long;  ///< CUdeviceptr
struct Uuid {
  char bytes[16];
};

// CUdevice_attribute
inline constexpr int max_threads_per_block = 1, max_block_dim_x = 2, max_block_dim_y = 3, max_block_dim_z = 4,
                     max_grid_dim_x = 5, max_grid_dim_y = 6, max_grid_dim_z = 7, max_shared_memory_per_block = 8,
                     warp_size = 10, multiprocessor_count = 16, integrated = 18, compute_mode = 20, pci_bus_id = 33,
                     pci_device_id = 34, pci_domain_id = 50, compute_capability_major = 75,
                     compute_capability_minor = 76, max_shared_memory_per_block_optin = 97;
inline constexpr int compute_mode_prohibited = 2;
// Flags
inline constexpr unsigned stream_non_blocking = 1, event_blocking_sync = 1, event_disable_timing = 2,
                          host_alloc_portable = 1;
// CUstreamCaptureMode. This mode restricts only the capturing thread. Other threads may make any call.
inline constexpr int capture_thread_local = 1;
/// CUDA_KERNEL_NODE_PARAMS_v1, which every CUDA version accepts.
struct KernelNode {
  Function function = nullptr;
  unsigned grid[3] = {}, block[3] = {};
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
};
// CUfunction_attribute
inline constexpr int function_max_threads_per_block = 0, function_max_dynamic_shared_size = 8;
// CUjit_option
inline constexpr int jit_error_log_buffer = 5, jit_error_log_buffer_size_bytes = 6;
// CUjitInputType
inline constexpr int jit_input_ptx = 1;
// nvrtcResult
inline constexpr Code nvrtc_out_of_memory = 1, nvrtc_compilation = 6;

// X-macros: member of the table, symbol in the library, type.
// clang-format off
#define TESSERA_CUDA_DRIVER(M)                                                                                  \
  M(init, cuInit, Code(unsigned flags))                                                                         \
  M(driver_version, cuDriverGetVersion, Code(int* version))                                                     \
  M(error_name, cuGetErrorName, Code(Code, const char** text))                                                  \
  M(error_string, cuGetErrorString, Code(Code, const char** text))                                              \
  M(device_count, cuDeviceGetCount, Code(int* count))                                                           \
  M(device_get, cuDeviceGet, Code(Ordinal*, int number))                                                        \
  M(device_name, cuDeviceGetName, Code(char* name, int bytes, Ordinal))                                         \
  M(device_total_memory, cuDeviceTotalMem_v2, Code(std::size_t* bytes, Ordinal))                                \
  M(device_attribute, cuDeviceGetAttribute, Code(int* value, int attribute, Ordinal))                           \
  M(device_pci, cuDeviceGetPCIBusId, Code(char* text, int bytes, Ordinal))                                      \
  M(retain_context, cuDevicePrimaryCtxRetain, Code(Context*, Ordinal))                                          \
  M(current_context, cuCtxGetCurrent, Code(Context*))                                                           \
  M(set_current_context, cuCtxSetCurrent, Code(Context))                                                        \
  M(memory_info, cuMemGetInfo_v2, Code(std::size_t* free, std::size_t* total))                                  \
  M(allocate, cuMemAlloc_v2, Code(Address*, std::size_t bytes))                                                 \
  M(release, cuMemFree_v2, Code(Address))                                                                       \
  M(allocate_host, cuMemHostAlloc, Code(void**, std::size_t bytes, unsigned flags))                             \
  M(release_host, cuMemFreeHost, Code(void*))                                                                   \
  M(create_stream, cuStreamCreate, Code(Stream*, unsigned flags))                                               \
  M(destroy_stream, cuStreamDestroy_v2, Code(Stream))                                                           \
  M(synchronize_stream, cuStreamSynchronize, Code(Stream))                                                      \
  M(stream_wait_event, cuStreamWaitEvent, Code(Stream, Event, unsigned flags))                                  \
  M(create_event, cuEventCreate, Code(Event*, unsigned flags))                                                  \
  M(record_event, cuEventRecord, Code(Event, Stream))                                                           \
  M(query_event, cuEventQuery, Code(Event))                                                                     \
  M(synchronize_event, cuEventSynchronize, Code(Event))                                                         \
  M(destroy_event, cuEventDestroy_v2, Code(Event))                                                              \
  M(copy_to_device, cuMemcpyHtoDAsync_v2, Code(Address to, const void* from, std::size_t bytes, Stream))        \
  M(copy_to_host, cuMemcpyDtoHAsync_v2, Code(void* to, Address from, std::size_t bytes, Stream))                \
  M(copy_on_device, cuMemcpyDtoDAsync_v2, Code(Address to, Address from, std::size_t bytes, Stream))            \
  M(can_access_peer, cuDeviceCanAccessPeer, Code(int* can, Ordinal, Ordinal peer))                              \
  M(enable_peer, cuCtxEnablePeerAccess, Code(Context peer, unsigned flags))                                     \
  M(copy_from_peer, cuMemcpyPeerAsync, Code(Address to, Context, Address from, Context peer, std::size_t bytes, \
                                            Stream))                                                            \
  M(fill8, cuMemsetD8Async, Code(Address, unsigned char value, std::size_t count, Stream))                      \
  M(fill16, cuMemsetD16Async, Code(Address, unsigned short value, std::size_t count, Stream))                   \
  M(fill32, cuMemsetD32Async, Code(Address, unsigned value, std::size_t count, Stream))                         \
  M(load_module, cuModuleLoadDataEx, Code(Module*, const void* image, unsigned, int* options, void** values))   \
  M(unload_module, cuModuleUnload, Code(Module))                                                                \
  M(get_function, cuModuleGetFunction, Code(Function*, Module, const char* entry))                              \
  M(function_attribute, cuFuncGetAttribute, Code(int* value, int attribute, Function))                          \
  M(set_function_attribute, cuFuncSetAttribute, Code(Function, int attribute, int value))                       \
  M(launch, cuLaunchKernel, Code(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,          \
                                 unsigned shared_bytes, Stream, void** arguments, void** extra))

// Functions that older drivers lack. cuDeviceGetUuid_v2 (CUDA 11.4) distinguishes the instances of a partitioned GPU
// (MIG). cuThreadExchangeStreamCaptureMode is available from CUDA 10.1 on.
#define TESSERA_CUDA_DRIVER_OPTIONAL(M)                                                                         \
  M(device_uuid, cuDeviceGetUuid_v2, Code(Uuid*, Ordinal))                                                      \
  M(device_uuid_old, cuDeviceGetUuid, Code(Uuid*, Ordinal))                                                     \
  M(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, Code(int* mode))

// The driver's compiler for PTX, as a function that returns machine code. Without it, modules are loaded from PTX.
#define TESSERA_CUDA_LINKER(M)                                                                                  \
  M(link_create, cuLinkCreate_v2, Code(unsigned, int* options, void** values, Linker*))                         \
  M(link_add, cuLinkAddData_v2, Code(Linker, int type, void* data, std::size_t bytes, const char* name,         \
                                     unsigned, int* options, void** values))                                    \
  M(link_complete, cuLinkComplete, Code(Linker, void** machine_code, std::size_t* bytes))                       \
  M(link_destroy, cuLinkDestroy, Code(Linker))

// Graphs, available from CUDA 11.4 on. With older drivers, work is submitted with one call per command. Later headers
// rename some of these functions.
#define TESSERA_CUDA_GRAPHS(M)                                                                                  \
  M(begin_capture, cuStreamBeginCapture_v2, Code(Stream, int mode))                                             \
  M(end_capture, cuStreamEndCapture, Code(Stream, Graph*))                                                      \
  M(instantiate, cuGraphInstantiateWithFlags, Code(Executable*, Graph, unsigned long long flags))               \
  M(destroy_graph, cuGraphDestroy, Code(Graph))                                                                 \
  M(destroy_executable, cuGraphExecDestroy, Code(Executable))                                                   \
  M(launch_graph, cuGraphLaunch, Code(Executable, Stream))
#define TESSERA_CUDA_GRAPH_NODES(M)                                                                             \
  M(capture_info, cuStreamGetCaptureInfo_v2, Code(Stream, int* status, std::uint64_t* id, Graph*,               \
                                                  const Node** newest, std::size_t* count))                     \
  M(set_kernel_node, cuGraphExecKernelNodeSetParams, Code(Executable, Node, const KernelNode*))

#define TESSERA_NVRTC(M)                                                                                        \
  M(version, nvrtcVersion, Code(int* major, int* minor))                                                        \
  M(error_string, nvrtcGetErrorString, const char*(Code))                                                       \
  M(supported_count, nvrtcGetNumSupportedArchs, Code(int* count))                                               \
  M(supported, nvrtcGetSupportedArchs, Code(int* list))                                                         \
  M(create_program, nvrtcCreateProgram, Code(Program*, const char* text, const char* name, int headers,         \
                                             const char* const* header_texts, const char* const* names))        \
  M(compile_program, nvrtcCompileProgram, Code(Program, int options, const char* const* list))                  \
  M(destroy_program, nvrtcDestroyProgram, Code(Program*))                                                       \
  M(log_size, nvrtcGetProgramLogSize, Code(Program, std::size_t*))                                              \
  M(log, nvrtcGetProgramLog, Code(Program, char*))                                                              \
  M(cubin_size, nvrtcGetCUBINSize, Code(Program, std::size_t*))                                                 \
  M(cubin, nvrtcGetCUBIN, Code(Program, char*))                                                                 \
  M(ptx_size, nvrtcGetPTXSize, Code(Program, std::size_t*))                                                     \
  M(ptx, nvrtcGetPTX, Code(Program, char*))
// clang-format on

#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
struct DriverFunctions {
  TESSERA_CUDA_DRIVER(TESSERA_MEMBER)
  TESSERA_CUDA_DRIVER_OPTIONAL(TESSERA_MEMBER)
  TESSERA_CUDA_GRAPHS(TESSERA_MEMBER)
  TESSERA_CUDA_GRAPH_NODES(TESSERA_MEMBER)
  TESSERA_CUDA_LINKER(TESSERA_MEMBER)
  bool graphs = false;  ///< true if the driver has all graph functions
};
struct CompilerFunctions {
  TESSERA_NVRTC(TESSERA_MEMBER)
};
#undef TESSERA_MEMBER

}  // namespace tessera::cuda
