// SPDX-License-Identifier: Apache-2.0
// The device that a project or user prefers, stored in a small TOML file that may be edited by hand. If the preferred
// device is unavailable, the result is an error, never a different device.
#pragma once

#include <optional>
#include <string>

#include "tessera/device/device.h"

namespace tessera {

/// The project's preference takes precedence. Its file is the nearest `tessera.toml` in the working directory or its
/// parents, up to the user's home or the root; the user's file is tessera/config.toml in $XDG_CONFIG_HOME, else in
/// ~/.config. Files that are not regular, or not owned by this user or root, are ignored with a warning.
enum class PreferenceScope : std::uint8_t { project, user };

/// Contents of a preferences file:
///
///     [device]
///     prefer = "cuda:1"
///     identity = "pci:0000:3b:00.0"   # of that device when written; takes precedence over the index
///     name = "NVIDIA A100"            # for readers
struct Preference {
  PreferenceScope scope = PreferenceScope::user;  ///< Which file it is from.
  std::string file;                               ///< Path of the file.
  std::uint32_t line = 0, column = 0;             ///< Position of the value of `prefer`, from 1.
  Device device;                                  ///< As written; device indices may have changed since.
  std::string identity, name;                     ///< Empty if not in the file.
};

/// Returns the path of the file that is read, or would be created if there is none (the project's in the working
/// directory). Empty if this user has no home directory.
std::string preference_file(PreferenceScope scope);
/// Reads the preference; nothing if there is no file, or no preference in it. Throws FormatError or DeviceError with
/// file, line and column for invalid TOML, unknown keys, wrong types, or an invalid device name.
std::optional<Preference> read_preference(PreferenceScope scope);
/// Returns the preferred device on this machine: the one with the stored identity, whatever its index. Without a stored
/// identity, or if the device with the stored index has no identity but the stored name, returns that device. Throws
/// DeviceError with file, line and column, and the existing devices, if there is none.
Device resolve(const Preference& preference);

/// Writes the preference, or removes it if `device` is empty. Takes effect immediately in this process, in others at
/// their next `rescan()`. Keeps the rest of the file, including comments; the file is replaced atomically.
/// Throws DeviceError if the device does not exist; FormatError, without writing, if the file is invalid or cannot be
/// changed without losing contents; ArgumentError if it cannot be written or belongs to another user.
void set_preferred_device(std::optional<Device> device, PreferenceScope scope = PreferenceScope::user);

}  // namespace tessera
