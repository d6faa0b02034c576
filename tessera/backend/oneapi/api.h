// SPDX-License-Identifier: Apache-2.0
// The functions of Intel's Level Zero loader, offline compiler and OpenCL driver that Tessera calls, declared here so
// that no oneAPI header is needed to build. Names, values and signatures follow the Level Zero specification 1.0 to 1.7
// and ocloc's API 1.0. If the vendor's headers are installed, tests/compilers/vendor_headers_ze_test.cpp compares the
// declarations with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera::oneapi {

struct Driver_;
struct Device_;
struct Context_;
struct List_;
struct Pool_;
struct Event_;
struct Module_;
struct Log_;
struct Kernel_;
using DriverHandle = Driver_*;
using DeviceHandle = Device_*;
using ContextHandle = Context_*;
using List = List_*;
using Pool = Pool_*;
using Event = Event_*;
using Module = Module_*;
using Log = Log_*;
using Kernel = Kernel_*;
using Code = int;  ///< ze_result_t: all values are below 2^31

// Structures. Each one starts with its type (ze_structure_type_t) and a pointer to an optional next structure.
struct DriverProperties {
  std::uint32_t type = 0x1;
  void* next = nullptr;
  std::uint8_t uuid[16] = {};
  std::uint32_t version = 0;
};
struct DeviceProperties {
  std::uint32_t type = 0x3;
  void* next = nullptr;
  std::uint32_t kind = 0, vendor = 0, device = 0, flags = 0, subdevice = 0, clock = 0;
  std::uint64_t largest_allocation = 0;
  std::uint32_t contexts = 0, priorities = 0, threads_per_unit = 0, unit_lanes = 0, units_per_subslice = 0,
                subslices_per_slice = 0, slices = 0;
  std::uint64_t timer_resolution = 0;
  std::uint32_t timestamp_bits = 0, kernel_timestamp_bits = 0;
  char uuid[16] = {};
  char name[256] = {};
};
struct ComputeProperties {
  std::uint32_t type = 0x4;
  void* next = nullptr;
  std::uint32_t group_threads = 0, group_size[3] = {}, group_count[3] = {}, shared_bytes = 0, subgroup_sizes = 0,
                subgroup_size[8] = {};
};
struct ModuleProperties {
  std::uint32_t type = 0x5;
  void* next = nullptr;
  std::uint32_t spirv = 0, flags = 0, fp16 = 0, fp32 = 0, fp64 = 0, argument_bytes = 0, print_bytes = 0;
  std::uint8_t native_kernel[16] = {};
};
struct QueueGroupProperties {
  std::uint32_t type = 0x6;
  void* next = nullptr;
  std::uint32_t flags = 0;
  std::size_t fill_pattern_bytes = 0;
  std::uint32_t queues = 0;
};
struct MemoryProperties {
  std::uint32_t type = 0x7;
  void* next = nullptr;
  std::uint32_t flags = 0, clock = 0, bus = 0;
  std::uint64_t bytes = 0;
  char name[256] = {};
};
struct PciProperties {
  std::uint32_t type = 0x10008;
  void* next = nullptr;
  std::uint32_t domain = 0, bus = 0, device = 0, function = 0;
  std::int32_t generation = 0, lanes = 0;
  std::int64_t bandwidth = 0;
};
struct KernelProperties {
  std::uint32_t type = 0x1e;
  void* next = nullptr;
  std::uint32_t arguments = 0, group_size[3] = {}, subgroups = 0, subgroup_size = 0, most_subgroup_size = 0,
                most_subgroups = 0, shared_bytes = 0, private_bytes = 0, spill_bytes = 0;
  std::uint8_t uuid[32] = {};
};
struct ContextDesc {
  std::uint32_t type = 0xd;
  const void* next = nullptr;
  std::uint32_t flags = 0;
};
struct QueueDesc {
  std::uint32_t type = 0xe;
  const void* next = nullptr;
  std::uint32_t ordinal = 0, index = 0, flags = 0, mode = 0, priority = 0;
};
struct ExtensionProperties {
  char name[256] = {};
  std::uint32_t version = 0;
};
inline constexpr const char* appends_lists = "ZE_experimental_immediate_command_list_append";
struct ListDesc {
  std::uint32_t type = 0xf;
  const void* next = nullptr;
  std::uint32_t ordinal = 0, flags = 0;
};
struct PoolDesc {
  std::uint32_t type = 0x10;
  const void* next = nullptr;
  std::uint32_t flags = 0, count = 0;
};
struct EventDesc {
  std::uint32_t type = 0x11;
  const void* next = nullptr;
  std::uint32_t index = 0, signal = 0, wait = 0;
};
struct DeviceMemoryDesc {
  std::uint32_t type = 0x15;
  const void* next = nullptr;
  std::uint32_t flags = 0, ordinal = 0;
};
struct HostMemoryDesc {
  std::uint32_t type = 0x16;
  const void* next = nullptr;
  std::uint32_t flags = 0;
};
/// From the experimental extension "relaxed allocation limits".
struct RelaxedLimitsDesc {
  std::uint32_t type = 0x20001;
  const void* next = nullptr;
  std::uint32_t flags = 0;
};
struct ModuleDesc {
  std::uint32_t type = 0x1b;
  const void* next = nullptr;
  std::uint32_t format = 0;
  std::size_t bytes = 0;
  const std::uint8_t* image = nullptr;
  const char* flags = nullptr;
  const void* constants = nullptr;
};
struct KernelDesc {
  std::uint32_t type = 0x1d;
  const void* next = nullptr;
  std::uint32_t flags = 0;
  const char* name = nullptr;
};
struct GroupCount {
  std::uint32_t x = 0, y = 0, z = 0;
};

