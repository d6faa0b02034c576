// SPDX-License-Identifier: Apache-2.0
// The functions of OpenCL 1.2 that Tessera calls, declared here so that no OpenCL header is needed to build. Names and
// values follow Khronos' specification of OpenCL 3.0. Used only in this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/os/library.h"

namespace tessera::cl {

struct PlatformId_;
struct DeviceId_;
struct Context_;
struct Queue_;
struct Memory_;
struct Program_;
struct Kernel_;
struct Event_;
using PlatformId = PlatformId_*;
using DeviceId = DeviceId_*;
using Context = Context_*;
using Queue = Queue_*;
using Memory = Memory_*;
using Program = Program_*;
using Kernel = Kernel_*;
using Event = Event_*;
using Code = std::int32_t;
using Bits = std::uint64_t;

inline constexpr Code success = 0, device_not_found = -1, device_not_available = -2, allocation_failure = -4,
                      out_of_resources = -5, out_of_host_memory = -6, build_failure = -11, failed_before = -14,
                      invalid_buffer_size = -61, platform_not_found = -1001;

inline constexpr std::uint32_t platform_version = 0x0901, platform_name = 0x0902;
inline constexpr Bits type_cpu = 2, type_gpu = 4, type_all = 0xFFFFFFFF;
inline constexpr std::uint32_t device_type = 0x1000, max_compute_units = 0x1002, max_work_group_size = 0x1004,
                               max_work_item_sizes = 0x1005, native_vector_width_float = 0x103A,
                               single_fp_config = 0x101B, global_mem_size = 0x101F, local_mem_size = 0x1023,
                               max_parameter_size = 0x1017, max_mem_alloc_size = 0x1010, device_available = 0x1027,
                               compiler_available = 0x1028, device_name = 0x102B, device_vendor = 0x102C,
                               driver_version = 0x102D, device_version = 0x102F, device_extensions = 0x1030,
                               double_fp_config = 0x1032, host_unified_memory = 0x1035, max_num_sub_groups = 0x105C,
                               device_uuid_khr = 0x106A, opencl_c_features = 0x106F, pci_bus_info_khr = 0x410F,
                               sub_group_sizes_intel = 0x4108, warp_size_nv = 0x4003, pci_bus_id_nv = 0x4008,
                               pci_slot_id_nv = 0x4009, pci_domain_id_nv = 0x400A, topology_amd = 0x4037,
                               global_free_memory_amd = 0x4039, wavefront_width_amd = 0x4043;
inline constexpr Bits fp_correctly_rounded_divide_sqrt = 1 << 7;
inline constexpr Bits mem_read_write = 1, mem_alloc_host_ptr = 1 << 4, map_read = 1, map_write = 2;
inline constexpr std::uint32_t program_build_log = 0x1183, kernel_work_group_size = 0x11B0, event_status = 0x11D3;

/// The entry points of the loader or of the drivers, or the reason why there are none.
struct Api {
  os::Library library;
  std::string missing;  ///< name of a required function that the library lacks
  bool direct = false;  ///< no loader is used, and `library` is the first driver that could be opened
  std::string refused;  ///< if `direct`: why a driver could not be opened

