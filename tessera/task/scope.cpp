// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/error.h"
#include "tessera/device/discovery/discovery.h"

namespace tessera {

Scope::Scope(Device device) : devices_{device} {
  if (device != Device{}) device_info(device);  // cpu:0 always exists
}

Scope::Scope(std::vector<Device> devices) : devices_(std::move(devices)) {
  if (devices_.empty())
    fail<ArgumentError>({.operation = "scope",
                         .wrong = "the list of devices is empty",
                         .remedy = "Name at least one device. Devices that exist: " + existing_devices()});
  for (const Device d : devices_) device_info(d);
  std::ranges::sort(devices_);
  devices_.erase(std::ranges::unique(devices_).begin(), devices_.end());
}

bool Scope::contains(Device device) const noexcept { return std::ranges::binary_search(devices_, device); }

bool Scope::inside(const Scope& other) const noexcept { return std::ranges::includes(other.devices_, devices_); }

Scope operator|(const Scope& a, const Scope& b) {
  Scope both;
  both.devices_.clear();
  std::ranges::set_union(a.devices_, b.devices_, std::back_inserter(both.devices_));
  return both;
}

Scope operator&(const Scope& a, const Scope& b) {
  Scope common;
  common.devices_.clear();
  std::ranges::set_intersection(a.devices_, b.devices_, std::back_inserter(common.devices_));
  if (common.devices_.empty())
    fail<DeviceError>({.operation = "scope",
                       .with = {{"one", to_string(a)}, {"other", to_string(b)}},
                       .wrong = "the scopes have no device in common",
                       .remedy = "Devices that exist: " + existing_devices()});
  return common;
}

std::string to_string(const Scope& scope) {
  std::string text;
  for (const Device d : scope.devices()) text += (text.empty() ? "" : ", ") + to_string(d);
  return text;
}

Scope BackendScope::operator()(All) const {
  std::vector<Device> devices;
  const BackendReport& report = discover(backend);
  for (const DeviceInfo& info : report.devices)
    if (usable(info)) devices.push_back(info.device);
  if (devices.empty())
    fail<DeviceError>({.operation = fmt::format("scope {}(all)", backend_name(backend)),
                       .wrong = report.reason.empty() ? "it has no usable device" : report.reason,
                       .remedy = "Devices that exist: " + existing_devices()});
  return Scope(std::move(devices));
}

Scope BackendScope::of(const std::vector<int>& indices) const {
  std::vector<Device> devices;
  for (const int i : indices) devices.push_back({backend, i});
  return Scope(std::move(devices));
}

bool can_compute(Backend backend) {
  if (is_built_in(backend)) return true;
  if (std::ranges::find(all_backends, backend) == all_backends.end()) return false;
  return std::ranges::any_of(discover(backend).devices, [](const DeviceInfo& info) { return usable(info); });
}

}  // namespace tessera
