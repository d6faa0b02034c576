// SPDX-License-Identifier: Apache-2.0
#include "tessera/report/model.h"

#include <algorithm>

namespace tessera::reporting {

namespace {

constexpr double launch_seconds = 2e-6;
constexpr double usable_bandwidth = 0.9;  // share of the nominal bandwidth that a copy reaches
constexpr double usable_operations = 0.7;

std::uint32_t rounded_up(std::uint32_t value, std::uint32_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::uint32_t blocks_that_fit(const GpuModel& gpu, std::uint32_t threads, std::uint32_t registers,
                              std::uint64_t shared_bytes) {
  const std::uint32_t subgroups = std::max(1u, rounded_up(threads, gpu.subgroup) / gpu.subgroup);
  std::uint32_t fit = std::min(gpu.max_blocks, gpu.max_threads / (subgroups * gpu.subgroup));
  if (registers != 0) {
    const std::uint32_t per_file = gpu.registers / rounded_up(registers, gpu.register_unit);
    fit = std::min(fit, per_file * gpu.register_files / subgroups);
  }
  if (shared_bytes != 0)
    fit = std::min(fit, static_cast<std::uint32_t>(gpu.shared_bytes / (shared_bytes + gpu.shared_reserved)));
  return fit;
}

void predict(LaunchReport& launch, const GpuModel& gpu, std::uint32_t blocks_fit, double in_flight) {
  const double blocks = static_cast<double>(launch.blocks[0]) * static_cast<double>(launch.blocks[1]) *
                        static_cast<double>(launch.blocks[2]);
  launch.blocks_per_multiprocessor = std::min<double>(blocks_fit, blocks / gpu.multiprocessors);
  launch.bytes_in_flight = launch.blocks_per_multiprocessor * launch.threads * in_flight;
  const double bandwidth = usable_bandwidth * gpu.bandwidth;
  const double little = bandwidth * gpu.latency / gpu.multiprocessors;
  // Stores do not wait, so a kernel that loads nothing from memory is not bound by latency.
  launch.latency_factor = in_flight > 0 ? std::min(1.0, launch.bytes_in_flight / little) : 1;
  const double moving = launch.bytes / (bandwidth * launch.latency_factor);
  // A multiprocessor with one subgroup for each register file can issue at most every other cycle (dependent
  // instructions take about four cycles, of which independent ones fill some).
  const double subgroups = launch.blocks_per_multiprocessor * launch.threads / gpu.subgroup;
  const double occupied = std::min(1.0, subgroups / (2.0 * gpu.register_files));
  const double computing = occupied > 0 ? launch.operations / (gpu.operations * usable_operations * occupied) : 0;
  launch.seconds = launch_seconds + std::max(moving, computing);
  launch.share = launch.bytes / bandwidth / launch.seconds;
  launch.bound = launch_seconds > std::max(moving, computing) ? Bound::launch
                 : computing > moving                         ? Bound::arithmetic
                 : launch.latency_factor < 1                  ? Bound::latency
                                                              : Bound::bandwidth;
}

}  // namespace tessera::reporting
