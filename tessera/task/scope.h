// SPDX-License-Identifier: Apache-2.0
// Sets of devices on which tasks may run. `cuda(0)`, `cuda({0, 2})`, `cuda(all)`, `cpu()`, `cuda(all) | rocm(all)`,
// `gpus & cuda(0)`.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/device/device.h"

namespace tessera {

/// A nonempty set of existing devices, ordered by `Device`. Creating one lists devices but opens none.
class Scope {
 public:
  Scope() : Scope(Device{}) {}  ///< cpu:0, where tasks run by default
  Scope(Device device);         ///< throws DeviceError, which lists the existing devices, if it does not exist
  explicit Scope(std::vector<Device> devices);  ///< likewise; throws ArgumentError if the list is empty

  /// The devices, in order.
  const std::vector<Device>& devices() const& noexcept { return devices_; }
  std::vector<Device> devices() && noexcept {
    return std::move(devices_);
  }  // for temporaries: for (d : cuda(all).devices())
  /// True if the device is one of them.
  bool contains(Device device) const noexcept;
  /// True if `other` contains all devices of this scope.
  bool inside(const Scope& other) const noexcept;

  friend Scope operator|(const Scope& a, const Scope& b);  ///< union
  friend Scope operator&(const Scope& a, const Scope& b);  ///< intersection; throws DeviceError if it is empty
  friend bool operator==(const Scope&, const Scope&) = default;

 private:
  std::vector<Device> devices_;
};
/// "cuda:0, cuda:2".
std::string to_string(const Scope& scope);

/// The type of `all`: that is the name of the reduction, whose address identifies it here.
using All = Array (*)(Array, std::vector<int>, bool);

/// Creates scopes of one backend's devices. Throws DeviceError if a device does not exist, or for `all` if no device is
/// usable, with the reason and the existing devices. Throws ArgumentError for an empty list.
struct BackendScope {
  Backend backend;  ///< The backend.
  /// Device `index` of the backend.
  Scope operator()(int index = 0) const { return Scope(Device{backend, index}); }
  /// Several devices of the backend.
  Scope operator()(std::initializer_list<int> indices) const { return of({indices.begin(), indices.end()}); }
  /// Several devices of the backend.
  Scope operator()(const std::vector<int>& indices) const { return of(indices); }
  Scope operator()(All) const;  ///< All devices of the backend.

 private:
  Scope of(const std::vector<int>& indices) const;
};

inline namespace scopes {  // the backends' implementations use namespaces of the same names
///@{
/// The devices of each backend: `cuda(0)`, `cuda({0, 2})`, `cuda(all)`.
inline constexpr BackendScope cpu{Backend::cpu}, cuda{Backend::cuda}, rocm{Backend::rocm}, oneapi{Backend::oneapi},
    metal{Backend::metal}, opencl{Backend::opencl}, interp{Backend::interp};
///@}
}  // namespace scopes

/// True if the backend has a usable device; otherwise `discover(backend).reason` says why not. Opens no device.
bool can_compute(Backend backend);

}  // namespace tessera
