// SPDX-License-Identifier: Apache-2.0
// Lists the OpenCL drivers that are registered on this machine. Follows the rules of the common OpenCL loaders
// (extension cl_khr_icd), but opens no library.
#pragma once

#include <string>
#include <vector>

namespace tessera::backend {

struct Icd {
  std::string file;     ///< where it is registered: a file in /etc/OpenCL/vendors, or the library itself
  std::string library;  ///< the name that the loader passes to dlopen
};
/// Returns the drivers that the common loaders would open. The libraries in OCL_ICD_FILENAMES (separated by colons)
/// come first. The drivers registered in OCL_ICD_VENDORS or OPENCL_VENDOR_PATH follow, sorted by file name. These
/// variables may contain a folder, an .icd file or a library. The default is the folder /etc/OpenCL/vendors.
std::vector<Icd> installed_icds();
/// Returns the library that is named in an .icd file. If `file` is a library itself, returns `file`.
std::string icd_library(const std::string& file);

}  // namespace tessera::backend
