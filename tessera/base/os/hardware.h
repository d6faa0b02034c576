// SPDX-License-Identifier: Apache-2.0
// Information from the system about graphics cards: PCI bus, device files, kernel drivers and containers. Used to find
// out why a GPU was not detected, without loading a driver. All paths are below a configurable root, so that tests can
// simulate machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/os/system.h"

namespace tessera::os {

/// Returns "/", or the folder in TESSERA_SYSTEM_ROOT. Tests use it to provide their own /sys, /dev and /proc.
std::filesystem::path system_root();

/// PCI vendor ids.
enum Vendor : std::uint32_t { nvidia = 0x10de, amd = 0x1002, intel = 0x8086 };

struct DisplayCard {
  std::string address;  ///< "0000:3b:00.0"
  std::uint32_t vendor = 0, device = 0;
  std::string module;  ///< the kernel driver bound to the card, such as "amdgpu"; empty if there is none
};
/// Returns the display controllers and processing accelerators on the PCI bus, sorted by address.
std::vector<DisplayCard> display_cards(const std::filesystem::path& root = system_root());

struct DeviceFile {
  std::string path;  ///< without the root
  Access access = Access::missing;
  std::string group;   ///< name of the owning group, or its number if it has no name
  std::string vendor;  ///< for a render node: the PCI vendor id as printed by the kernel, "0x8086"
};
/// Returns the existing files among /dev/nvidia*, /dev/kfd, /dev/dri/renderD* and /dev/dxg.
std::vector<DeviceFile> device_files(const std::filesystem::path& root = system_root());

/// Returns the container runtime: "docker", "podman", "kubernetes" or "lxc". Returns "container" for other runtimes and
/// an empty string outside of a container.
std::string container(const std::filesystem::path& root = system_root());
/// Returns the version of NVIDIA's kernel module, such as "580.95.05". Returns an empty string if it is not loaded.
std::string nvidia_kernel_driver(const std::filesystem::path& root = system_root());
/// Returns an id that changes at each boot. Returns an empty string if the system has none.
std::string boot_id(const std::filesystem::path& root = system_root());

/// Returns a line that describes all of the above and the current user. Cached driver results become invalid if this
/// line changes.
std::string hardware_fingerprint(const std::filesystem::path& root = system_root());

/// Returns "path size time inode" for a file, following links. Returns "path -" if it does not exist.
std::string file_stamp(const std::filesystem::path& file);

/// Returns the environment variables that start with one of these space-separated prefixes. They have the form
/// "NAME=value" and are sorted.
std::vector<std::string> variables_named(std::string_view beginnings);

}  // namespace tessera::os
