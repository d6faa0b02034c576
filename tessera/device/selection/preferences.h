// SPDX-License-Identifier: Apache-2.0
// The preferred device of a project or user, stored in a small TOML file that may be edited by hand. If the preferred
// device is not available, an error is reported; no other device is used instead.
#pragma once

#include <optional>
#include <string>

#include "tessera/device/device.h"

namespace tessera {

/// Which file to use. The project's preference takes precedence over the user's.
/// The project's file is the nearest `tessera.toml` in the working directory or one of its parents, up to the user's
/// home directory or the root. The user's file is tessera/config.toml in $XDG_CONFIG_HOME, else in ~/.config. Files are
/// ignored with a warning if they are not regular files, or if they are owned neither by this user nor by root.
enum class PreferenceScope : std::uint8_t { project, user };

/// Contents of a preferences file:
///
///     [device]
///     prefer = "cuda:1"
///     identity = "pci:0000:3b:00.0"   # of that device when written; takes precedence over the index
///     name = "NVIDIA A100"            # for readers
struct Preference {
  PreferenceScope scope = PreferenceScope::user;  ///< The file that contains the preference.
  std::string file;                               ///< Path of the file.
  std::uint32_t line = 0, column = 0;             ///< Position of the value of `prefer`, from 1.
  Device device;               ///< The device as written in the file. Device indices may have changed since.
  std::string identity, name;  ///< Empty if not in the file.
};

/// Returns the path of the file that is read. If there is no such file, returns the path at which it would be created;
/// for the project, this is in the working directory. Returns an empty string if this user has no home directory.
std::string preference_file(PreferenceScope scope);
/// Reads the preference. Returns std::nullopt if there is no file or if it contains no preference. Throws FormatError
/// or DeviceError with file, line and column for invalid TOML, unknown keys, wrong types or an invalid device name.
std::optional<Preference> read_preference(PreferenceScope scope);
/// Returns the preferred device on this machine.
/// If the preference has an identity, this is the device with that identity, even if its index is different. The device
/// with the stored index is used if no identity is stored, or if that device has no identity but has the stored name.
/// Throws DeviceError with file, line, column and the existing devices if there is no such device.
Device resolve(const Preference& preference);

/// Writes the preference, or removes it if `device` is empty. Takes effect immediately in this process, and in other
/// processes after their next `rescan()`. Keeps the other contents of the file, including comments. The file is
/// replaced atomically.
/// Throws DeviceError if the device does not exist. Throws FormatError, without writing, if the file is invalid or
/// cannot be changed without losing contents. Throws ArgumentError if the file cannot be written or belongs to another
/// user.
void set_preferred_device(std::optional<Device> device, PreferenceScope scope = PreferenceScope::user);

}  // namespace tessera
