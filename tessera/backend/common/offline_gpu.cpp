// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/offline_gpu.h"

#include "tessera/backend/common/launch_shape.h"
#include "tessera/backend/common/matrix_units.h"

namespace tessera::backend {

OfflineTarget::Grid OfflineGpu::grid(const CompileRequest& request, const std::array<std::uint64_t, 3>& shape) {
  const backend::Grid grid = grid_of(request, dialect_, info_, shape);
  return {grid.blocks, grid.block};
}

void OfflineGpu::set_info(Backend backend, std::string_view vendor, std::uint32_t memory_gib) {
  info_.device = {backend, 0};
  info_.name = model_.name;
  info_.vendor = vendor;
  info_.kind = DeviceKind::discrete_gpu;
  info_.state = DeviceState::verified;
  info_.total_memory = std::uint64_t{memory_gib} << 30;
  info_.compute_units = model_.multiprocessors;
  info_.blas = "none: the GPU is not in this machine";
  Capabilities& can = info_.can;
  can.f16 = can.f64 = can.atomic_i64 = can.atomic_f32 = true;
  can.int8_dot = dialect_.dot4;
  describe_matrix_units(can, dialect_);
  can.subgroup_widths = {model_.subgroup};
  can.max_parameter_bytes = 4096;
  can.max_blocks = {2147483647, 65535, 65535};
}

}  // namespace tessera::backend
