// SPDX-License-Identifier: Apache-2.0
// Which files name the OpenCL drivers of this machine, as OpenCL's common loaders find them; nothing is opened. After
// the extension cl_khr_icd.
#pragma once

#include <string>
#include <vector>

namespace tessera::backend {

struct Icd {
  std::string file;     ///< what names it: a file in /etc/OpenCL/vendors, or the library itself
  std::string library;  ///< as the loader is asked for it
};
/// Those that the usual loaders would take, by name: OCL_ICD_FILENAMES (libraries, with colons between), and what
/// OCL_ICD_VENDORS or OPENCL_VENDOR_PATH names (a folder, one .icd file, or one library), else /etc/OpenCL/vendors.
std::vector<Icd> installed_icds();
/// What a file that names a driver, or is one, says to open.
std::string icd_library(const std::string& file);

}  // namespace tessera::backend
