// SPDX-License-Identifier: Apache-2.0
// Whether a device can be opened, found out by a probe before this program opens it, and kept on disk for the next
// process: contexts and compilers are where drivers die. It costs a context and a compilation once for each device,
// until the driver, the environment or the machine changes. Internal to device/.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tessera/device/driver.h"

namespace tessera {

/// Where a device of a row comes from: the part of the driver that showed it, its number there, the probe's program,
/// and the key of that part's answer (probe_results.h).
struct Origin {
  VendorDriver part;
  int index = 0;
  std::filesystem::path program;
  std::string row_key;
};

/// May this program open the device? Asks a probe to, unless it is known. What it finds is noted with the device:
/// DeviceError if the device computes wrongly, ends or stops the probe, or is refused; OutOfMemory. False if the driver
/// shows another device now than `info`: the row is old.
bool try_first(const DeviceInfo& info, const Origin& origin);

/// While it lives, this program is opening the device: if the program ends meanwhile, the next one asks a probe again.
class OpeningMark {
 public:
  OpeningMark(const DeviceInfo& info, const Origin& origin);
  ~OpeningMark();
  OpeningMark(const OpeningMark&) = delete;
  OpeningMark& operator=(const OpeningMark&) = delete;

 private:
  std::string name_;
};

/// What to do about a device that computes wrongly.
inline constexpr const char* wrong_remedy =
    "Update or reinstall its driver, then call rescan(); or name another device with TESSERA_DEVICE";

/// What to do about one that refuses, or fails for a reason that may pass.
inline constexpr const char* try_again = "This may pass; it is tried again whenever the device is asked for";

/// The device computed wrongly in this program: no other need find out.
void record_wrong_result(const DeviceInfo& info, const Origin& origin, const std::string& reason);
/// Of all devices.
void forget_trials();

}  // namespace tessera
