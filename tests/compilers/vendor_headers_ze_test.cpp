// SPDX-License-Identifier: Apache-2.0
// Compares the declarations in backend/oneapi/api.h with level_zero/ze_api.h, ocloc_api.h and CL/cl.h, if these are
// installed. Differences are compile errors. If a header is missing, the test is skipped.
#include <gtest/gtest.h>

#if __has_include(<level_zero/ze_api.h>)
#include <level_zero/ze_api.h>
#endif
#if __has_include(<ocloc_api.h>)
#include <ocloc_api.h>
#endif
#if __has_include(<CL/cl_ext.h>)
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#endif

#include "tessera/backend/oneapi/api.h"
#include "tests/compilers/vendor_headers.h"

namespace ours = tessera::oneapi;

#define SAME_FIELD(mine, field, theirs, name)                            \
  static_assert(offsetof(ours::mine, field) == offsetof(theirs, name) && \
                sizeof(ours::mine::field) == sizeof(theirs::name));

TEST(VendorHeaders, LevelZeroDeclarationsMatch) {
#if __has_include(<level_zero/ze_api.h>)
  using namespace tessera::oneapi;
  TESSERA_ZE(TESSERA_SAME)
  TESSERA_ZE_OPTIONAL(TESSERA_SAME)
#ifdef ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_NAME  // 1.9
  TESSERA_ZE_LISTS(TESSERA_SAME)
#endif
  static_assert(sizeof(ExtensionProperties) == sizeof(ze_driver_extension_properties_t));
  static_assert(offsetof(ExtensionProperties, version) == offsetof(ze_driver_extension_properties_t, version));
  static_assert(sizeof(ze_result_t) == sizeof(ours::Code));
#define SAME_STRUCTURE(mine, theirs, what)                                                       \
  static_assert(sizeof(ours::mine) == sizeof(theirs) && alignof(ours::mine) == alignof(theirs)); \
  EXPECT_EQ(ours::mine{}.type, static_cast<std::uint32_t>(what));                                \
  SAME_FIELD(mine, type, theirs, stype)                                                          \
  SAME_FIELD(mine, next, theirs, pNext)
  SAME_STRUCTURE(ListDesc, ze_command_list_desc_t, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC)
  SAME_FIELD(ListDesc, ordinal, ze_command_list_desc_t, commandQueueGroupOrdinal)
  SAME_FIELD(ListDesc, flags, ze_command_list_desc_t, flags)
  SAME_STRUCTURE(DriverProperties, ze_driver_properties_t, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES)
  SAME_FIELD(DriverProperties, version, ze_driver_properties_t, driverVersion)
  SAME_STRUCTURE(DeviceProperties, ze_device_properties_t, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES)
  SAME_FIELD(DeviceProperties, kind, ze_device_properties_t, type)
  SAME_FIELD(DeviceProperties, vendor, ze_device_properties_t, vendorId)
  SAME_FIELD(DeviceProperties, device, ze_device_properties_t, deviceId)
  SAME_FIELD(DeviceProperties, flags, ze_device_properties_t, flags)
  SAME_FIELD(DeviceProperties, largest_allocation, ze_device_properties_t, maxMemAllocSize)
  SAME_FIELD(DeviceProperties, units_per_subslice, ze_device_properties_t, numEUsPerSubslice)
  SAME_FIELD(DeviceProperties, subslices_per_slice, ze_device_properties_t, numSubslicesPerSlice)
  SAME_FIELD(DeviceProperties, slices, ze_device_properties_t, numSlices)
  SAME_FIELD(DeviceProperties, uuid, ze_device_properties_t, uuid)
  SAME_FIELD(DeviceProperties, name, ze_device_properties_t, name)
  SAME_STRUCTURE(ComputeProperties, ze_device_compute_properties_t, ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES)
  SAME_FIELD(ComputeProperties, group_threads, ze_device_compute_properties_t, maxTotalGroupSize)
  static_assert(offsetof(ours::ComputeProperties, group_size) ==
                offsetof(ze_device_compute_properties_t, maxGroupSizeX));
  static_assert(offsetof(ours::ComputeProperties, group_count) ==
                offsetof(ze_device_compute_properties_t, maxGroupCountX));
  SAME_FIELD(ComputeProperties, shared_bytes, ze_device_compute_properties_t, maxSharedLocalMemory)
  SAME_FIELD(ComputeProperties, subgroup_sizes, ze_device_compute_properties_t, numSubGroupSizes)
  SAME_FIELD(ComputeProperties, subgroup_size, ze_device_compute_properties_t, subGroupSizes)
  SAME_STRUCTURE(ModuleProperties, ze_device_module_properties_t, ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES)
  SAME_FIELD(ModuleProperties, flags, ze_device_module_properties_t, flags)
  SAME_FIELD(ModuleProperties, fp32, ze_device_module_properties_t, fp32flags)
  SAME_FIELD(ModuleProperties, argument_bytes, ze_device_module_properties_t, maxArgumentsSize)
  SAME_STRUCTURE(QueueGroupProperties, ze_command_queue_group_properties_t,
                 ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES)
  SAME_FIELD(QueueGroupProperties, flags, ze_command_queue_group_properties_t, flags)
  SAME_STRUCTURE(MemoryProperties, ze_device_memory_properties_t, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES)
  SAME_FIELD(MemoryProperties, bytes, ze_device_memory_properties_t, totalSize)
  SAME_STRUCTURE(PciProperties, ze_pci_ext_properties_t, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES)
  static_assert(offsetof(ours::PciProperties, domain) == offsetof(ze_pci_ext_properties_t, address.domain));
  static_assert(offsetof(ours::PciProperties, function) == offsetof(ze_pci_ext_properties_t, address.function));
  SAME_STRUCTURE(KernelProperties, ze_kernel_properties_t, ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES)
  SAME_FIELD(KernelProperties, most_subgroup_size, ze_kernel_properties_t, maxSubgroupSize)
  SAME_FIELD(KernelProperties, most_subgroups, ze_kernel_properties_t, maxNumSubgroups)
  SAME_STRUCTURE(ContextDesc, ze_context_desc_t, ZE_STRUCTURE_TYPE_CONTEXT_DESC)
  SAME_STRUCTURE(QueueDesc, ze_command_queue_desc_t, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC)
  SAME_FIELD(QueueDesc, ordinal, ze_command_queue_desc_t, ordinal)
  SAME_FIELD(QueueDesc, flags, ze_command_queue_desc_t, flags)
  SAME_FIELD(QueueDesc, mode, ze_command_queue_desc_t, mode)
  SAME_STRUCTURE(PoolDesc, ze_event_pool_desc_t, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC)
  SAME_FIELD(PoolDesc, flags, ze_event_pool_desc_t, flags)
  SAME_FIELD(PoolDesc, count, ze_event_pool_desc_t, count)
  SAME_STRUCTURE(EventDesc, ze_event_desc_t, ZE_STRUCTURE_TYPE_EVENT_DESC)
  SAME_FIELD(EventDesc, index, ze_event_desc_t, index)
  SAME_FIELD(EventDesc, signal, ze_event_desc_t, signal)
  SAME_FIELD(EventDesc, wait, ze_event_desc_t, wait)
  SAME_STRUCTURE(DeviceMemoryDesc, ze_device_mem_alloc_desc_t, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC)
  SAME_STRUCTURE(HostMemoryDesc, ze_host_mem_alloc_desc_t, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC)
  SAME_STRUCTURE(RelaxedLimitsDesc, ze_relaxed_allocation_limits_exp_desc_t,
                 ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC)
  SAME_FIELD(RelaxedLimitsDesc, flags, ze_relaxed_allocation_limits_exp_desc_t, flags)
  SAME_STRUCTURE(ModuleDesc, ze_module_desc_t, ZE_STRUCTURE_TYPE_MODULE_DESC)
  SAME_FIELD(ModuleDesc, format, ze_module_desc_t, format)
  SAME_FIELD(ModuleDesc, bytes, ze_module_desc_t, inputSize)
  SAME_FIELD(ModuleDesc, image, ze_module_desc_t, pInputModule)
  SAME_FIELD(ModuleDesc, flags, ze_module_desc_t, pBuildFlags)
  SAME_STRUCTURE(KernelDesc, ze_kernel_desc_t, ZE_STRUCTURE_TYPE_KERNEL_DESC)
  SAME_FIELD(KernelDesc, name, ze_kernel_desc_t, pKernelName)
  static_assert(sizeof(ours::GroupCount) == sizeof(ze_group_count_t));

  static_assert(ZE_INIT_FLAG_GPU_ONLY == ours::gpus_only && ZE_DEVICE_TYPE_GPU == ours::type_gpu);
  static_assert(ZE_DEVICE_PROPERTY_FLAG_INTEGRATED == ours::device_integrated);
  static_assert(ZE_DEVICE_MODULE_FLAG_FP64 == ours::module_fp64);
  static_assert(ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS == ours::module_int64_atomics);
  static_assert(ZE_DEVICE_MODULE_FLAG_DP4A == ours::module_dp4a);
  static_assert(ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT == ours::fp_rounded_divide_sqrt);
  static_assert(ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE == ours::group_computes);
  static_assert(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS == ours::queue_asynchronous);
  static_assert(ZE_EVENT_POOL_FLAG_HOST_VISIBLE == ours::pool_host_visible);
  static_assert(ZE_EVENT_SCOPE_FLAG_HOST == ours::scope_host);
  static_assert(ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE == ours::limits_max_size);
  static_assert(ZE_MODULE_FORMAT_NATIVE == ours::format_native);
  static_assert(ZE_RESULT_NOT_READY == ours::not_ready && ZE_RESULT_ERROR_DEVICE_LOST == ours::device_lost);
  static_assert(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY == ours::no_host_memory);
  static_assert(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY == ours::no_device_memory);
  static_assert(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE == ours::build_failure);
  static_assert(ZE_RESULT_ERROR_MODULE_LINK_FAILURE == ours::link_failure);
  static_assert(ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET == ours::requires_reset);
  static_assert(ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE == ours::low_power);
  static_assert(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS == ours::no_permission);
  static_assert(ZE_RESULT_ERROR_NOT_AVAILABLE == ours::not_available);
  static_assert(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE == ours::no_dependency);
  static_assert(ZE_RESULT_ERROR_UNINITIALIZED == ours::uninitialized);
  static_assert(ZE_RESULT_ERROR_UNSUPPORTED_VERSION == ours::unsupported_version);
  static_assert(ZE_RESULT_ERROR_UNSUPPORTED_SIZE == ours::unsupported_size);
  static_assert(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY == 0x7800000f);
  static_assert(ZE_RESULT_ERROR_INVALID_KERNEL_NAME == 0x78000011);
  static_assert(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION == 0x78000013);
  static_assert(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE == 0x78000016);
  static_assert(ZE_RESULT_ERROR_OVERLAPPING_REGIONS == ours::overlapping_regions);
  static_assert(ZE_RESULT_ERROR_UNKNOWN == ours::unknown);
#else
  GTEST_SKIP() << "passed by: level_zero/ze_api.h is not installed (Debian: libze-dev; cmake "
                  "-DTESSERA_ZE_HEADERS=FOLDER)";
#endif
}

