// SPDX-License-Identifier: Apache-2.0
// The options that /set of `tessera chat` lists and changes.
#pragma once

#include <string>

#include "tessera/llm/language_model.h"

namespace tessera::app {

/// Lists the options with their values and meanings, one per line.
std::string settings_text(GenerateOptions options);
/// Changes an option. `text` is its name and value, such as "temperature 0.2". Returns a text that reports the change.
/// Throws ArgumentError if the option does not exist or the value is out of range.
std::string change_setting(GenerateOptions& options, const std::string& text);

}  // namespace tessera::app
