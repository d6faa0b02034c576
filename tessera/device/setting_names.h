// SPDX-License-Identifier: Apache-2.0
// The names of the environment variables that Tessera reads (docs/map.md, Settings).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tessera {

/// The names without TESSERA_, sorted. Variables of tests are not among them.
std::span<const char* const> setting_names();

/// Returns a text for each of these variables ("NAME=value") that is not a setting, but named almost like one.
std::vector<std::string> misspelt_settings(const std::vector<std::string>& variables);

}  // namespace tessera
