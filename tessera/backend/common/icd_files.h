// SPDX-License-Identifier: Apache-2.0
// Lists the OpenCL drivers that are registered on this machine, by the rules of the common OpenCL loaders (extension
// cl_khr_icd). Opens no library.
#pragma once

#include <string>
#include <vector>

namespace tessera::backend {

struct Icd {
  std::string file;     ///< where it is registered: a file in /etc/OpenCL/vendors, or the library itself
  std::string library;  ///< the name that the loader passes to dlopen
};
/// Returns the drivers that the common loaders would open: the libraries in OCL_ICD_FILENAMES (separated by colons),
/// then those that OCL_ICD_VENDORS or OPENCL_VENDOR_PATH refers to (a folder, one .icd file or one library; default
/// /etc/OpenCL/vendors), sorted by file name.
std::vector<Icd> installed_icds();
/// Returns the library that an .icd file names; if `file` is a library, returns it.
std::string icd_library(const std::string& file);

}  // namespace tessera::backend
