// SPDX-License-Identifier: Apache-2.0
// Messages on standard error: warnings, decisions and traces. Errors are thrown, never only logged.
#pragma once

#include <string_view>

namespace tessera::logging {

enum class Level : unsigned char { trace, debug, info, warn, error, off };

/// Sets the minimum level of messages. The default is the value of TESSERA_LOG (trace, debug, info, warn, error or
/// off), else `warn`. docs/map.md lists what each level prints.
void set_level(Level level);
/// Throws ArgumentError if TESSERA_LOG is not a valid level. Logging functions cannot throw: they use the level `warn`
/// if the value is invalid. The device layer and the program call this function before they log.
void check_setting();
Level level();
inline bool enabled(Level at) { return at >= level(); }

void trace(std::string_view text);
void debug(std::string_view text);
void info(std::string_view text);
void warn(std::string_view text);  ///< prefixed with "warning: "
/// Prints regardless of the level. Used for output that another environment variable enables, such as TESSERA_TRACE=1.
void print(std::string_view text);

}  // namespace tessera::logging
