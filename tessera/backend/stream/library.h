// SPDX-License-Identifier: Apache-2.0
// Helpers for the vendor folders, which open libraries and report why a library could not be opened.
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

/// Gets an entry point. If it is missing, stores its name in `missing`, unless `missing` already contains a name.
template <class F>
void take(const os::Library& library, F*& to, const char* symbol, std::string& missing) {
  to = library.function<F>(symbol);
  if (!to && missing.empty()) missing = symbol;
}

/// Returns the file in the environment variable. There is no fallback: if this file is unusable, no other file is
/// tried.
inline std::string library_from_variable(const char* variable) { return os::environment(variable).value_or(""); }

/// Returns true if a vendor's library was opened and has all functions. Otherwise sets the reason and the remedy in
/// `report`. If the environment variable `variable` is set, the remedy is to correct it. If no library was opened, the
/// remedy is the result of absent(). If a function is missing, the remedy is `install`, and the reason says that the
/// library is `older` ("older than CUDA 11, or not NVIDIA's driver").
bool check_library(BackendReport& report, const char* variable, const os::Library& file, const std::string& missing,
                   const std::string& older, const std::function<std::string()>& absent, const std::string& install);

/// Returns the remedy for an unusable file in this environment variable.
std::string remedy_where_named(const char* variable);

/// Returns the remedy for a missing vendor library: the cause found on this system, or the packages to install.
std::string remedy_without_library(os::Vendor vendor, const std::string& install);

/// Lists the variables that are set, such as "CUDA_VISIBLE_DEVICES is set to \"0\"". Returns an empty string if none is
/// set.
inline std::string set_variables(std::initializer_list<const char*> names) {
  std::string out;
  for (const char* name : names)
    if (const auto value = os::environment(name))
      out += (out.empty() ? "" : ", ") + std::string(name) + " is set to \"" + *value + "\"";
  return out;
}

/// Converts "0000:3B:00.0" to "pci:0000:3b:00.0", the format of all backends. Returns an empty string if `text` is not
/// a PCI address.
std::string pci_identity(const std::string& text);
/// Returns "uuid:" and 32 hexadecimal digits.
std::string uuid_identity(const char (&bytes)[16]);

}  // namespace tessera::stream
