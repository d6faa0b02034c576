// SPDX-License-Identifier: Apache-2.0
// Compares the indices of functions in OpenCL's dispatch table with the header of cl_khr_icd, if it is installed
// (Debian: opencl-headers).
#include <gtest/gtest.h>

#if __has_include(<clblast_c.h>)
#define CL_TARGET_OPENCL_VERSION 300
#include <clblast_c.h>
#endif

#include "tessera/backend/oneapi/api.h"
#include "tessera/backend/opencl/clblast.h"
#include "tessera/backend/opencl/dispatch.h"
#include "tests/compilers/vendor_headers.h"

#if __has_include(<CL/cl_icd.h>)
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#include <CL/cl_icd.h>

#include <cstddef>

using Slots = tessera::cl::DispatchSlots;

TEST(OpenclDispatch, DispatchTableSlotsMatchHeader) {
#define EXPECT_SLOT(slot, function) \
  EXPECT_EQ(Slots::slot * sizeof(void*), offsetof(_cl_icd_dispatch, function)) << #function
  EXPECT_SLOT(get_platform_info, clGetPlatformInfo);
  EXPECT_SLOT(get_devices, clGetDeviceIDs);
  EXPECT_SLOT(get_device_info, clGetDeviceInfo);
  EXPECT_SLOT(create_context, clCreateContext);
  EXPECT_SLOT(create_queue, clCreateCommandQueue);
  EXPECT_SLOT(release_queue, clReleaseCommandQueue);
  EXPECT_SLOT(create_buffer, clCreateBuffer);
  EXPECT_SLOT(release_memory, clReleaseMemObject);
  EXPECT_SLOT(create_program, clCreateProgramWithSource);
  EXPECT_SLOT(release_program, clReleaseProgram);
  EXPECT_SLOT(build_program, clBuildProgram);
  EXPECT_SLOT(get_build_info, clGetProgramBuildInfo);
  EXPECT_SLOT(create_kernel, clCreateKernel);
  EXPECT_SLOT(release_kernel, clReleaseKernel);
  EXPECT_SLOT(set_argument, clSetKernelArg);
  EXPECT_SLOT(get_kernel_group_info, clGetKernelWorkGroupInfo);
  EXPECT_SLOT(wait_events, clWaitForEvents);
  EXPECT_SLOT(get_event_info, clGetEventInfo);
  EXPECT_SLOT(release_event, clReleaseEvent);
  EXPECT_SLOT(flush, clFlush);
  EXPECT_SLOT(finish, clFinish);
  EXPECT_SLOT(enqueue_read, clEnqueueReadBuffer);
  EXPECT_SLOT(enqueue_write, clEnqueueWriteBuffer);
  EXPECT_SLOT(enqueue_copy, clEnqueueCopyBuffer);
  EXPECT_SLOT(enqueue_kernel, clEnqueueNDRangeKernel);
  EXPECT_SLOT(enqueue_fill, clEnqueueFillBuffer);
  EXPECT_SLOT(enqueue_map, clEnqueueMapBuffer);
  EXPECT_SLOT(enqueue_unmap, clEnqueueUnmapMemObject);
  EXPECT_SLOT(enqueue_marker, clEnqueueMarkerWithWaitList);
  EXPECT_SLOT(enqueue_barrier, clEnqueueBarrierWithWaitList);
#undef EXPECT_SLOT
}
TEST(IntelOpenclCompiler, DispatchTableSlotsMatchHeader) {
  namespace slot = tessera::oneapi::icd_slot;
#define EXPECT_SLOT(number, function) \
  EXPECT_EQ(slot::number * sizeof(void*), offsetof(_cl_icd_dispatch, function)) << #function
  EXPECT_SLOT(devices, clGetDeviceIDs);
  EXPECT_SLOT(device_info, clGetDeviceInfo);
  EXPECT_SLOT(create_context, clCreateContext);
  EXPECT_SLOT(create_program, clCreateProgramWithSource);
  EXPECT_SLOT(release_program, clReleaseProgram);
  EXPECT_SLOT(build_program, clBuildProgram);
  EXPECT_SLOT(program_info, clGetProgramInfo);
  EXPECT_SLOT(build_info, clGetProgramBuildInfo);
#undef EXPECT_SLOT
}
#else
TEST(OpenclDispatch, DispatchTableSlotsMatchHeader) { GTEST_SKIP() << "CL/cl_icd.h is not installed (opencl-headers)"; }
#endif

TEST(VendorHeaders, ClblastDeclarationsMatch) {
#if __has_include(<clblast_c.h>)
  using namespace tessera::cl;
  TESSERA_CLBLAST(TESSERA_SAME)
  static_assert(CLBlastLayoutRowMajor == clblast_rows && CLBlastTransposeNo == clblast_plain);
  static_assert(CLBlastTransposeYes == clblast_transposed && CLBlastSuccess == 0);
  static_assert(sizeof(CLBlastStatusCode) == sizeof(Code) && sizeof(CLBlastLayout) == sizeof(int));
#else
  GTEST_SKIP() << "clblast_c.h is not installed (Debian: libclblast-dev)";
#endif
}
