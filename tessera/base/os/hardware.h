// SPDX-License-Identifier: Apache-2.0
// What the system shows about graphics cards: PCI bus, device files, kernel drivers, containers. Diagnoses an
// undetected GPU without loading a driver. All paths are below a configurable root, so that tests can simulate
// machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/os/system.h"

namespace tessera::os {

/// "/", or the folder named by TESSERA_SYSTEM_ROOT, where tests provide their own /sys, /dev and /proc.
std::filesystem::path system_root();

/// PCI vendor ids.
enum Vendor : std::uint32_t { nvidia = 0x10de, amd = 0x1002, intel = 0x8086 };

struct DisplayCard {
  std::string address;  ///< "0000:3b:00.0"
  std::uint32_t vendor = 0, device = 0;
  std::string module;  ///< the kernel driver bound to it, such as "amdgpu"; empty: none
};
/// Display controllers and processing accelerators on the PCI bus, by address.
std::vector<DisplayCard> display_cards(const std::filesystem::path& root = system_root());

struct DeviceFile {
  std::string path;  ///< without the root
  Access access = Access::missing;
  std::string group;   ///< the owning group; a number if it has no name
  std::string vendor;  ///< of a render node: the PCI vendor id as the kernel prints it, "0x8086"
};
/// The existing files among /dev/nvidia*, /dev/kfd, /dev/dri/renderD* and /dev/dxg.
std::vector<DeviceFile> device_files(const std::filesystem::path& root = system_root());

/// The container runtime: "docker", "podman", "kubernetes", "lxc", or "container" for others; empty outside a
/// container.
std::string container(const std::filesystem::path& root = system_root());
/// The version of NVIDIA's kernel module, "580.95.05"; empty if it is not loaded.
std::string nvidia_kernel_driver(const std::filesystem::path& root = system_root());
/// Changes at each boot; empty if the system provides none.
std::string boot_id(const std::filesystem::path& root = system_root());

/// A line that covers the above and the current user. Cached driver results are invalid if it changes.
std::string hardware_fingerprint(const std::filesystem::path& root = system_root());

/// "path size time inode" of a file, following links; "path -" if it does not exist.
std::string file_stamp(const std::filesystem::path& file);

/// The environment variables that start with one of these space-separated prefixes, as "NAME=value", sorted.
std::vector<std::string> variables_named(std::string_view beginnings);

}  // namespace tessera::os
