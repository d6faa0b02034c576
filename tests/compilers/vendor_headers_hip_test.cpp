// SPDX-License-Identifier: Apache-2.0
// Compares the declarations in backend/rocm/api.h with hip_runtime_api.h and hiprtc.h, if these are installed.
// Differences are compile errors. If a header is missing, the test is skipped.
#include <gtest/gtest.h>

#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1  // hides templates with the same names
#if __has_include(<hip/hip_runtime_api.h>)
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#endif

#if __has_include(<rocblas/rocblas.h>)
#include <rocblas/rocblas.h>
#endif
#if __has_include(<hipblaslt/hipblaslt.h>)
#include <hipblaslt/hipblaslt.h>
#endif

#include "tessera/backend/rocm/api.h"
#include "tessera/backend/rocm/hipblas.h"
#include "tessera/backend/stream/lt_blas.h"
#include "tests/compilers/vendor_headers.h"

namespace ours = tessera::rocm;

TEST(VendorHeaders, HipDeclarationsMatch) {
#if __has_include(<hip/hip_runtime_api.h>)
  using namespace tessera::rocm;
  TESSERA_HIP(TESSERA_SAME)
  TESSERA_HIP_OPTIONAL(TESSERA_SAME)
  TESSERA_HIP_GRAPHS(TESSERA_SAME)
  TESSERA_HIPRTC(TESSERA_SAME)
  using Node = hipKernelNodeParams;
  static_assert(sizeof(Node) == sizeof(ours::KernelNode) &&
                offsetof(Node, func) == offsetof(ours::KernelNode, function));
  static_assert(offsetof(Node, gridDim) == offsetof(ours::KernelNode, grid));
  static_assert(offsetof(Node, blockDim) == offsetof(ours::KernelNode, block));
  static_assert(offsetof(Node, sharedMemBytes) == offsetof(ours::KernelNode, shared_bytes));
  static_assert(offsetof(Node, kernelParams) == offsetof(ours::KernelNode, arguments));
  static_assert(offsetof(Node, extra) == offsetof(ours::KernelNode, extra));
  static_assert(hipStreamCaptureModeThreadLocal == ours::capture_thread_local);
  constexpr ours::PropertiesLayout layout = HIP_VERSION_MAJOR == 5 ? ours::properties_5 : ours::properties_6;
  static_assert(HIP_VERSION_MAJOR >= 5 && HIP_VERSION_MAJOR <= 7, "backend/rocm does not support this major version");
  static_assert(sizeof(hipDeviceProp_t) == layout.bytes);
  static_assert(offsetof(hipDeviceProp_t, gcnArchName) == layout.architecture);
  static_assert(sizeof(hipUUID) == sizeof(ours::Uuid) && sizeof(hipError_t) == sizeof(ours::Code));
  static_assert(hipDeviceAttributeComputeMode == ours::compute_mode);
  static_assert(hipComputeModeProhibited == ours::compute_mode_prohibited);
  static_assert(hipDeviceAttributeIntegrated == ours::integrated);
  static_assert(hipDeviceAttributeComputeCapabilityMajor == ours::compute_capability_major);
  static_assert(hipDeviceAttributeComputeCapabilityMinor == ours::compute_capability_minor);
  static_assert(hipDeviceAttributeMaxBlockDimX == ours::max_block_dim_x);
  static_assert(hipDeviceAttributeMaxBlockDimY == ours::max_block_dim_y);
  static_assert(hipDeviceAttributeMaxBlockDimZ == ours::max_block_dim_z);
  static_assert(hipDeviceAttributeMaxGridDimX == ours::max_grid_dim_x);
  static_assert(hipDeviceAttributeMaxGridDimY == ours::max_grid_dim_y);
  static_assert(hipDeviceAttributeMaxGridDimZ == ours::max_grid_dim_z);
  static_assert(hipDeviceAttributeMaxThreadsPerBlock == ours::max_threads_per_block);
  static_assert(hipDeviceAttributeMultiprocessorCount == ours::multiprocessor_count);
  static_assert(hipDeviceAttributeMaxSharedMemoryPerBlock == ours::max_shared_memory_per_block);
  static_assert(hipDeviceAttributeWarpSize == ours::warp_size);
  static_assert(hipStreamNonBlocking == ours::stream_non_blocking);
  static_assert(hipEventBlockingSync == ours::event_blocking_sync);
  static_assert(hipEventDisableTiming == ours::event_disable_timing);
  static_assert(hipHostMallocPortable == ours::host_malloc_portable);
  static_assert(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK == ours::function_max_threads_per_block);
  static_assert(HIPRTC_ERROR_COMPILATION == ours::hiprtc_compilation);
  static_assert(HIPRTC_ERROR_OUT_OF_MEMORY == ours::hiprtc_out_of_memory);
  // These values are used in backend/stream/errors.cpp to classify errors.
  static_assert(hipErrorOutOfMemory == 2 && hipErrorDeinitialized == 4 && hipErrorNoDevice == 100);
  static_assert(hipErrorInvalidConfiguration == 9 && hipErrorInvalidImage == 200 && hipErrorInvalidContext == 201);
  static_assert(hipErrorNoBinaryForGpu == 209 && hipErrorECCNotCorrectable == 214);
  static_assert(hipErrorNotReady == 600 && hipErrorIllegalAddress == 700 && hipErrorLaunchOutOfResources == 701);
  static_assert(hipErrorLaunchTimeOut == 702 && hipErrorContextIsDestroyed == 709 && hipErrorAssert == 710);
  static_assert(hipErrorLaunchFailure == 719 && hipErrorRuntimeMemory == 1052);
#else
  GTEST_SKIP() << "passed by: hip/hip_runtime_api.h is not installed (Debian: libamdhip64-dev; cmake "
                  "-DTESSERA_HIP_HEADERS=FOLDER)";
#endif
}

