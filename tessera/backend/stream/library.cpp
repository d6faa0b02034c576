// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/stream/library.h"

#include <cstdio>

#include <fmt/format.h>

#include "tessera/backend/common/missing_device.h"

namespace tessera::stream {

bool check_library(BackendReport& report, const char* variable, const os::Library& file, const std::string& missing,
                   const std::string& older, const std::function<std::string()>& absent, const std::string& install) {
  const bool named = !library_from_variable(variable).empty();
  report.file = file.file();
  if (!file.loaded()) {
    report.reason = file.reason();
    report.remedy = named ? remedy_where_named(variable) : absent();
    return false;
  }
  if (!missing.empty()) {
    report.reason = "the library has no " + missing + (older.empty() ? "" : ": it is " + older);
    report.remedy = named ? remedy_where_named(variable) : install;
    return false;
  }
  report.state = DeviceState::loaded;
  return true;
}

std::string remedy_where_named(const char* variable) {
  return fmt::format("{} names this file, and no other is tried: correct it, or unset it", variable);
}

std::string remedy_without_library(os::Vendor vendor, const std::string& install) {
  const std::string cause = os::display_card_of(vendor) ? "" : backend::diagnose_missing_device(vendor);
  return cause.empty() ? install : fmt::format("{}. If there is a card: {}", cause, install);
}

std::string pci_identity(const std::string& text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  const int parts = std::sscanf(text.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function);
  return parts < 3 ? "" : fmt::format("pci:{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

std::string uuid_identity(const char (&bytes)[16]) {
  std::string out = "uuid:";
  for (char b : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(b));
  return out;
}

}  // namespace tessera::stream
