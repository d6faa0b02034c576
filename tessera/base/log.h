// SPDX-License-Identifier: Apache-2.0
// Lines for people on standard error. Nothing is logged instead of an error: what fails throws; this is for warnings,
// for what was decided, and for traces that were asked for.
#pragma once

#include <string_view>

namespace tessera::logging {

enum class Level : unsigned char { trace, debug, info, warn, error, off };

/// Lines below this level are not written. Starts as TESSERA_LOG says (trace, debug, info, warn, error, off; else
/// warn). What each level has is in docs/map.md, with the settings.
void set_level(Level level);
/// ArgumentError if TESSERA_LOG is none of these. A line may be logged where nothing may be thrown: so lines are
/// written from `warn` on until somebody asks this, as the device layer and the program do before anything else.
void check_setting();
Level level();
inline bool enabled(Level at) { return at >= level(); }

void trace(std::string_view text);
void debug(std::string_view text);
void info(std::string_view text);
void warn(std::string_view text);  ///< behind the word "warning"
/// A line that was asked for by name (TESSERA_TRACE=1), whatever the level.
void print(std::string_view text);

}  // namespace tessera::logging
