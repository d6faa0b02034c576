// SPDX-License-Identifier: Apache-2.0
// What the system shows of its graphics cards: the PCI bus, device files, kernel drivers, containers. Answers "why is
// my GPU not seen?" without loading any driver; every path may lie under another root, so that tests can make machines
// up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/os/system.h"

namespace tessera::os {

/// "/"; TESSERA_SYSTEM_ROOT names another folder, in which tests have a /sys, /dev and /proc of their own.
std::filesystem::path system_root();

/// PCI's numbers of the vendors.
enum Vendor : std::uint32_t { nvidia = 0x10de, amd = 0x1002, intel = 0x8086 };

struct DisplayCard {
  std::string address;  ///< "0000:3b:00.0"
  std::uint32_t vendor = 0, device = 0;
  std::string module;  ///< the kernel's driver that has it, such as "amdgpu"; empty: none
};
/// Display controllers and processing accelerators on the PCI bus, by address.
std::vector<DisplayCard> display_cards(const std::filesystem::path& root = system_root());

struct DeviceFile {
  std::string path;  ///< without the root
  Access access = Access::missing;
  std::string group;   ///< whose members may use it; a number where it has no name
  std::string vendor;  ///< of a render node: PCI's number as the kernel writes it, "0x8086"
};
/// /dev/nvidia*, /dev/kfd, /dev/dri/renderD* and /dev/dxg, those that exist.
std::vector<DeviceFile> device_files(const std::filesystem::path& root = system_root());

/// "docker", "podman", "kubernetes", "lxc", "container" for others; empty outside of any.
std::string container(const std::filesystem::path& root = system_root());
/// "580.95.05" of the kernel's part of NVIDIA's driver; empty if it is not loaded.
std::string nvidia_kernel_driver(const std::filesystem::path& root = system_root());
/// Another one after each start of the machine; empty if the system tells none.
std::string boot_id(const std::filesystem::path& root = system_root());

/// A line for everything above and for who asks: when it changes, what drivers answer may change.
std::string hardware_fingerprint(const std::filesystem::path& root = system_root());

/// "path size time inode" of a file, links followed; "path -" if it is not there.
std::string file_stamp(const std::filesystem::path& file);

/// The variables of this process that begin with one of these words (spaces between), as "NAME=value", sorted.
std::vector<std::string> variables_named(std::string_view beginnings);

}  // namespace tessera::os