inline constexpr std::uint32_t gpus_only = 1, type_gpu = 1, device_integrated = 1, module_fp64 = 2,
                               module_int64_atomics = 4, module_dp4a = 8, fp_rounded_divide_sqrt = 64,
                               group_computes = 1, queue_in_order = 2 /* from 1.7 on */, queue_asynchronous = 2,
                               pool_host_visible = 1, scope_host = 4, limits_max_size = 1, format_native = 1;
inline constexpr std::uint32_t in_order_version = 1 << 16 | 7;
inline constexpr Code not_ready = 1, device_lost = 0x70000001, no_host_memory = 0x70000002,
                      no_device_memory = 0x70000003, build_failure = 0x70000004, link_failure = 0x70000005,
                      requires_reset = 0x70000006, low_power = 0x70000007, no_permission = 0x70010000,
                      not_available = 0x70010001, no_dependency = 0x70020000, uninitialized = 0x78000001,
                      unsupported_version = 0x78000002, unsupported_size = 0x78000009, overlapping_regions = 0x7800001a,
                      unknown = 0x7ffffffe;
inline constexpr std::uint64_t infinite_timeout = ~std::uint64_t{0};

// X-macros: member of the table, symbol in the library, type.
// clang-format off
#define TESSERA_ZE(M)                                                                                            \
  M(init, zeInit, Code(std::uint32_t flags))                                                                     \
  M(drivers, zeDriverGet, Code(std::uint32_t* count, DriverHandle*))                                             \
  M(api_version, zeDriverGetApiVersion, Code(DriverHandle, std::uint32_t* version))                              \
  M(driver_properties, zeDriverGetProperties, Code(DriverHandle, DriverProperties*))                             \
  M(devices, zeDeviceGet, Code(DriverHandle, std::uint32_t* count, DeviceHandle*))                               \
  M(device_properties, zeDeviceGetProperties, Code(DeviceHandle, DeviceProperties*))                             \
  M(compute_properties, zeDeviceGetComputeProperties, Code(DeviceHandle, ComputeProperties*))                    \
  M(module_properties, zeDeviceGetModuleProperties, Code(DeviceHandle, ModuleProperties*))                       \
  M(memory_properties, zeDeviceGetMemoryProperties, Code(DeviceHandle, std::uint32_t* count, MemoryProperties*)) \
  M(can_access_peer, zeDeviceCanAccessPeer, Code(DeviceHandle, DeviceHandle peer, std::uint8_t* can))            \
  M(queue_groups, zeDeviceGetCommandQueueGroupProperties,                                                        \
    Code(DeviceHandle, std::uint32_t* count, QueueGroupProperties*))                                             \
  M(create_context, zeContextCreate, Code(DriverHandle, const ContextDesc*, ContextHandle*))                     \
  M(allocate, zeMemAllocDevice, Code(ContextHandle, const DeviceMemoryDesc*, std::size_t bytes,                  \
                                     std::size_t alignment, DeviceHandle, void**))                               \
  M(allocate_host, zeMemAllocHost,                                                                               \
    Code(ContextHandle, const HostMemoryDesc*, std::size_t bytes, std::size_t alignment, void**))                \
  M(release, zeMemFree, Code(ContextHandle, void*))                                                              \
  M(create_pool, zeEventPoolCreate, Code(ContextHandle, const PoolDesc*, std::uint32_t devices, DeviceHandle*, Pool*)) \
  M(create_event, zeEventCreate, Code(Pool, const EventDesc*, Event*))                                           \
  M(query_event, zeEventQueryStatus, Code(Event))                                                                \
  M(synchronize_event, zeEventHostSynchronize, Code(Event, std::uint64_t nanoseconds))                           \
  M(reset_event, zeEventHostReset, Code(Event))                                                                  \
  M(create_list, zeCommandListCreateImmediate, Code(ContextHandle, DeviceHandle, const QueueDesc*, List*))       \
  M(destroy_list, zeCommandListDestroy, Code(List))                                                              \
  M(append_copy, zeCommandListAppendMemoryCopy,                                                                  \
    Code(List, void* to, const void* from, std::size_t bytes, Event signal, std::uint32_t waits, Event*))        \
  M(append_fill, zeCommandListAppendMemoryFill,                                                                  \
    Code(List, void* to, const void* pattern, std::size_t pattern_bytes, std::size_t bytes, Event signal,        \
         std::uint32_t waits, Event*))                                                                           \
  M(append_barrier, zeCommandListAppendBarrier, Code(List, Event signal, std::uint32_t waits, Event*))           \
  M(append_wait, zeCommandListAppendWaitOnEvents, Code(List, std::uint32_t waits, Event*))                       \
  M(append_launch, zeCommandListAppendLaunchKernel,                                                              \
    Code(List, Kernel, const GroupCount*, Event signal, std::uint32_t waits, Event*))                            \
  M(create_module, zeModuleCreate, Code(ContextHandle, DeviceHandle, const ModuleDesc*, Module*, Log*))          \
  M(destroy_module, zeModuleDestroy, Code(Module))                                                               \
  M(log_text, zeModuleBuildLogGetString, Code(Log, std::size_t* bytes, char* text))                              \
  M(destroy_log, zeModuleBuildLogDestroy, Code(Log))                                                             \
  M(create_kernel, zeKernelCreate, Code(Module, const KernelDesc*, Kernel*))                                     \
  M(destroy_kernel, zeKernelDestroy, Code(Kernel))                                                               \
  M(kernel_properties, zeKernelGetProperties, Code(Kernel, KernelProperties*))                                   \
  M(set_group_size, zeKernelSetGroupSize, Code(Kernel, std::uint32_t x, std::uint32_t y, std::uint32_t z))       \
  M(set_argument, zeKernelSetArgumentValue,                                                                      \
    Code(Kernel, std::uint32_t number, std::size_t bytes, const void* value))

