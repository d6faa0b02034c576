// SPDX-License-Identifier: Apache-2.0
// Helpers for the vendor folders: opening libraries, and reporting why one could not be opened.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/os/hardware.h"
#include "tessera/base/os/library.h"
#include "tessera/base/os/system.h"
#include "tessera/device/device.h"

namespace tessera::stream {

/// Gets an entry point; if it is missing and no other was before, stores its name in `missing`.
template <class F>
void take(const os::Library& library, F*& to, const char* symbol, std::string& missing) {
  to = library.function<F>(symbol);
  if (!to && missing.empty()) missing = symbol;
}

/// The file that the variable names. It has no fallback: if it is unusable, no other file is tried.
inline std::string library_from_variable(const char* variable) { return os::environment(variable).value_or(""); }

/// Returns whether a vendor's library was opened and has all functions. Otherwise sets the reason and the remedy of the
/// report: if `variable` is set, to correct it; `absent()` if no library was opened; `install` if a function is
/// missing, which means that the library is `older` ("older than CUDA 11, or not NVIDIA's driver").
bool check_library(BackendReport& report, const char* variable, const os::Library& file, const std::string& missing,
                   const std::string& older, const std::function<std::string()>& absent, const std::string& install);

/// The remedy for an unusable file that this variable names.
std::string remedy_where_named(const char* variable);

/// The remedy for a missing vendor library: the cause found on this system, or the packages to install.
std::string remedy_without_library(os::Vendor vendor, const std::string& install);

/// Returns "CUDA_VISIBLE_DEVICES is set to \"\"" for each variable that is set; empty if none is.
inline std::string set_variables(std::initializer_list<const char*> names) {
  std::string out;
  for (const char* name : names)
    if (const auto value = os::environment(name))
      out += (out.empty() ? "" : ", ") + std::string(name) + " is set to \"" + *value + "\"";
  return out;
}

/// Converts "0000:3B:00.0" to "pci:0000:3b:00.0", the format of all backends; empty if it is not a PCI address.
std::string pci_identity(const std::string& text);
/// Returns "uuid:" and 32 hexadecimal digits.
std::string uuid_identity(const char (&bytes)[16]);

}  // namespace tessera::stream
