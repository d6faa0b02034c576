// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a launch from figures of its machine code. Internal to report/.
#pragma once

#include "tessera/device/offline_target.h"
#include "tessera/report/report.h"

namespace tessera::reporting {

/// Returns how many blocks of this kernel fit on one multiprocessor.
std::uint32_t blocks_that_fit(const GpuModel& gpu, std::uint32_t threads, std::uint32_t registers,
                              std::uint64_t shared_bytes);

/// Sets the predictions of `launch` (docs/performance.md, "Predict the time of a launch"). Reads its blocks, threads,
/// bytes and operations. `in_flight` is the number of bytes that a thread requests from device memory before it waits.
/// `loop` describes the loop with matrix instructions.
void predict(LaunchReport& launch, const GpuModel& gpu, std::uint32_t blocks_fit, double in_flight,
             const LoopReport& loop);

}  // namespace tessera::reporting
