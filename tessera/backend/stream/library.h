// SPDX-License-Identifier: Apache-2.0
// Helpers with which a vendor's folder opens its libraries and says why it could not.
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

/// Takes an entry point, or notes the first that is missing.
template <class F>
void take(const os::Library& library, F*& to, const char* symbol, std::string& missing) {
  to = library.function<F>(symbol);
  if (!to && missing.empty()) missing = symbol;
}

/// The file that a variable names, which binds: if it does not do, no other is tried.
inline std::string library_from_variable(const char* variable) { return os::environment(variable).value_or(""); }

/// Whether a vendor's library could be opened and lacks nothing. Else the report says so, with what to do: if
/// `variable` names the file, to correct that; else `absent()` if it was not opened, and `install` if it lacks a
/// function, and so is `older` ("older than CUDA 11, or not NVIDIA's driver").
bool check_library(BackendReport& report, const char* variable, const os::Library& file, const std::string& missing,
                   const std::string& older, const std::function<std::string()>& absent, const std::string& install);

/// What to do where a file is wrong that this variable names.
std::string remedy_where_named(const char* variable);

/// What to do where a vendor's library is not there: what the system shows to be wrong, or to install it.
std::string remedy_without_library(os::Vendor vendor, const std::string& install);

/// "CUDA_VISIBLE_DEVICES is set to \"\"" for each of these that is set; empty if none is.
inline std::string set_variables(std::initializer_list<const char*> names) {
  std::string out;
  for (const char* name : names)
    if (const auto value = os::environment(name))
      out += (out.empty() ? "" : ", ") + std::string(name) + " is set to \"" + *value + "\"";
  return out;
}

/// "0000:3B:00.0" as "pci:0000:3b:00.0", the form in which every backend tells it; empty if it is no PCI address.
std::string pci_identity(const std::string& text);
/// "uuid:" and 32 hexadecimal digits.
std::string uuid_identity(const char (&bytes)[16]);

}  // namespace tessera::stream
