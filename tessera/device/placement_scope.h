// SPDX-License-Identifier: Apache-2.0
// Placement for a scope of code: what ran where and was copied in it, and, if strict, that nothing left the devices
// that were allowed.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/device/kernel.h"

namespace tessera {

struct PlacementState;

/// Counts the kernels and copies that this thread asks for while it lives. Scopes nest: each counts for all around it.
/// Deferred expressions count where they are computed. Not movable, and ends on the thread that made it.
class Placement {
 public:
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

  PlacementLog log() const;

 private:
  explicit Placement(std::optional<std::vector<Device>> allowed);
  std::shared_ptr<PlacementState> state_;
};

}  // namespace tessera
