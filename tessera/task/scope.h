// SPDX-License-Identifier: Apache-2.0
// Sets of devices on which tasks may run: `cuda(0)`, `cuda({0, 2})`, `cuda(all)`, `cpu()`, `cuda(all) | rocm(all)`,
// `gpus & cuda(0)`.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/device/device.h"

namespace tessera {

namespace detail {
struct RankPlaces;
}

/// A set of one or more existing devices, ordered by `Device`. Creating a scope lists devices, but does not open them.
///
/// A scope that a dist::World has created contains devices of several ranks. `scope & cuda(0)` then selects the device
/// on each of its ranks.
class Scope {
 public:
  Scope() : Scope(Device{}) {}  ///< Creates the default scope of tasks, cpu:0.
  Scope(Device device);  ///< Throws DeviceError with a list of the existing devices if the device does not exist.
  explicit Scope(std::vector<Device> devices);  ///< Also throws ArgumentError if the list is empty.
  /// Devices of several ranks. Used by the library.
  explicit Scope(std::shared_ptr<const detail::RankPlaces> ranks);

  /// The devices of this process, in order. Empty if all devices of the scope belong to other ranks.
  const std::vector<Device>& devices() const& noexcept { return devices_; }
  std::vector<Device> devices() && noexcept {
    return std::move(devices_);
  }  // overload for temporaries, as in for (d : cuda(all).devices())
  /// True if the scope contains the device.
  bool contains(Device device) const noexcept;
  /// True if `other` contains all devices of this scope.
  bool inside(const Scope& other) const noexcept;

  friend Scope operator|(const Scope& a, const Scope& b);  ///< Returns the union.
  /// Returns the intersection; throws DeviceError if it is empty.
  friend Scope operator&(const Scope& a, const Scope& b);
  friend bool operator==(const Scope& a, const Scope& b);  ///< True if they contain the same devices of the same ranks.
  /// The devices of each rank; null: the scope contains devices of this process only. Used by the library.
  const std::shared_ptr<const detail::RankPlaces>& ranks() const noexcept { return ranks_; }

 private:
  std::vector<Device> devices_;
  std::shared_ptr<const detail::RankPlaces> ranks_;
};
/// Formats as "cuda:0, cuda:2", or "cuda:0 of ranks 0, 1".
std::string to_string(const Scope& scope);

/// The type of `all` in `cuda(all)`. It is the type of the reduction all(), because both use the same name. The
/// function's address identifies the argument.
using All = Array (*)(Array, std::vector<int>, bool);

/// Creates scopes with devices of one backend. Throws DeviceError if a device does not exist. With `all`, throws
/// DeviceError if no device is usable; the message contains the reason and the existing devices. Throws ArgumentError
/// for an empty list.
struct BackendScope {
  Backend backend;  ///< The backend.
  /// Selects device `index` of the backend.
  Scope operator()(int index = 0) const { return Scope(Device{backend, index}); }
  /// Selects several devices of the backend.
  Scope operator()(std::initializer_list<int> indices) const { return of({indices.begin(), indices.end()}); }
  /// Selects several devices of the backend.
  Scope operator()(const std::vector<int>& indices) const { return of(indices); }
  Scope operator()(All) const;  ///< Selects all devices of the backend.

 private:
  Scope of(const std::vector<int>& indices) const;
};

inline namespace scopes {  // an inline namespace, because backend implementations use namespaces with the same names
///@{
/// Select devices of a backend: `cuda(0)`, `cuda({0, 2})`, `cuda(all)`.
inline constexpr BackendScope cpu{Backend::cpu}, cuda{Backend::cuda}, rocm{Backend::rocm}, oneapi{Backend::oneapi},
    metal{Backend::metal}, opencl{Backend::opencl}, interp{Backend::interp};
///@}
}  // namespace scopes

/// Returns true if the backend has a usable device. Otherwise, `discover(backend).reason` contains the reason. Does not
/// open a device.
bool can_compute(Backend backend);

}  // namespace tessera
