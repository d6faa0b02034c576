// SPDX-License-Identifier: Apache-2.0
// What ran where and was copied, in the process or in a scope of code, in which it may also be a rule that nothing
// leaves the devices that were allowed.
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

/// What ran where, what was copied, and what had to be compiled, since the start of the process or the last reset.
struct PlacementLog {
  /// How often a kernel was launched on a device.
  struct KernelCount {
    std::string kernel;          ///< The kernel's name.
    Device device;               ///< The device.
    std::uint64_t launches = 0;  ///< The number of launches.
  };
  /// What was copied from, to and within a device.
  struct Copies {
    Device device;  ///< The device.
    /// Bytes copied from the host, to the host, and within the device.
    std::uint64_t to_device_bytes = 0, to_host_bytes = 0, within_bytes = 0;
    /// Numbers of copies from the host, to the host, and within the device.
    std::uint64_t to_device_count = 0, to_host_count = 0, within_count = 0;
    /// Directly from other devices, which is not counted there and not as copies through the host.
    std::uint64_t from_peers_bytes = 0, from_peers_count = 0;
  };
  /// Where a device's kernels came from, that by which it is tried when it is opened included.
  struct Made {
    Device device;                           ///< The device.
    std::uint64_t compiled = 0;              ///< Compiled in this process.
    std::uint64_t loaded = 0;                ///< from disk: compiled by an earlier process
    std::uint64_t damaged = 0, refused = 0;  ///< of `compiled`: what was on disk was not whole, or did not load
    bool kept = false;                       ///< they are kept on disk for later processes
  };
  std::vector<KernelCount> kernels;  ///< by device, then most launches first
  std::vector<Copies> copies;        ///< Copies by device.
  std::vector<Made> made;            ///< by device
};
PlacementLog placement_log();  ///< The log of the whole process, since it started or since the last reset.
void reset_placement_log();    ///< Sets all counters of the process's log to zero.
std::string to_string(const PlacementLog& log);  ///< a table for people

/// Counts the kernels and copies that this thread asks for while it lives. Scopes nest: each counts for all around it.
/// Deferred expressions count where they are computed. Not movable, and ends on the thread that made it.
class Placement {
 public:
  /// Counts what runs until the object is destroyed, without a rule.
  Placement() : Placement(std::optional<std::vector<Device>>{}) {}
  /// Also refuses every kernel and copy on another device than those: a DeviceError that names it, before anything ran.
  /// Copies between the host and an allowed device are allowed, and counted. DeviceError if one does not exist.
  static Placement strict(std::vector<Device> allowed) { return Placement(std::optional(std::move(allowed))); }
  template <std::same_as<Device> D>  // so that braces are a list
  static Placement strict(D allowed) {
    return strict(std::vector<Device>{allowed});
  }
  /// The same with the device that is current now.
  static Placement strict() { return strict({current_device()}); }
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  PlacementLog log() const;  ///< What was counted so far in this scope.

 private:
  explicit Placement(std::optional<std::vector<Device>> allowed);
  std::shared_ptr<PlacementState> state_;
};

}  // namespace tessera
