// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/setting_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tessera/base/similar_name.h"

namespace tessera {

namespace {
constexpr const char* names[] = {"API_KEY",
                                 "BLAS",
                                 "CACHE_DIR",
                                 "CHECK",
                                 "CLBLAST_LIBRARY",
                                 "CODEGEN_LIBRARY",
                                 "COMPILE",
                                 "CPU_TARGET",
                                 "CUBLAS_LIBRARY",
                                 "CUDA_LIBRARY",
                                 "DEVICE",
                                 "DUMP",
                                 "HIPBLASLT_LIBRARY",
                                 "HIPRTC_LIBRARY",
                                 "KERNEL_CACHE",
                                 "KERNEL_CACHE_SIZE",
                                 "LAPACK_LIBRARY",
                                 "LOG",
                                 "MEMORY_LIMIT",
                                 "METAL_LIBRARY",
                                 "MPI_LIBRARY",
                                 "NCCL_LIBRARY",
                                 "NVRTC_LIBRARY",
                                 "OCLOC_LIBRARY",
                                 "ONEAPI_LIBRARY",
                                 "OPENCL_LIBRARY",
                                 "PACK",
                                 "PEER_COPIES",
                                 "PROBE",
                                 "PROBE_TIMEOUT",
                                 "PTXAS",
                                 "RANKS_TIMEOUT",
                                 "RCCL_LIBRARY",
                                 "ROCBLAS_LIBRARY",
                                 "ROCM_LIBRARY",
                                 "SEQUENCES",
                                 "STATS",
                                 "SUBGROUP",
                                 "SYNC",
                                 "TASKS",
                                 "TASK_TRACE",
                                 "TF32",
                                 "THREADS",
                                 "TRACE",
                                 "TRACE_FUSION",
                                 "WAIT",
                                 "WATCHDOG"};
constexpr std::string_view prefix = "TESSERA_";
}  // namespace

std::span<const char* const> setting_names() { return names; }

std::vector<std::string> misspelt_settings(const std::vector<std::string>& variables) {
  std::vector<std::string> out;
  for (const std::string_view variable : variables) {
    if (!variable.starts_with(prefix)) continue;
    const std::string_view name = variable.substr(prefix.size(), variable.find('=') - prefix.size());
    if (std::ranges::find(names, name) != std::end(names)) continue;
    const auto distance = [&](std::string_view known) { return edit_distance(name, known); };
    const std::string_view nearest = *std::ranges::min_element(names, {}, distance);
    // One letter in four, so that names of other programs are not reported.
    if (distance(nearest) <= std::max<std::size_t>(1, name.size() / 4))
      out.push_back(
          fmt::format("{}{} is set, but there is no such setting; did you mean {}{}?", prefix, name, prefix, nearest));
  }
  return out;
}

}  // namespace tessera
