// SPDX-License-Identifier: Apache-2.0
// Compares the declarations in backend/cuda/api.h with cuda.h and nvrtc.h, if these are installed. Differences are
// compile errors. If a header is missing, the test is skipped.
#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#endif

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include "tessera/backend/cuda/api.h"
#include "tessera/backend/cuda/cublas.h"
#include "tessera/backend/stream/lt_blas.h"
#include "tests/compilers/vendor_headers.h"

namespace ours = tessera::cuda;

TEST(VendorHeaders, CudaDriverDeclarationsMatch) {
#if __has_include(<cuda.h>)
  using namespace tessera::cuda;
  TESSERA_CUDA_DRIVER(TESSERA_SAME)
  static_assert(tessera::test::Same<Code(ours::Uuid*, Ordinal), decltype(::cuDeviceGetUuid)>::value);
  TESSERA_CUDA_GRAPHS(TESSERA_SAME)
  TESSERA_CUDA_LINKER(TESSERA_SAME)
  static_assert(CU_JIT_INPUT_PTX == ours::jit_input_ptx);
#if CUDA_VERSION < 12030  // later headers only declare a newer version of this function
  TESSERA_CUDA_GRAPH_NODES(TESSERA_SAME)
#endif
  using Node = CUDA_KERNEL_NODE_PARAMS_v1;  // the parameter type of functions without a version suffix
  static_assert(sizeof(Node) == sizeof(ours::KernelNode) &&
                offsetof(Node, func) == offsetof(ours::KernelNode, function));
  static_assert(offsetof(Node, gridDimX) == offsetof(ours::KernelNode, grid));
  static_assert(offsetof(Node, blockDimX) == offsetof(ours::KernelNode, block));
  static_assert(offsetof(Node, sharedMemBytes) == offsetof(ours::KernelNode, shared_bytes));
  static_assert(offsetof(Node, kernelParams) == offsetof(ours::KernelNode, arguments));
  static_assert(offsetof(Node, extra) == offsetof(ours::KernelNode, extra));
  static_assert(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL == ours::capture_thread_local);
  static_assert(sizeof(CUdeviceptr) == sizeof(ours::Address) && sizeof(CUdevice) == sizeof(ours::Ordinal));
  static_assert(sizeof(CUuuid) == sizeof(ours::Uuid) && sizeof(CUresult) == sizeof(ours::Code));
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK == ours::max_threads_per_block);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X == ours::max_block_dim_x);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y == ours::max_block_dim_y);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z == ours::max_block_dim_z);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X == ours::max_grid_dim_x);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y == ours::max_grid_dim_y);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z == ours::max_grid_dim_z);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK == ours::max_shared_memory_per_block);
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == ours::max_shared_memory_per_block_optin);
  static_assert(CU_DEVICE_ATTRIBUTE_WARP_SIZE == ours::warp_size);
  static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == ours::multiprocessor_count);
  static_assert(CU_DEVICE_ATTRIBUTE_INTEGRATED == ours::integrated);
  static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE == ours::compute_mode);
  static_assert(CU_COMPUTEMODE_PROHIBITED == ours::compute_mode_prohibited);
  static_assert(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID == ours::pci_bus_id);
  static_assert(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID == ours::pci_device_id);
  static_assert(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID == ours::pci_domain_id);
  static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == ours::compute_capability_major);
  static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == ours::compute_capability_minor);
  static_assert(CU_STREAM_NON_BLOCKING == ours::stream_non_blocking);
  static_assert(CU_EVENT_BLOCKING_SYNC == ours::event_blocking_sync);
  static_assert(CU_EVENT_DISABLE_TIMING == ours::event_disable_timing);
  static_assert(CU_MEMHOSTALLOC_PORTABLE == ours::host_alloc_portable);
  static_assert(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK == ours::function_max_threads_per_block);
  static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == ours::function_max_dynamic_shared_size);
  static_assert(CU_JIT_ERROR_LOG_BUFFER == ours::jit_error_log_buffer);
  static_assert(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES == ours::jit_error_log_buffer_size_bytes);
  // These values are used in backend/stream/errors.cpp to classify errors.
  static_assert(CUDA_ERROR_OUT_OF_MEMORY == 2 && CUDA_ERROR_DEINITIALIZED == 4 && CUDA_ERROR_NO_DEVICE == 100);
  static_assert(CUDA_ERROR_INVALID_IMAGE == 200 && CUDA_ERROR_INVALID_CONTEXT == 201);
  static_assert(CUDA_ERROR_NO_BINARY_FOR_GPU == 209 && CUDA_ERROR_ECC_UNCORRECTABLE == 214);
  static_assert(CUDA_ERROR_INVALID_PTX == 218 && CUDA_ERROR_UNSUPPORTED_PTX_VERSION == 222);
  static_assert(CUDA_ERROR_NOT_READY == 600 && CUDA_ERROR_ILLEGAL_ADDRESS == 700);
  static_assert(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES == 701 && CUDA_ERROR_LAUNCH_TIMEOUT == 702);
  static_assert(CUDA_ERROR_CONTEXT_IS_DESTROYED == 709 && CUDA_ERROR_ASSERT == 710);
  static_assert(CUDA_ERROR_HARDWARE_STACK_ERROR == 714 && CUDA_ERROR_ILLEGAL_INSTRUCTION == 715);
  static_assert(CUDA_ERROR_MISALIGNED_ADDRESS == 716 && CUDA_ERROR_INVALID_ADDRESS_SPACE == 717);
  static_assert(CUDA_ERROR_INVALID_PC == 718 && CUDA_ERROR_LAUNCH_FAILED == 719);
  static_assert(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH == 803 && CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE == 804);
  static_assert(CUDA_ERROR_STUB_LIBRARY == 34 && CUDA_ERROR_DEVICE_UNAVAILABLE == 46 &&
                CUDA_ERROR_SYSTEM_NOT_READY == 802);
  SUCCEED() << "compared with cuda.h of " << CUDA_VERSION;
