// SPDX-License-Identifier: Apache-2.0
// Opens selected OpenCL drivers without the common loader. The loader would open all drivers, so a driver that crashes
// would affect the others. Uses the dispatch table of the extension cl_khr_icd.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

/// Opens the drivers registered by `files`, in this order. The functions in `api` then call the driver of their first
/// argument through its dispatch table. `api.library` is the first driver that could be opened.
void open_drivers(const std::vector<std::string>& files, Api& api);

}  // namespace tessera::cl
