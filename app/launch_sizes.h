// SPDX-License-Identifier: Apache-2.0
// Sizes of a launch on the command line of `tessera kernel`.
#pragma once

#include <string>
#include <vector>

#include "tessera/ir/fwd.h"
#include "tessera/report/report.h"

namespace tessera::app {

struct LaunchSizes {
  std::string grid;                ///< "4096" or "64,64": threads of a map kernel, blocks of a block kernel
  std::vector<std::string> sizes;  ///< "x=4096": elements of a buffer, or value of an integer
};

/// Reports on a launch of the kernel with these sizes. Floats are 0, because they do not affect the prediction.
/// Throws ArgumentError if a size is malformed, missing or unknown, and otherwise like report_launches.
KernelReport report_launch(const ir::Function& function, const LaunchSizes& sizes, const ReportTarget& target);

}  // namespace tessera::app
