// SPDX-License-Identifier: Apache-2.0
// Parses and edits the text of a preferences file, without accessing devices. Internal to device/.
#pragma once

#include <optional>
#include <string>

#include "tessera/device/selection/preferences.h"

namespace tessera {

/// Throws FormatError or DeviceError with `file`, line and column. `scope` and `file` are stored in the result.
std::optional<Preference> parse_preference(const std::string& text, PreferenceScope scope, const std::string& file);
/// Returns `text` with its values replaced by `wanted`, or removed if that is empty; everything else is kept. Throws
/// FormatError if `text` is invalid, or if it cannot be changed safely.
std::string change_preference(const std::string& text, const std::optional<Preference>& wanted, PreferenceScope scope,
                              const std::string& file);

/// Returns the preference in effect: the project's, else the user's. Files are read once, until `forget_preferences`.
std::optional<Preference> effective_preference();
void forget_preferences();

}  // namespace tessera
