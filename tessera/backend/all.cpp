// SPDX-License-Identifier: Apache-2.0
// The list of all backends.
#include "tessera/backend/cpu/cpu.h"
#include "tessera/backend/cuda/cuda.h"
#include "tessera/backend/interp/interp.h"
#include "tessera/backend/metal/metal.h"
#include "tessera/backend/oneapi/oneapi.h"
#include "tessera/backend/opencl/opencl.h"
#include "tessera/backend/rocm/rocm.h"
#include "tessera/device/driver.h"

namespace tessera {

void register_all_drivers() {
  register_driver(make_cpu_driver());
  register_driver(make_cuda_driver());
  register_driver(make_rocm_driver());
  register_driver(make_oneapi_driver());
  register_driver(make_metal_driver());
  register_driver(make_opencl_driver());
  register_driver(make_interp_driver());
}

}  // namespace tessera
