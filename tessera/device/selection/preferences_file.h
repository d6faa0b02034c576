// SPDX-License-Identifier: Apache-2.0
// Parses and edits the text of a preferences file. Does not access devices. Internal to device/.
#pragma once

#include <optional>
#include <string>

#include "tessera/device/selection/preferences.h"

namespace tessera {

/// Parses a preferences file. Throws FormatError or DeviceError with `file`, line and column. `scope` and `file` are
/// copied to the result.
std::optional<Preference> parse_preference(const std::string& text, PreferenceScope scope, const std::string& file);
/// Returns `text` with the values of `wanted`, or without a preference if `wanted` is empty. All other text is kept.
/// Throws FormatError if `text` is invalid or cannot be changed safely.
std::string change_preference(const std::string& text, const std::optional<Preference>& wanted, PreferenceScope scope,
                              const std::string& file);

/// Returns the preference in effect: the project's, else the user's. The files are read only once, until
/// `forget_preferences` is called.
std::optional<Preference> effective_preference();
void forget_preferences();

}  // namespace tessera
