// SPDX-License-Identifier: Apache-2.0
// The functions of AMD's HIP runtime and run-time compiler that Tessera calls, declared here so that no HIP header is
// needed to build. Names, values and signatures follow the HIP runtime API reference of ROCm 5, 6 and 7. If AMD's
// headers are installed, tests/compilers/vendor_headers_*_test.cpp compare the declarations with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera::rocm {

struct Stream_;
struct Event_;
struct Module_;
struct Function_;
struct Program_;
struct Graph_;
struct Node_;
struct Executable_;
using Stream = Stream_*;
using Event = Event_*;
using Module = Module_*;
using Function = Function_*;
using Program = Program_*;
using Graph = Graph_*;
using Node = Node_*;              ///< of a graph
using Executable = Executable_*;  ///< an instantiated graph
using Code = int;                 ///< hipError_t, hiprtcResult
using Ordinal = int;              ///< hipDevice_t
struct Uuid {
  char bytes[16];
};

// hipDeviceAttribute_t. The values are the same in ROCm 5, 6 and 7.
inline constexpr int compute_mode = 6, integrated = 16, compute_capability_major = 23, max_block_dim_x = 26,
                     max_block_dim_y = 27, max_block_dim_z = 28, max_grid_dim_x = 29, max_grid_dim_y = 30,
                     max_grid_dim_z = 31, max_threads_per_block = 56, compute_capability_minor = 61,
                     multiprocessor_count = 63, max_shared_memory_per_block = 74, warp_size = 87;
inline constexpr int compute_mode_prohibited = 2;
// Flags
inline constexpr unsigned stream_non_blocking = 1, event_blocking_sync = 1, event_disable_timing = 2,
                          host_malloc_portable = 1;
// hipStreamCaptureMode. This mode restricts only the capturing thread. Other threads may make any call.
inline constexpr int capture_thread_local = 1;
/// hipKernelNodeParams. For kernels of modules, `function` is the hipFunction_t.
struct KernelNode {
  unsigned block[3] = {};
  void** extra = nullptr;
  void* function = nullptr;
  unsigned grid[3] = {};
  void** arguments = nullptr;
  unsigned shared_bytes = 0;
};
// hipFunction_attribute
inline constexpr int function_max_threads_per_block = 0;
// hiprtcResult
inline constexpr Code hiprtc_out_of_memory = 1, hiprtc_compilation = 6;

/// Describes hipDeviceProp_t, from which only the name of the architecture is read, because no attribute provides it.
/// ROCm 6 changed the structure and the function that fills it.
struct PropertiesLayout {
  const char* symbol;
  std::size_t bytes, architecture;  ///< size of the structure, and offset of gcnArchName[256]
};
inline constexpr PropertiesLayout properties_5 = {"hipGetDeviceProperties", 792, 396};
inline constexpr PropertiesLayout properties_6 = {"hipGetDevicePropertiesR0600", 1472, 1160};
using GetProperties = Code(void* properties, int device);

// X-macros: member of the table, symbol in the library, type.
// clang-format off
#define TESSERA_HIP(M)                                                                                          \
  M(init, hipInit, Code(unsigned flags))                                                                        \
  M(driver_version, hipDriverGetVersion, Code(int* version))                                                    \
  M(runtime_version, hipRuntimeGetVersion, Code(int* version))                                                  \
  M(error_name, hipGetErrorName, const char*(Code))                                                             \
  M(error_string, hipGetErrorString, const char*(Code))                                                         \
  M(device_count, hipGetDeviceCount, Code(int* count))                                                          \
  M(device_name, hipDeviceGetName, Code(char* name, int bytes, Ordinal))                                        \
  M(device_total_memory, hipDeviceTotalMem, Code(std::size_t* bytes, Ordinal))                                  \
  M(device_attribute, hipDeviceGetAttribute, Code(int* value, int attribute, int device))                       \
  M(device_pci, hipDeviceGetPCIBusId, Code(char* text, int bytes, int device))                                  \
  M(current_device, hipGetDevice, Code(int* device))                                                            \
  M(set_current_device, hipSetDevice, Code(int device))                                                         \
  M(memory_info, hipMemGetInfo, Code(std::size_t* free, std::size_t* total))                                    \
  M(allocate, hipMalloc, Code(void**, std::size_t bytes))                                                       \
  M(release, hipFree, Code(void*))                                                                              \
  M(allocate_host, hipHostMalloc, Code(void**, std::size_t bytes, unsigned flags))                              \
  M(release_host, hipHostFree, Code(void*))                                                                     \
  M(create_stream, hipStreamCreateWithFlags, Code(Stream*, unsigned flags))                                     \
  M(destroy_stream, hipStreamDestroy, Code(Stream))                                                             \
  M(synchronize_stream, hipStreamSynchronize, Code(Stream))                                                     \
  M(stream_wait_event, hipStreamWaitEvent, Code(Stream, Event, unsigned flags))                                 \
  M(create_event, hipEventCreateWithFlags, Code(Event*, unsigned flags))                                        \
  M(record_event, hipEventRecord, Code(Event, Stream))                                                          \
  M(query_event, hipEventQuery, Code(Event))                                                                    \
  M(synchronize_event, hipEventSynchronize, Code(Event))                                                        \
  M(destroy_event, hipEventDestroy, Code(Event))                                                                \
  M(copy_to_device, hipMemcpyHtoDAsync, Code(void* to, void* from, std::size_t bytes, Stream))                  \
  M(copy_to_host, hipMemcpyDtoHAsync, Code(void* to, void* from, std::size_t bytes, Stream))                    \
  M(copy_on_device, hipMemcpyDtoDAsync, Code(void* to, void* from, std::size_t bytes, Stream))                  \
  M(can_access_peer, hipDeviceCanAccessPeer, Code(int* can, int device, int peer))                              \
  M(enable_peer, hipDeviceEnablePeerAccess, Code(int peer, unsigned flags))                                     \
  M(copy_from_peer, hipMemcpyPeerAsync, Code(void* to, int device, const void* from, int peer,                  \
                                             std::size_t bytes, Stream))                                        \
  M(fill8, hipMemsetD8Async, Code(void*, unsigned char value, std::size_t count, Stream))                       \
  M(fill16, hipMemsetD16Async, Code(void*, unsigned short value, std::size_t count, Stream))                    \
  M(fill32, hipMemsetD32Async, Code(void*, int value, std::size_t count, Stream))                               \
  M(load_module, hipModuleLoadData, Code(Module*, const void* image))                                           \
  M(unload_module, hipModuleUnload, Code(Module))                                                               \
  M(get_function, hipModuleGetFunction, Code(Function*, Module, const char* entry))                             \
  M(function_attribute, hipFuncGetAttribute, Code(int* value, int attribute, Function))                         \
  M(launch, hipModuleLaunchKernel, Code(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,   \
                                        unsigned shared_bytes, Stream, void** arguments, void** extra))