// Part of an extension. Loaders before 1.3 lack this function.
#define TESSERA_ZE_OPTIONAL(M)                                                                                   \
  M(pci, zeDevicePciGetPropertiesExt, Code(DeviceHandle, PciProperties*))

// Command lists that are recorded once, closed, and then appended to an immediate list with one call. They are part of
// the experimental extension "immediate command list append" of Level Zero 1.9. Without it, every command is submitted
// with its own call.
#define TESSERA_ZE_LISTS(M)                                                                                      \
  M(extensions, zeDriverGetExtensionProperties, Code(DriverHandle, std::uint32_t* count, ExtensionProperties*))  \
  M(create_closed_list, zeCommandListCreate, Code(ContextHandle, DeviceHandle, const ListDesc*, List*))          \
  M(close_list, zeCommandListClose, Code(List))                                                                  \
  M(append_lists, zeCommandListImmediateAppendCommandListsExp,                                                   \
    Code(List, std::uint32_t count, List*, Event signal, std::uint32_t waits, Event*))

#define TESSERA_OCLOC(M)                                                                                         \
  M(invoke, oclocInvoke, int(unsigned arguments, const char** list,                                              \
      std::uint32_t sources, const std::uint8_t** data, const std::uint64_t* bytes, const char** names,          \
      std::uint32_t headers, const std::uint8_t** header_data, const std::uint64_t* header_bytes,                \
      const char** header_names,                                                                                 \
      std::uint32_t* outputs, std::uint8_t*** output_data, std::uint64_t** output_bytes, char*** output_names))  \
  M(release, oclocFreeOutput, int(std::uint32_t* outputs, std::uint8_t***, std::uint64_t**, char***))

