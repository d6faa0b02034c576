// SPDX-License-Identifier: Apache-2.0
// Asks a driver in a process of its own: `tessera-probe` loads it, enumerates, and answers within a time limit. What
// kills or stops that process is a state of the row and nothing more. Internal to device/.
#pragma once

#include <chrono>
#include <cstdint>
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

/// Do devices get a probe of their own before they are opened? Not with TESSERA_PROBE=list.
bool devices_are_tried();
/// The longest that one of the two below takes.
std::chrono::seconds longest_probe();

/// For how long later processes may believe what a probe found.
enum class Validity : std::uint8_t {
  now,        ///< it may be otherwise the next time
  temporary,  ///< it may pass, but costs much to find out: it hung, or was ended for the memory that it took
  always      ///< until something changes that it depends on
};
inline constexpr std::chrono::minutes temporary_validity{10};

struct Answer {
  BackendReport report;
  Validity holds = Validity::now;
};
/// What a probe of this part of a backend's driver found. Never throws for what the driver does; nothing if the program
/// could not be started. A driver that does not answer in time is asked once more, with a longer limit.
std::optional<Answer> probe(const std::filesystem::path& program, Backend backend, const VendorDriver& part);

/// What a probe found that opened one device, and compiled and ran the first kernel there.
struct Trial {
  /// verified: it works; quarantined: the result was wrong; crashed, hung; enumerated: the driver said no, which it may
  /// not do the next time (another program has the device, or its memory).
  DeviceState state = DeviceState::enumerated;
  Validity holds = Validity::now;
  bool out_of_memory = false;  ///< that is what the driver said
  std::string reason, remedy;
  BackendReport seen;  ///< what the driver listed in that process, if it got so far
};
/// As `probe`, of the device with this number in the part; `who` is the device, for sentences.
std::optional<Trial> run_trial(const std::filesystem::path& program, Backend backend, const VendorDriver& part,
                               int index, const std::string& who);

/// The files that the loader would open for these names, in their order; those that it does not find are left out.
std::vector<std::string> files_found(const std::vector<std::string>& names);

/// For the program itself: `arguments` are a backend's name, then the part's name if it has one, then "--open=N" if a
/// device is to be opened, then what `os::run_child` adds if that has started it; else the answer goes to standard
/// output. Gives the exit code.
int probe_main(std::span<const std::string> arguments);

}  // namespace tessera
