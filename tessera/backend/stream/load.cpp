// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/stream/load.h"

#include <cstdio>

#include <fmt/format.h>

namespace tessera::stream {

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
