// SPDX-License-Identifier: Apache-2.0
// Which device a project or a user prefers, kept in a small TOML file that people may also edit by hand.
// A preference binds: where it cannot be met there is an error, and no other device is taken in its stead.
#pragma once

#include <optional>
#include <string>

#include "tessera/device/device.h"

namespace tessera {

/// Of both, the project's counts first. Its file is the `tessera.toml` nearest to the working directory, in it or above
/// it, up to the user's home or the root; the user's is tessera/config.toml in $XDG_CONFIG_HOME, else in ~/.config.
/// A file that belongs to neither this user nor root, or is no regular file, is not read, and a warning says so.
enum class PreferenceScope : std::uint8_t { project, user };

/// What a file says:
///
///     [device]
///     prefer = "cuda:1"
///     identity = "pci:0000:3b:00.0"   # of that device when it was written; it counts more than the number
///     name = "NVIDIA A100"            # for people
struct Preference {
  PreferenceScope scope = PreferenceScope::user;  ///< Whose preference it is.
  std::string file;                               ///< The file it was read from.
  std::uint32_t line = 0, column = 0;             ///< of the value of `prefer`, from 1
  Device device;                                  ///< as written: the numbers of devices may have changed since
  std::string identity, name;                     ///< empty where the file does not say
};

/// The file's path: of the one that is read or, where there is none, that would be made (the project's in the working
/// directory). Empty if this user has no home.
std::string preference_file(PreferenceScope scope);
/// What the file says now; nothing if there is no file, or no preference in it. FormatError or DeviceError with file,
/// line and column for a file that is not as above: no TOML, an unknown key, another type, a name that is no device's.
std::optional<Preference> read_preference(PreferenceScope scope);
/// The device that a preference means on this machine, now: the one of its identity, whichever number that has, else
/// the one of its name. DeviceError with file, line and column, and the devices that exist, if it is not there.
Device resolve(const Preference& preference);

/// Writes the preference, or with nothing takes it out of the file, and makes it take effect at once in this process;
/// others see it in their next `rescan()`. The rest of the file stays as it is, comments included. The file is replaced
/// in one step. DeviceError if the device does not exist; FormatError, and nothing is written, if the file is not as
/// above or cannot be changed without losing something; ArgumentError if it cannot be written or is another user's.
void set_preferred_device(std::optional<Device> device, PreferenceScope scope = PreferenceScope::user);

}  // namespace tessera
