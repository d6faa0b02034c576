// SPDX-License-Identifier: Apache-2.0
// Messages on standard error: warnings, decisions and requested traces. Errors are thrown, never only logged.
#pragma once

#include <string_view>

namespace tessera::logging {

enum class Level : unsigned char { trace, debug, info, warn, error, off };

/// Sets the minimum level. The default comes from TESSERA_LOG (trace, debug, info, warn, error or off), else `warn`.
/// docs/map.md lists what each level prints.
void set_level(Level level);
/// Throws ArgumentError if TESSERA_LOG is not a valid level. Logging itself must not throw: with an invalid value the
/// level is `warn` until this is called. The device layer and the program call it first.
void check_setting();
Level level();
inline bool enabled(Level at) { return at >= level(); }

void trace(std::string_view text);
void debug(std::string_view text);
void info(std::string_view text);
void warn(std::string_view text);  ///< prefixed with "warning: "
/// Prints regardless of the level, for output enabled by its own variable (TESSERA_TRACE=1).
void print(std::string_view text);

}  // namespace tessera::logging