  Code (*get_platforms)(std::uint32_t, PlatformId*, std::uint32_t*) = nullptr;
  Code (*get_platform_info)(PlatformId, std::uint32_t, std::size_t, void*, std::size_t*) = nullptr;
  Code (*get_devices)(PlatformId, Bits, std::uint32_t, DeviceId*, std::uint32_t*) = nullptr;
  Code (*get_device_info)(DeviceId, std::uint32_t, std::size_t, void*, std::size_t*) = nullptr;
  Context (*create_context)(const std::intptr_t*, std::uint32_t, const DeviceId*,
                            void (*)(const char*, const void*, std::size_t, void*), void*, Code*) = nullptr;
  Queue (*create_queue)(Context, DeviceId, Bits, Code*) = nullptr;
  Code (*release_queue)(Queue) = nullptr;
  Memory (*create_buffer)(Context, Bits, std::size_t, void*, Code*) = nullptr;
  Code (*release_memory)(Memory) = nullptr;
  Program (*create_program)(Context, std::uint32_t, const char**, const std::size_t*, Code*) = nullptr;
  Code (*build_program)(Program, std::uint32_t, const DeviceId*, const char*, void (*)(Program, void*),
                        void*) = nullptr;
  Code (*get_build_info)(Program, DeviceId, std::uint32_t, std::size_t, void*, std::size_t*) = nullptr;
  Code (*release_program)(Program) = nullptr;
  Kernel (*create_kernel)(Program, const char*, Code*) = nullptr;
  Code (*release_kernel)(Kernel) = nullptr;
  Code (*set_argument)(Kernel, std::uint32_t, std::size_t, const void*) = nullptr;
  Code (*get_kernel_group_info)(Kernel, DeviceId, std::uint32_t, std::size_t, void*, std::size_t*) = nullptr;
  Code (*enqueue_kernel)(Queue, Kernel, std::uint32_t, const std::size_t*, const std::size_t*, const std::size_t*,
                         std::uint32_t, const Event*, Event*) = nullptr;
  Code (*enqueue_write)(Queue, Memory, std::uint32_t, std::size_t, std::size_t, const void*, std::uint32_t,
                        const Event*, Event*) = nullptr;
  Code (*enqueue_read)(Queue, Memory, std::uint32_t, std::size_t, std::size_t, void*, std::uint32_t, const Event*,
                       Event*) = nullptr;
  Code (*enqueue_copy)(Queue, Memory, Memory, std::size_t, std::size_t, std::size_t, std::uint32_t, const Event*,
                       Event*) = nullptr;
  Code (*enqueue_fill)(Queue, Memory, const void*, std::size_t, std::size_t, std::size_t, std::uint32_t, const Event*,
                       Event*) = nullptr;
  void* (*enqueue_map)(Queue, Memory, std::uint32_t, Bits, std::size_t, std::size_t, std::uint32_t, const Event*,
                       Event*, Code*) = nullptr;
  Code (*enqueue_unmap)(Queue, Memory, void*, std::uint32_t, const Event*, Event*) = nullptr;
  Code (*enqueue_marker)(Queue, std::uint32_t, const Event*, Event*) = nullptr;
  Code (*enqueue_barrier)(Queue, std::uint32_t, const Event*, Event*) = nullptr;
  Code (*get_event_info)(Event, std::uint32_t, std::size_t, void*, std::size_t*) = nullptr;
  Code (*wait_events)(std::uint32_t, const Event*) = nullptr;
  Code (*release_event)(Event) = nullptr;
  Code (*flush)(Queue) = nullptr;
  Code (*finish)(Queue) = nullptr;

  bool usable() const { return library.loaded() && missing.empty(); }
};

/// Returns the entry points. The first call opens the drivers that were passed to set_drivers(). If there are none, it
/// opens the loader: libOpenCL, or the file in TESSERA_OPENCL_LIBRARY.
const Api& api();
/// Selects the drivers that the next call of api() opens without the loader. `drivers` are the files that register them
/// (see icd.h). An empty list, or a list with one empty name, selects the loader.
void set_drivers(const std::vector<std::string>& drivers);
/// Returns the file names to try for the loader.
std::vector<std::string> loader_candidates();
/// Returns the name and value of a code: "CL_OUT_OF_RESOURCES (-5)".
std::string code_text(Code code);
/// Throws unless `code` is success. The message names the function. Throws OutOfMemory if the code reports a lack of
/// memory. Throws KernelError if the driver rejected the call (CL_INVALID_...). The call then had no effect, and the
/// device remains usable. Throws DeviceLost for all other codes. The device is then marked as lost.
void check(Code code, const char* function, const std::string& subject = {});

}  // namespace tessera::cl
