// SPDX-License-Identifier: Apache-2.0
// Probes a driver in a helper process. `tessera-probe` loads the driver, enumerates its devices and must answer within
// a time limit. If the driver crashes or hangs, only the reported state changes. Internal to device/.
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

/// Returns the path of tessera-probe, which is next to the library or set by TESSERA_PROBE. Returns std::nullopt if it
/// does not exist or TESSERA_PROBE=off. Drivers are then loaded directly into this process, which is logged once.
std::optional<std::filesystem::path> probe_program();

/// True if a helper process opens each device first; false if TESSERA_PROBE=list.
bool devices_are_tried();
/// Maximum duration of `probe` or `run_trial`.
std::chrono::seconds longest_probe();

/// How long a probe result may be cached for other processes.
enum class Validity : std::uint8_t {
  now,        ///< not cached, because the next probe may return a different result
  temporary,  ///< cached for 10 minutes, for errors that may disappear but are slow to probe, such as a hang
  always      ///< cached until something that it depends on changes
};
inline constexpr std::chrono::minutes temporary_validity{10};

struct Answer {
  BackendReport report;
  Validity holds = Validity::now;
};
/// Probes one part of a backend's driver. Errors of the driver are reported, not thrown. Returns std::nullopt if the
/// helper process could not be started. A driver that times out is retried once with a longer limit.
std::optional<Answer> probe(const std::filesystem::path& program, Backend backend, const VendorDriver& part);

/// Result of opening a device and running the first kernel on it in a helper process.
struct Trial {
  /// verified: the device works. quarantined: it computed a wrong result. crashed, hung: the helper process crashed or
  /// hung. enumerated: the driver returned an error that may be temporary, because another program uses the device or
  /// its memory.
  DeviceState state = DeviceState::enumerated;
  Validity holds = Validity::now;
  bool out_of_memory = false;  ///< the driver reported out of memory
  std::string reason, remedy;
  BackendReport seen;  ///< the driver's report in the helper process, if the process got that far
};
/// Like `probe`, but opens the device with this index in the part. `who` is the device's name for messages.
std::optional<Trial> run_trial(const std::filesystem::path& program, Backend backend, const VendorDriver& part,
                               int index, const std::string& who);

/// Returns the files that the loader would open for these library names, in order. Names that are not found are
/// omitted.
std::vector<std::string> files_found(const std::vector<std::string>& names);

/// Entry point of tessera-probe. `arguments` are a backend's name, the part's name if it has one, "--open=N" to open a
/// device, and the arguments that `os::run_child` appends. Without the arguments of `os::run_child`, the answer is
/// written to standard output. Ends the process instead of returning.
int probe_main(std::span<const std::string> arguments);

}  // namespace tessera