TEST(VendorHeaders, OclocDeclarationsMatch) {
#if __has_include(<ocloc_api.h>)
  using namespace tessera::oneapi;
  TESSERA_OCLOC(TESSERA_SAME)
#else
  GTEST_SKIP() << "passed by: ocloc_api.h is not installed (Debian: intel-opencl-icd)";
#endif
}

TEST(VendorHeaders, IntelOpenclDeclarationsMatch) {
#if __has_include(<CL/cl_ext.h>)
  using namespace tessera::oneapi;
  TESSERA_CL_COMPILER(TESSERA_SAME)
  static_assert(CL_DEVICE_TYPE_GPU == ours::cl_type_gpu && CL_DEVICE_VENDOR_ID == ours::cl_device_vendor_id);
  static_assert(CL_DEVICE_UUID_KHR == ours::cl_device_uuid && CL_DEVICE_PCI_BUS_INFO_KHR == ours::cl_pci_bus_info);
  static_assert(CL_PROGRAM_BUILD_LOG == ours::cl_build_log && CL_PROGRAM_BINARY_SIZES == ours::cl_binary_sizes);
  static_assert(CL_PROGRAM_BINARIES == ours::cl_binaries && CL_BUILD_PROGRAM_FAILURE == ours::cl_build_failure);
  static_assert(CL_INVALID_DEVICE == ours::ocloc_unknown_device);
#else
  GTEST_SKIP() << "passed by: CL/cl_ext.h is not installed (Debian: opencl-c-headers)";
#endif
}
