// SPDX-License-Identifier: Apache-2.0
// The list of all backends, and the choice of the one that compiles for an architecture.
#include <fmt/format.h>

#include "tessera/backend/cpu/cpu.h"
#include "tessera/backend/cpu/pack_target.h"
#include "tessera/backend/cuda/cuda.h"
#include "tessera/backend/cuda/offline.h"
#include "tessera/backend/interp/interp.h"
#include "tessera/backend/metal/metal.h"
#include "tessera/backend/oneapi/oneapi.h"
#include "tessera/backend/opencl/opencl.h"
#include "tessera/backend/rocm/offline.h"
#include "tessera/backend/rocm/rocm.h"
#include "tessera/base/error.h"
#include "tessera/device/driver.h"

namespace tessera {

/// Programs that are linked with libtessera.a refer to this name, so that the linker uses this file.
extern "C" const char tessera_backends = 0;

void register_all_drivers() {
  register_driver(make_cpu_driver());
  register_driver(make_cuda_driver());
  register_driver(make_rocm_driver());
  register_driver(make_oneapi_driver());
  register_driver(make_metal_driver());
  register_driver(make_opencl_driver());
  register_driver(make_interp_driver());
}

std::unique_ptr<OfflineTarget> make_offline_target(const std::string& architecture, TargetCompiler compiler) {
  if (auto target = cuda::offline_target(architecture, compiler)) return target;
  if (auto target = rocm::offline_target(architecture, compiler)) return target;
  fail<DeviceError>({.operation = fmt::format("compile for \"{}\"", architecture),
                     .wrong = "the architecture is not known",
                     .remedy = "Use the name of an NVIDIA or AMD architecture, such as sm_90 or gfx90a"});
}

std::unique_ptr<PackCompiler> make_pack_compiler(const std::string& target) {
  if (auto compiler = cpu::pack_compiler(target)) return compiler;
  if (auto compiler = cuda::pack_compiler(target)) return compiler;
  if (auto compiler = rocm::pack_compiler(target)) return compiler;
  fail<DeviceError>({.operation = fmt::format("compile for \"{}\"", target),
                     .wrong = "the target is not known",
                     .remedy = "Use a processor level (cpu:x86-64-v3), or an architecture of NVIDIA (sm_90 for machine "
                               "code, compute_80 for PTX) or AMD (gfx90a)"});
}

}  // namespace tessera
