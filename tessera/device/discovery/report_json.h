// SPDX-License-Identifier: Apache-2.0
// Conversion of a backend's report to and from JSON. Used for the answer of `tessera-probe`, the cache on disk and
// `tessera devices --json`. The JSON contains every field under its name in device.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tessera/device/device.h"

namespace tessera {

/// Converts a report to JSON. Replaces invalid UTF-8 in drivers' names.
std::string report_json(const BackendReport& report);
/// Parses a report. Throws FormatError if a field is missing or has the wrong type, or if a name is unknown.
BackendReport report_from_json(const nlohmann::ordered_json& json);
/// Parses untrusted JSON. Throws FormatError if it is invalid or nested more deeply than a report. The depth is limited
/// because copying, comparing and writing JSON are recursive.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace tessera
