// SPDX-License-Identifier: Apache-2.0
// The text of a file of preferences: reading and changing it, without looking at devices. Internal to device/.
#pragma once

#include <optional>
#include <string>

#include "tessera/device/selection/preferences.h"

namespace tessera {

/// FormatError or DeviceError naming `file`, line and column. `scope` and `file` go into the answer.
std::optional<Preference> parse_preference(const std::string& text, PreferenceScope scope, const std::string& file);
/// `text` with these values in the places of the old ones, or without them if there are none; everything else is kept.
/// FormatError if `text` is wrong, or if the change cannot be made in it.
std::string change_preference(const std::string& text, const std::optional<Preference>& wanted, PreferenceScope scope,
                              const std::string& file);

/// The preference that counts: the project's, else the user's. The files are read once, until `forget_preferences`.
std::optional<Preference> effective_preference();
void forget_preferences();

}  // namespace tessera
