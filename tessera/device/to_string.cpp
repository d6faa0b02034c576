// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/to_string.h"

#include <fmt/format.h>

#include "tessera/base/config.h"
#include "tessera/base/printable.h"

namespace tessera {

namespace {

/// Appends ": reason. Remedy" if they are not empty.
std::string with_reason(std::string text, const std::string& reason, const std::string& remedy) {
  if (!reason.empty()) text += ": " + reason;
  if (!remedy.empty()) text += ". " + remedy;
  return text;
}

}  // namespace

std::string to_string(const DeviceInfo& info) {
  std::string text =
      fmt::format("{} ({}): {}, {}", to_string(info.device), info.name, kind_name(info.kind), state_name(info.state));
  if (info.total_memory != 0) text += ", " + config::format_bytes(info.total_memory);
  return with_reason(std::move(text), info.reason, info.remedy);
}

std::string to_string(const BackendReport& report) {
  std::string text = with_reason(fmt::format("{}: {}", backend_name(report.backend), state_name(report.state)),
                                 report.reason, report.remedy);
  for (const DeviceInfo& info : report.devices) text += "\n  " + to_string(info);
  return text;
}

std::string to_string(const MemoryStats& m) {
  return fmt::format("{} live, {} cached, {} at most; {}; {}, {}", config::format_bytes(m.live_bytes),
                     config::format_bytes(m.cached_bytes), config::format_bytes(m.peak_bytes),
                     m.limit_bytes ? "limit " + config::format_bytes(m.limit_bytes) : "no limit",
                     count_noun(m.allocations, "allocation"), count_noun(m.reuses, "reuse"));
}

}  // namespace tessera
