// SPDX-License-Identifier: Apache-2.0
// Trials: before this program opens a device, a helper process opens it and runs a test kernel, because drivers often
// crash when they create a context or compile. Results are cached on disk, so that the test runs only once until the
// driver, the environment or the machine changes. Internal to device/.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tessera/device/driver.h"

namespace tessera {

/// Identifies a device in a driver: the driver's part, the index in this part, the path of tessera-probe, and the key
/// of the part's probe result (probe_results.h).
struct Origin {
  VendorDriver part;
  int index = 0;
  std::filesystem::path program;
  std::string row_key;
};

/// Runs a trial unless its result is cached, and updates the device's state. Returns false if the driver now lists a
/// different device than `info`, so that the report is outdated.
/// Throws DeviceError if the device computes wrong results, crashes or hangs the helper process, or cannot be opened.
/// Throws OutOfMemory if the device has too little free memory.
bool try_first(const DeviceInfo& info, const Origin& origin);

/// Marks on disk that this program is opening the device. If the program dies while it opens the device, the next
/// program runs a trial again.
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

/// Records in the cache that the device computed a wrong result in this program.
void record_wrong_result(const DeviceInfo& info, const Origin& origin, const std::string& reason);
/// Removes the trial results of all devices.
void forget_trials();

}  // namespace tessera
