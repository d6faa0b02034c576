// SPDX-License-Identifier: Apache-2.0
// State changes of devices after enumeration: verified, quarantined, lost. Internal to device/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/device/discovery/trials.h"
#include "tessera/device/driver.h"

namespace tessera {

class Driver;

/// Sets the state that `discover` reports for this device. The state is dropped when the index refers to a different
/// physical device. After `until` (seconds since 1970), the device may be opened again. Never throws, because it is
/// called during exception handling.
void set_device_state(Device device, DeviceState state, std::string reason = {}, std::string remedy = {},
                      std::optional<std::int64_t> until = {}) noexcept;
/// Clears a state whose `until` has passed.
void clear_expired_state(Device device);

/// True if automatic selection may try the device. Opening it may still fail.
inline bool usable(const DeviceInfo& info) {
  return info.state == DeviceState::enumerated || info.state == DeviceState::verified;
}
/// Returns how to try the device in a helper process before it is opened; std::nullopt if that is not required.
std::optional<Origin> origin_of(Device device);
/// Returns why the device does not exist; std::nullopt if it exists.
std::optional<std::string> why_missing(Device device);
/// Lists the devices of all backends: "cpu:0 (AMD EPYC), opencl:0 (...)". If `asked` is a built-in backend, no driver
/// is probed: the list then contains only backends that were probed before, and mentions this.
std::string existing_devices(std::optional<Backend> asked = {});
/// Returns the report of `discover(backend)`, or an empty one if there is none yet. Does not probe.
const BackendReport& known(Backend backend);
/// Called if the driver lists different devices in this process than in its probe. The next `discover` then probes
/// again.
void mark_report_stale(Backend backend);
/// Must be called before a vendor's code is called in this process. If that is not allowed (after a fork), returns the
/// reason. Otherwise marks the driver as used and returns std::nullopt.
std::optional<std::string> enter_driver(Driver& driver);
/// Remedy for the error returned by enter_driver().
inline constexpr const char* instead_of_fork = "Use devices in the parent, or start the child with exec (posix_spawn)";
/// Makes the next `discover(backend)` probe again.
void forget_report(Backend backend);
/// Discards the result of automatic selection.
void forget_choice();

}  // namespace tessera
