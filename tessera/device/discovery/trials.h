// SPDX-License-Identifier: Apache-2.0
// Trials: a helper process opens a device and runs a first kernel before this program opens it, because drivers tend to
// crash in contexts and compilers. Results are cached on disk, so that each device costs one context and one
// compilation until the driver, the environment or the machine changes. Internal to device/.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tessera/device/driver.h"

namespace tessera {

/// Where a device was listed: the driver's part, the index there, the path of tessera-probe, and the key of that part's
/// probe result (probe_results.h).
struct Origin {
  VendorDriver part;
  int index = 0;
  std::filesystem::path program;
  std::string row_key;
};

/// Runs a trial unless its result is cached, and updates the device's state. Returns false if the driver now lists
/// another device than `info`: the report is stale.
/// Throws DeviceError if the device computes wrong results, crashes or hangs the helper process or cannot be opened;
/// OutOfMemory.
bool try_first(const DeviceInfo& info, const Origin& origin);

/// Marks on disk that this program is opening the device. If the program ends meanwhile, the next one runs a trial
/// again.
class OpeningMark {
 public:
  OpeningMark(const DeviceInfo& info, const Origin& origin);
  ~OpeningMark();
  OpeningMark(const OpeningMark&) = delete;
  OpeningMark& operator=(const OpeningMark&) = delete;

 private:
  std::string name_;
};

/// Remedy for a device that computes wrong results.
inline constexpr const char* wrong_remedy =
    "Update or reinstall its driver, then call rescan(); or select another device with TESSERA_DEVICE";

/// Remedy for an error that may be temporary.
inline constexpr const char* try_again = "The cause may be temporary; opening is retried whenever the device is used";

/// Caches that the device computed a wrong result in this program.
void record_wrong_result(const DeviceInfo& info, const Origin& origin, const std::string& reason);
/// Removes the results of all devices.
void forget_trials();

}  // namespace tessera
