// SPDX-License-Identifier: Apache-2.0
// Asks a driver in a process of its own: `tessera-probe` loads it, enumerates, and answers within a time limit. What
// kills or stops that process is a state of the row and nothing more. Internal to device/.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/driver.h"

namespace tessera {

/// The program, beside our library or where TESSERA_PROBE says. Nothing if it is not there, or TESSERA_PROBE=off:
/// drivers are then asked in this process, and the log says so once.
std::optional<std::filesystem::path> probe_program();

/// What a probe of this part of a backend's driver found. Never throws for what the driver does; nothing if the program
/// could not be started.
std::optional<BackendReport> probe(const std::filesystem::path& program, Backend backend, const ForeignPart& part);

/// The files that the loader would open for these names, in their order; those that it does not find are left out.
std::vector<std::string> files_found(const std::vector<std::string>& names);

/// For the program itself: `arguments` are a backend's name, then the part's name if it has one, then "--answer=N"
/// where process N has started it by run_child; else the answer goes to standard output. Gives the exit code.
int probe_main(std::span<const std::string> arguments);

}  // namespace tessera