// hipDeviceGetUuid (from ROCm 5.2 on) distinguishes the partitions of a card, which report the same PCI address.
#define TESSERA_HIP_OPTIONAL(M)                                                                                 \
  M(device_uuid, hipDeviceGetUuid, Code(Uuid*, Ordinal))                                                        \
  M(exchange_capture_mode, hipThreadExchangeStreamCaptureMode, Code(int* mode))

// Graphs. Without them, every command is submitted with its own call.
#define TESSERA_HIP_GRAPHS(M)                                                                                   \
  M(begin_capture, hipStreamBeginCapture, Code(Stream, int mode))                                               \
  M(end_capture, hipStreamEndCapture, Code(Stream, Graph*))                                                     \
  M(capture_info, hipStreamGetCaptureInfo_v2, Code(Stream, int* status, unsigned long long* id, Graph*,         \
                                                   const Node** newest, std::size_t* count))                    \
  M(instantiate, hipGraphInstantiate, Code(Executable*, Graph, Node* wrong, char* log, std::size_t bytes))      \
  M(destroy_graph, hipGraphDestroy, Code(Graph))                                                                \
  M(destroy_executable, hipGraphExecDestroy, Code(Executable))                                                  \
  M(launch_graph, hipGraphLaunch, Code(Executable, Stream))                                                     \
  M(set_kernel_node, hipGraphExecKernelNodeSetParams, Code(Executable, Node, const KernelNode*))

// These functions are in libhiprtc from ROCm 5.3 on, and in libamdhip64 in earlier versions.
#define TESSERA_HIPRTC(M)                                                                                       \
  M(version, hiprtcVersion, Code(int* major, int* minor))                                                       \
  M(error_string, hiprtcGetErrorString, const char*(Code))                                                      \
  M(create_program, hiprtcCreateProgram, Code(Program*, const char* text, const char* name, int headers,        \
                                              const char** header_texts, const char** names))                   \
  M(compile_program, hiprtcCompileProgram, Code(Program, int options, const char** list))                       \
  M(destroy_program, hiprtcDestroyProgram, Code(Program*))                                                      \
  M(log_size, hiprtcGetProgramLogSize, Code(Program, std::size_t*))                                             \
  M(log, hiprtcGetProgramLog, Code(Program, char*))                                                             \
  M(code_size, hiprtcGetCodeSize, Code(Program, std::size_t*))                                                  \
  M(code, hiprtcGetCode, Code(Program, char*))
// clang-format on

#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
struct RuntimeFunctions {
  TESSERA_HIP(TESSERA_MEMBER)
  TESSERA_HIP_OPTIONAL(TESSERA_MEMBER)
  TESSERA_HIP_GRAPHS(TESSERA_MEMBER)
  bool graphs = false;                                     ///< true if the runtime has all graph functions
  std::add_pointer_t<GetProperties> properties = nullptr;  ///< the function for the library's major version
};
struct CompilerFunctions {
  TESSERA_HIPRTC(TESSERA_MEMBER)
};
#undef TESSERA_MEMBER

}  // namespace tessera::rocm