#else
  GTEST_SKIP() << "passed by: cuda.h is not installed (the CUDA toolkit; cmake -DTESSERA_CUDA_HEADERS=FOLDER)";
#endif
}

TEST(VendorHeaders, NvrtcDeclarationsMatch) {
#if __has_include(<nvrtc.h>)
  using namespace tessera::cuda;
  TESSERA_NVRTC(TESSERA_SAME)
  static_assert(NVRTC_ERROR_COMPILATION == ours::nvrtc_compilation);
  static_assert(NVRTC_ERROR_OUT_OF_MEMORY == ours::nvrtc_out_of_memory);
#else
  GTEST_SKIP() << "passed by: nvrtc.h is not installed (the CUDA toolkit; cmake -DTESSERA_CUDA_HEADERS=FOLDER)";
#endif
}

TEST(VendorHeaders, CublasLtDeclarationsMatch) {
#if __has_include(<cublasLt.h>)
  using namespace tessera::stream;
#define TESSERA_SAME_LT(member, symbol, ...)                                           \
  static_assert(tessera::test::Same<__VA_ARGS__, decltype(::cublasLt##symbol)>::value, \
                "cublasLt" #symbol " has a different signature in the vendor's header");
  TESSERA_LT(TESSERA_SAME_LT)
  static_assert(tessera::test::Same<std::size_t(), decltype(::cublasLtGetVersion)>::value);
  static_assert(tessera::test::Same<const char*(Code), decltype(::cublasLtGetStatusString)>::value);
  constexpr LtValues v = cublas_lt;
  static_assert(v.compute_f32 == CUBLAS_COMPUTE_32F && v.compute_tf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
  static_assert(v.transpose == CUBLAS_OP_T && CUBLAS_OP_N == 0);
  static_assert(v.transpose_a == CUBLASLT_MATMUL_DESC_TRANSA && v.transpose_b == CUBLASLT_MATMUL_DESC_TRANSB);
  static_assert(v.epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE && v.bias_pointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  static_assert(v.batch_count == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  static_assert(v.batch_offset == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  static_assert(v.first_alignment == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  static_assert(v.first_alignment + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  static_assert(lt_most_workspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  static_assert(lt_bias == CUBLASLT_EPILOGUE_BIAS && CUBLASLT_EPILOGUE_DEFAULT == 1);
  static_assert(lt_f32 == CUDA_R_32F && lt_f16 == CUDA_R_16F && lt_bf16 == CUDA_R_16BF);
  static_assert(v.result_bytes == sizeof(cublasLtMatmulHeuristicResult_t));
  static_assert(offsetof(cublasLtMatmulHeuristicResult_t, algo) == 0);
  static_assert(v.result_workspace == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  static_assert(v.result_state == offsetof(cublasLtMatmulHeuristicResult_t, state));
  static_assert(v.not_supported == CUBLAS_STATUS_NOT_SUPPORTED && CUBLAS_STATUS_SUCCESS == 0);
#else
  GTEST_SKIP() << "cublasLt.h is not installed (CUDA's toolkit: libcublas-dev)";
#endif
}

TEST(VendorLibraries, CublasLtExportsAllFunctions) {
  const tessera::os::Library library = tessera::os::Library::open(tessera::cuda::cublas_candidates());
  if (!library.loaded()) GTEST_SKIP() << "cuBLASLt is not installed: " << library.reason();
  tessera::stream::LtFunctions call;
  EXPECT_EQ(tessera::stream::take_lt(library, "cublasLt", call), "");
  const auto version = library.function<std::size_t()>("cublasLtGetVersion");
  ASSERT_NE(version, nullptr);
  EXPECT_GE(version() / 10000, 11u) << version();
  EXPECT_LE(version() / 10000, 20u) << version();
  std::string why;  // the library is from a later major version than the driver, so it is not used
  EXPECT_EQ(tessera::cuda::open_cublas(10000, why), nullptr);
  EXPECT_NE(why.find("a later version than the driver supports"), why.npos) << why;
}
