// SPDX-License-Identifier: Apache-2.0
// OpenCL's drivers one by one: which files name them, and how each is called without the common loader, which would
// load all of them. So a driver that crashes costs its own platform. After the extension cl_khr_icd and its table of
// functions.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

struct Icd {
  std::string file;     ///< what names it: a file in /etc/OpenCL/vendors, or the library itself
  std::string library;  ///< as the loader is asked for it
};
/// Those that the usual loaders would take, by name: OCL_ICD_FILENAMES (libraries, with colons between), and what
/// OCL_ICD_VENDORS or OPENCL_VENDOR_PATH names (a folder, one .icd file, or one library), else /etc/OpenCL/vendors.
std::vector<Icd> installed_drivers();

/// Opens these drivers (their `file`s, in this order) and fills `api` with functions that call, through the table that
/// each of OpenCL's objects begins with, the driver that made it. `api.library` is the first that opened.
void open_drivers(const std::vector<std::string>& files, Api& api);

}  // namespace tessera::cl
