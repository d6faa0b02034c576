// SPDX-License-Identifier: Apache-2.0
// Matrix products through the vendor's library: the only place that decides between it and Tessera's own kernels.
#pragma once

#include <string>

#include "tessera/device/blas.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

/// A product of views that start at their first elements, all on one device.
struct VendorProduct {
  BlasProduct product;
  BufferView a, b, out;
  BufferView bias = {};  ///< empty storage: no bias
};

/// Returns whether the vendor's library should compute this product, by size, dtypes and TESSERA_BLAS:
///   off     never
///   vendor  all products of f32, f16 and bf16 that the library supports
///   auto    (default) on GPUs, products of at least 2^27 operations and 32 operations per byte of their operands.
///           Smaller products take tens of microseconds, about the library's overhead; products with fewer operations
///           per byte are limited by memory bandwidth, which our kernels reach too; CPUs listed by OpenCL are faster
///           through `cpu`.
/// Callers only pass matrices with contiguous rows or columns. Opens nothing.
bool vendor_product_wanted(Device device, const BlasProduct& product);

/// Enqueues the product on the device's current queue and returns true. Returns false, with nothing done, if there is
/// no library, it does not support the product, or there is no memory for its workspace. If a library call fails, the
/// library is not used again on this device and a warning is logged. Counted in the placement log as "cublasLt:
/// product". Throws DeviceError and OutOfMemory like a kernel launch.
bool vendor_product(const VendorProduct& product);

}  // namespace tessera
