// SPDX-License-Identifier: Apache-2.0
// What becomes of devices after they were enumerated: verified, quarantined, lost. Internal to device/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/device/discovery/trials.h"

namespace tessera {

class Driver;

/// From now on `discover` shows this state, while the device with this number is the one that it is now. `until`: it
/// may be opened again from this second since 1970 on. Never throws: it is called while an error is on its way.
void set_device_state(Device device, DeviceState state, std::string reason = {}, std::string remedy = {},
                      std::optional<std::int64_t> until = {}) noexcept;
/// Takes back a state whose time is over.
void clear_expired_state(Device device);

/// May automatic choice take it? (It may not open nevertheless.)
inline bool usable(const DeviceInfo& info) {
  return info.state == DeviceState::enumerated || info.state == DeviceState::verified;
}
/// Where the device's row was found out by a probe, and devices are tried before they are opened: what to try.
std::optional<Origin> origin_of(Device device);
/// Why there is no such device; nothing if there is one.
std::optional<std::string> why_missing(Device device);
/// "cpu:0 (AMD EPYC), opencl:0 (...)": every device of every backend. Where `asked` is one that needs no driver, no
/// driver is asked, which the text says: those that have been asked before count.
std::string existing_devices(std::optional<Backend> asked = {});
/// What `discover(backend)` gave if it was called, else an empty report: asks nobody.
const BackendReport& known(Backend backend);
/// The driver in this process disagrees with what its probe said: the next `discover` asks it again.
void mark_report_stale(Backend backend);
/// To be asked before a vendor's code is called in this process: why it must not be, if it must not. It is taken for
/// called from then on.
std::optional<std::string> enter_driver(Driver& driver);
/// What is done about that.
inline constexpr const char* instead_of_fork = "Use devices in the parent, or start the child with exec (posix_spawn)";
/// The next `discover(backend)` asks its driver again.
void forget_report(Backend backend);
/// Forgets which device was chosen automatically.
void forget_choice();

}  // namespace tessera