// The OpenCL functions that are needed to compile a binary. Handles are declared as void pointers. Names and values
// follow Khronos' specification.
#define TESSERA_CL_COMPILER(M)                                                                                   \
  M(platforms, clGetPlatformIDs, Code(std::uint32_t, void**, std::uint32_t*))                                    \
  M(devices, clGetDeviceIDs, Code(void* platform, std::uint64_t type, std::uint32_t, void**, std::uint32_t*))    \
  M(device_info, clGetDeviceInfo, Code(void* device, std::uint32_t, std::size_t, void*, std::size_t*))           \
  M(create_context, clCreateContext,                                                                             \
    void*(const std::intptr_t*, std::uint32_t, void* const*,                                                     \
          void (*)(const char*, const void*, std::size_t, void*), void*, Code*))                                 \
  M(create_program, clCreateProgramWithSource,                                                                   \
    void*(void* context, std::uint32_t, const char**, const std::size_t*, Code*))                                \
  M(build_program, clBuildProgram,                                                                               \
    Code(void* program, std::uint32_t, void* const*, const char* options, void (*)(void*, void*), void*))        \
  M(build_info, clGetProgramBuildInfo,                                                                           \
    Code(void* program, void* device, std::uint32_t, std::size_t, void*, std::size_t*))                          \
  M(program_info, clGetProgramInfo, Code(void* program, std::uint32_t, std::size_t, void*, std::size_t*))        \
  M(release_program, clReleaseProgram, Code(void* program))
// clang-format on

/// Indices of these functions in the dispatch table of a platform (cl_khr_icd). A platform starts with a pointer to
/// this table.
namespace icd_slot {
inline constexpr std::size_t devices = 2, device_info = 3, create_context = 4, create_program = 26,
                             release_program = 29, build_program = 30, program_info = 32, build_info = 33;
}

inline constexpr Code ocloc_unknown_device = -33, cl_build_failure = -11;
inline constexpr std::uint64_t cl_type_gpu = 4;
inline constexpr std::uint32_t cl_device_vendor_id = 0x1001, cl_device_uuid = 0x106A, cl_pci_bus_info = 0x410F,
                               cl_build_log = 0x1183, cl_binary_sizes = 0x1165, cl_binaries = 0x1166;

#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
struct LoaderFunctions {
  TESSERA_ZE(TESSERA_MEMBER)
  TESSERA_ZE_OPTIONAL(TESSERA_MEMBER)
  TESSERA_ZE_LISTS(TESSERA_MEMBER)
  bool lists = false;  ///< true if the driver has all functions for closed lists
};
struct OclocFunctions {
  TESSERA_OCLOC(TESSERA_MEMBER)
};
struct ClFunctions {
  TESSERA_CL_COMPILER(TESSERA_MEMBER)
};
#undef TESSERA_MEMBER

}  // namespace tessera::oneapi
