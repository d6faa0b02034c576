// SPDX-License-Identifier: Apache-2.0
#include "tessera/report/model.h"

#include <algorithm>

namespace tessera::reporting {

namespace {

constexpr double launch_seconds = 2e-6;
constexpr double usable_bandwidth = 0.9;  // share of the nominal bandwidth that a copy reaches
constexpr double usable_operations = 0.7;
constexpr double usable_matrix_rate = 0.62;     // of Hopper's dense rate with mma.sync
constexpr double shared_bytes_per_cycle = 128;  // of a multiprocessor

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

namespace {

/// Returns the share of the matrix units' rate that a loop can reach. Each of its instructions occupies one
/// of the parts of a multiprocessor, and all parts share the bandwidth of shared memory.
double matrix_rate(const GpuModel& gpu, const LoopReport& loop) {
  if (loop.matrix_multiply_adds == 0) return usable_matrix_rate;
  const double per_cycle = gpu.matrix_operations / (gpu.clock * gpu.multiprocessors * gpu.register_files);
  const double products = loop.matrix_multiply_adds / per_cycle;  // cycles at the full rate
  const double shared =
      static_cast<double>(loop.matrix_shared_bytes) * gpu.subgroup * gpu.register_files / shared_bytes_per_cycle;
  return products / std::max({products / usable_matrix_rate, gpu.issue_cycles * loop.matrix_loop_instructions, shared});
}

}  // namespace

void predict(LaunchReport& launch, const GpuModel& gpu, std::uint32_t blocks_fit, double in_flight,
             const LoopReport& loop) {
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
  double computing = occupied > 0 ? launch.operations / (gpu.operations * usable_operations * occupied) : 0;
  const double products = launch.matrix_operations;
  if (products > 0 && gpu.matrix_operations > 0 && occupied > 0)
    computing = std::max(computing, products / (gpu.matrix_operations * matrix_rate(gpu, loop) * occupied));
  launch.seconds = launch_seconds + std::max(moving, computing);
  if (gpu.matrix_operations > 0) launch.matrix_share = products / gpu.matrix_operations / launch.seconds;
  launch.share = launch.bytes / bandwidth / launch.seconds;
  launch.bound = launch_seconds > std::max(moving, computing) ? Bound::launch
                 : computing > moving                         ? Bound::arithmetic
                 : launch.latency_factor < 1                  ? Bound::latency
                                                              : Bound::bandwidth;
}

}  // namespace tessera::reporting
