// SPDX-License-Identifier: Apache-2.0
// States of devices after enumeration: verified, quarantined, lost. Internal to device/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/device/discovery/trials.h"
#include "tessera/device/driver.h"

namespace tessera {

class Driver;

/// Sets the state that `discover` reports while this index refers to the same device. After `until` (seconds since
/// 1970) the device may be opened again. Never throws, since it is called during exception handling.
void set_device_state(Device device, DeviceState state, std::string reason = {}, std::string remedy = {},
                      std::optional<std::int64_t> until = {}) noexcept;
/// Clears a state whose `until` has passed.
void clear_expired_state(Device device);

/// True if automatic selection may try the device. Opening it may still fail.
inline bool usable(const DeviceInfo& info) {
  return info.state == DeviceState::enumerated || info.state == DeviceState::verified;
}
/// How to try the device in a helper process before opening it; nothing if that is not required.
std::optional<Origin> origin_of(Device device);
/// Returns why the device does not exist; nothing if it exists.
std::optional<std::string> why_missing(Device device);
/// Lists the devices of all backends: "cpu:0 (AMD EPYC), opencl:0 (...)". If `asked` is a built-in backend, no driver
/// is probed: only backends that were probed before are listed, and the text says so.
std::string existing_devices(std::optional<Backend> asked = {});
/// Returns the published report of `discover(backend)`, or an empty one. Does not probe.
const BackendReport& known(Backend backend);
/// Called if the driver in this process lists other devices than its probe did: the next `discover` probes again.
void mark_report_stale(Backend backend);
/// Must be called before a vendor's code is called in this process. Returns why it must not be called (after a fork),
/// or nothing and marks the driver as entered.
std::optional<std::string> enter_driver(Driver& driver);
/// Remedy for that error.
inline constexpr const char* instead_of_fork = "Use devices in the parent, or start the child with exec (posix_spawn)";
/// Makes the next `discover(backend)` probe again.
void forget_report(Backend backend);
/// Discards the automatic selection.
void forget_choice();

}  // namespace tessera