TEST(VendorHeaders, RocblasDeclarationsMatch) {
#if __has_include(<rocblas/rocblas.h>)
  using namespace tessera::rocm;
  TESSERA_ROCBLAS(TESSERA_SAME)
  static_assert(rocblas_plain == rocblas_operation_none && rocblas_transpose == rocblas_operation_transpose);
  static_assert(rocblas_f16 == rocblas_datatype_f16_r && rocblas_f32 == rocblas_datatype_f32_r);
  static_assert(rocblas_bf16 == rocblas_datatype_bf16_r && rocblas_standard == rocblas_gemm_algo_standard);
  static_assert(rocblas_not_implemented == rocblas_status_not_implemented);
  static_assert(rocblas_size_unchanged == rocblas_status_size_unchanged);
  static_assert(rocblas_size_increased == rocblas_status_size_increased);
  static_assert(rocblas_arch_mismatch == rocblas_status_arch_mismatch);
#else
  GTEST_SKIP() << "rocblas/rocblas.h is not installed (Debian 13, Ubuntu and AMD's archive: librocblas-dev)";
#endif
}

TEST(VendorHeaders, HipblasLtDeclarationsMatch) {
#if __has_include(<hipblaslt/hipblaslt.h>)
  using namespace tessera::stream;
#define TESSERA_SAME_LT(member, symbol, ...)                                            \
  static_assert(tessera::test::Same<__VA_ARGS__, decltype(::hipblasLt##symbol)>::value, \
                "hipblasLt" #symbol " has a different signature in the vendor's header");
  TESSERA_LT(TESSERA_SAME_LT)
  constexpr LtValues v = hipblas_lt;
  static_assert(v.compute_f32 == HIPBLAS_COMPUTE_32F && v.compute_tf32 == HIPBLAS_COMPUTE_32F_FAST_TF32);
  static_assert(v.transpose == HIPBLAS_OP_T && v.transpose_a == HIPBLASLT_MATMUL_DESC_TRANSA);
  static_assert(v.transpose_b == HIPBLASLT_MATMUL_DESC_TRANSB && v.epilogue == HIPBLASLT_MATMUL_DESC_EPILOGUE);
  static_assert(v.bias_pointer == HIPBLASLT_MATMUL_DESC_BIAS_POINTER);
  static_assert(v.batch_count == HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  static_assert(v.batch_offset == HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  static_assert(lt_most_workspace == HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  static_assert(lt_bias == HIPBLASLT_EPILOGUE_BIAS);
  static_assert(lt_f32 == HIP_R_32F && lt_f16 == HIP_R_16F && lt_bf16 == HIP_R_16BF);
  static_assert(v.result_bytes == sizeof(hipblasLtMatmulHeuristicResult_t));
  static_assert(v.result_workspace == offsetof(hipblasLtMatmulHeuristicResult_t, workspaceSize));
  static_assert(v.result_state == offsetof(hipblasLtMatmulHeuristicResult_t, state));
  static_assert(v.not_supported == HIPBLAS_STATUS_NOT_SUPPORTED);
#else
  GTEST_SKIP() << "hipblaslt/hipblaslt.h is not installed (AMD's archive: hipblaslt-dev)";
#endif
}
