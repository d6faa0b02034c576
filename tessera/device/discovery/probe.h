// SPDX-License-Identifier: Apache-2.0
// Probes a driver in a helper process: `tessera-probe` loads it, enumerates its devices and answers within a time
// limit. If the driver crashes or hangs that process, only the report's state changes. Internal to device/.
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

/// Path of tessera-probe, near the library or as set by TESSERA_PROBE. Nothing if it does not exist or
/// TESSERA_PROBE=off: drivers are then loaded into this process directly, which is logged once.
std::optional<std::filesystem::path> probe_program();

/// True if devices are opened in a helper process first; false if TESSERA_PROBE=list.
bool devices_are_tried();
/// Maximum duration of `probe` or `run_trial`.
std::chrono::seconds longest_probe();

/// How long other processes may use a cached probe result.
enum class Validity : std::uint8_t {
  now,        ///< not cached: the next probe may differ
  temporary,  ///< cached for 10 minutes: may recover, but is slow to probe (a hang, too much memory)
  always      ///< cached until something that it depends on changes
};
inline constexpr std::chrono::minutes temporary_validity{10};

struct Answer {
  BackendReport report;
  Validity holds = Validity::now;
};
/// Probes one part of a backend's driver. Never throws for the driver's errors. Returns nothing if the helper process
/// could not be started. A driver that times out is retried once with a longer limit.
std::optional<Answer> probe(const std::filesystem::path& program, Backend backend, const VendorDriver& part);

/// Result of opening a device in a helper process, and of compiling and running the first kernel on it.
struct Trial {
  /// verified: it works; quarantined: wrong result; crashed, hung; enumerated: the driver returned an error that may be
  /// temporary (another program uses the device or its memory).
  DeviceState state = DeviceState::enumerated;
  Validity holds = Validity::now;
  bool out_of_memory = false;  ///< the driver reported out of memory
  std::string reason, remedy;
  BackendReport seen;  ///< the driver's report in that process, if it got that far
};
/// Like `probe`, for the device with this index in the part. `who` is the device's name for messages.
std::optional<Trial> run_trial(const std::filesystem::path& program, Backend backend, const VendorDriver& part,
                               int index, const std::string& who);

/// Returns the files that the loader would open for these names, in order, without those not found.
std::vector<std::string> files_found(const std::vector<std::string>& names);

/// Entry point of tessera-probe. `arguments`: a backend's name, the part's name if it has one, "--open=N" to open a
/// device, and what `os::run_child` appends; without the latter the answer is written to standard output. Does not
/// return normally: it ends the process.
int probe_main(std::span<const std::string> arguments);

}  // namespace tessera
