// SPDX-License-Identifier: Apache-2.0
// Records which kernels ran on which device and how many bytes were copied, for the whole process or within a scope. A
// strict scope also rejects work on devices that are not allowed.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device/device.h"

namespace tessera {

struct PlacementState;

/// Launches, copies and compilations since the start of the process or the last reset.
struct PlacementLog {
  /// Launches of a kernel on a device.
  struct KernelCount {
    std::string kernel;          ///< The kernel's name.
    Device device;               ///< The device.
    std::uint64_t launches = 0;  ///< Number of launches.
  };
  /// Copies from the host, to the host, and within a device.
  struct Copies {
    Device device;  ///< The device.
    /// Bytes copied from the host, to the host, and within the device.
    std::uint64_t to_device_bytes = 0, to_host_bytes = 0, within_bytes = 0;
    /// Numbers of copies from the host, to the host, and within the device.
    std::uint64_t to_device_count = 0, to_host_count = 0, within_count = 0;
    /// Direct copies from other devices. They are counted neither at the source nor as copies through the host.
    std::uint64_t from_peers_bytes = 0, from_peers_count = 0;
  };
  /// How the kernels of a device were obtained, including the kernel that verifies the device when it is opened.
  struct Made {
    Device device;               ///< The device.
    std::uint64_t compiled = 0;  ///< Number of kernels compiled in this process.
    std::uint64_t loaded = 0;    ///< number of kernels loaded from the kernel cache
    /// Number of kernels compiled because the cached file was damaged, and because it could not be loaded.
    std::uint64_t damaged = 0, refused = 0;
    bool kept = false;  ///< kernels of this device are cached on disk
    /// Number of kernels loaded from the pack in use (pack/pack.h), and of those that were not in it.
    std::uint64_t packed = 0, unpacked = 0;
  };
  std::vector<KernelCount> kernels;  ///< Sorted by device, then by number of launches in descending order.
  std::vector<Copies> copies;        ///< Sorted by device.
  std::vector<Made> made;            ///< Sorted by device.
};
PlacementLog placement_log();  ///< Returns the log of the whole process since its start or the last reset.
void reset_placement_log();    ///< Resets all counters of the process's log to zero.
std::string to_string(const PlacementLog& log);  ///< Formats the log as a table.

/// Counts the kernels and copies of this thread during the scope's lifetime. Scopes can be nested; all enclosing scopes
/// count the work. Deferred expressions are counted when they are computed. Must be destroyed on the thread that
/// created it.
class Placement {
 public:
  /// Counts kernels and copies on all devices.
  Placement() : Placement(std::optional<std::vector<Device>>{}) {}
  /// Counts and restricts: every kernel and copy on a device that is not allowed throws DeviceError before it runs.
  /// Copies between the host and an allowed device are permitted. Throws DeviceError if a device does not exist.
  static Placement strict(std::vector<Device> allowed) { return Placement(std::optional(std::move(allowed))); }
  template <std::same_as<Device> D>  // a template, so that an initializer list selects the overload above
  static Placement strict(D allowed) {
    return strict(std::vector<Device>{allowed});
  }
  /// Allows only the current device.
  static Placement strict() { return strict({current_device()}); }
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  PlacementLog log() const;  ///< Returns what this scope has counted so far.

 private:
  explicit Placement(std::optional<std::vector<Device>> allowed);
  std::shared_ptr<PlacementState> state_;
};

}  // namespace tessera
