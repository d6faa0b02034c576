// SPDX-License-Identifier: Apache-2.0
// Internal.
#pragma once

#include "tessera/device/device.h"
#include "tessera/emit/dialect.h"

namespace tessera::backend {

/// Sets the capabilities that depend on the matrix units and the copies for which code is emitted.
inline void describe_matrix_units(Capabilities& can, const emit::Dialect& d) {
  can.matrix_f16 = d.matrix != emit::MatrixUnits::none;
  can.matrix_bf16 = can.matrix_i8 = can.matrix_f16 && d.matrix != emit::MatrixUnits::mma_k8;
  can.matrix_tf32 = emit::multiplies_f32(d.matrix);
  can.matrix_f32 = can.matrix_tf32 && !emit::rounds_factors_to_tf32(d.matrix);
  can.async_copies = d.async_copies;
}

}  // namespace tessera::backend
