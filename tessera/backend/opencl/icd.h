// SPDX-License-Identifier: Apache-2.0
// OpenCL's drivers one by one: how each is called without the common loader, which would load all of them. So a driver
// that crashes costs its own platform. After the extension cl_khr_icd and its table of functions.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

/// Opens these drivers (their `file`s, in this order) and fills `api` with functions that call, through the table that
/// each of OpenCL's objects begins with, the driver that made it. `api.library` is the first that opened.
void open_drivers(const std::vector<std::string>& files, Api& api);

}  // namespace tessera::cl
