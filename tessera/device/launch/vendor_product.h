// SPDX-License-Identifier: Apache-2.0
// Large products through the vendor's library: when, and what happens if it is absent or fails. The one place that
// decides whose kernels multiply matrices.
#pragma once

#include <string>

#include "tessera/device/blas.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

/// A product of views that begin at their first elements, all of one device.
struct VendorProduct {
  BlasProduct product;
  BufferView a, b, out;
  BufferView bias = {};  ///< no storage: none
};

/// Whether a library of the vendor's should compute this on the device, by size, dtypes and TESSERA_BLAS:
///   off     never
///   vendor  whatever the library does, f32, f16 and bf16
///   auto    (also if it is not set) products of at least 2^27 operations, 32 of them for each byte of their operands,
///           on GPUs. Fewer operations take tens of microseconds, about what the library's own choosing and launching
///           take; with fewer a byte memory's bandwidth bounds the product, which our kernels reach too; and what
///           OpenCL shows as a CPU is quicker on `cpu`.
/// Products whose rows or columns are neither contiguous are never asked for. Opens nothing.
bool vendor_product_wanted(Device device, const BlasProduct& product);

/// Puts the product into the device's current queue and gives true; false, and nothing was done, if there is no library
/// or it does not do such a product. A library one of whose calls fails is not used again on this device, with a
/// warning that says so: it computes nothing that our kernels do not. Nor is it where its workspace cannot be had.
/// Counted in the placement log as "cublasLt: product". DeviceError, OutOfMemory as a kernel's launch.
bool vendor_product(const VendorProduct& product);

}  // namespace tessera
