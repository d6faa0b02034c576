// SPDX-License-Identifier: Apache-2.0
// Sets of devices: where tasks may run. `cuda(0)`, `cuda({0, 2})`, `cuda(all)`, `cpu()`, `cuda(all) | rocm(all)`,
// `gpus & cuda(0)`.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/device/device.h"

namespace tessera {

/// Some devices that exist, at least one, in the order of `Device`. Making one asks drivers and opens nothing.
class Scope {
 public:
  Scope() : Scope(Device{}) {}                  ///< cpu:0, where tasks run unless they are told otherwise
  Scope(Device device);                         ///< DeviceError if it does not exist: the text lists those that do
  explicit Scope(std::vector<Device> devices);  ///< likewise; ArgumentError if there is none in it

  /// The devices, in order.
  const std::vector<Device>& devices() const& noexcept { return devices_; }
  std::vector<Device> devices() && noexcept {
    return std::move(devices_);
  }  // of a temporary: for (d : cuda(all).devices())
  /// True if the device is one of them.
  bool contains(Device device) const noexcept;
  /// All of these are among `other`'s.
  bool inside(const Scope& other) const noexcept;

  friend Scope operator|(const Scope& a, const Scope& b);  ///< those of either
  friend Scope operator&(const Scope& a, const Scope& b);  ///< those of both; DeviceError with both if there are none
  friend bool operator==(const Scope&, const Scope&) = default;

 private:
  std::vector<Device> devices_;
};
/// "cuda:0, cuda:2".
std::string to_string(const Scope& scope);

/// What `all` is: the reduction's name, since there can be no second one; only its address is looked at.
using All = Array (*)(Array, std::vector<int>, bool);

/// Makes scopes of one backend's devices. DeviceError for a device that does not exist, and by `all` where there is
/// none that can be used: the text says why and lists the devices that exist. ArgumentError for an empty list.
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

inline namespace scopes {  // the backends' own code is in namespaces of these names
///@{
/// The devices of each backend: `cuda(0)`, `cuda({0, 2})`, `cuda(all)`.
inline constexpr BackendScope cpu{Backend::cpu}, cuda{Backend::cuda}, rocm{Backend::rocm}, oneapi{Backend::oneapi},
    metal{Backend::metal}, opencl{Backend::opencl}, interp{Backend::interp};
///@}
}  // namespace scopes

/// Whether there is a device of this backend that can be used; `discover(backend).reason` says why not. Opens nothing.
bool can_compute(Backend backend);

}  // namespace tessera
