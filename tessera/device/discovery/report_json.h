// SPDX-License-Identifier: Apache-2.0
// A backend's report as JSON and back: how `tessera-probe` answers, how answers are kept on disk, and what
// `tessera devices --json` writes. Every field is there, under its name in device.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tessera/device/device.h"

namespace tessera {

/// Text that is not UTF-8 (drivers' names) is replaced where it is not.
std::string report_json(const BackendReport& report);
/// FormatError if a field is missing or of another type, or a name is unknown.
BackendReport report_from_json(const nlohmann::ordered_json& json);
/// A text that others may have written. FormatError if it is no JSON or nested deeper than any text of ours: copying,
/// comparing and writing JSON recurse.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace tessera
