// SPDX-License-Identifier: Apache-2.0
// Matrix products through the vendor's library. Only this file decides between that library and Tessera's kernels.
#pragma once

#include <string>

#include "tessera/device/blas.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

/// A matrix product. Each view starts at the first element of its matrix, and all are on one device.
struct VendorProduct {
  BlasProduct product;
  BufferView a, b, out;
  BufferView bias = {};  ///< empty storage: no bias
};

/// Returns whether the vendor's library should compute this product. The decision depends on its size, its dtypes and
/// TESSERA_BLAS:
///   off     never
///   vendor  all products of f32, f16 and bf16 that the library supports
///   auto    (default) on NVIDIA and AMD GPUs, products with at least 2^25 operations; on OpenCL GPUs, products with
///           at least 2^27 operations and at least 32 operations per byte of their operands
/// Smaller products take a few microseconds, which is about the library's overhead. On an H200, cuBLASLt multiplies one
/// row by a matrix of 4096 x 4096 28 times (f32) and 20 times (bf16) as fast as Tessera's kernels. CPUs listed by
/// OpenCL are excluded because `cpu` is faster. Callers only pass matrices with contiguous rows or columns. Does not
/// open the library.
bool vendor_product_wanted(Device device, const BlasProduct& product);

/// Returns whether the vendor's library should compute this product, and is installed. Opens the library.
bool vendor_product_available(Device device, const BlasProduct& product);

/// Enqueues the product on the device's current queue and returns true. Returns false without enqueueing anything if
/// there is no library, if it does not support the product, or if there is no memory for its workspace. If a library
/// call fails, a warning is logged and the library is not used again on this device. The placement log counts the
/// product as "cublasLt: product". Throws DeviceError and OutOfMemory like a kernel launch.
bool vendor_product(const VendorProduct& product);

}  // namespace tessera
