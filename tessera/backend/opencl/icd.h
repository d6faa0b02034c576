// SPDX-License-Identifier: Apache-2.0
// Calls OpenCL drivers one by one, without the common loader, which would load all of them: a driver that crashes then
// affects only its own platform. Uses the dispatch table of the extension cl_khr_icd.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

/// Opens the drivers registered by `files`, in this order, and fills `api` with functions that call the driver of their
/// first argument, through its dispatch table. `api.library` is the first that opened.
void open_drivers(const std::vector<std::string>& files, Api& api);

}  // namespace tessera::cl
