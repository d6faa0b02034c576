// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/error.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/task/ranks.h"

namespace tessera {

namespace {

[[noreturn]] void fail_nothing_common(const Scope& a, const Scope& b) {
  fail<DeviceError>({.operation = "scope",
                     .with = {{"one", to_string(a)}, {"other", to_string(b)}},
                     .wrong = "the scopes have no device in common",
                     .remedy = "Devices that exist: " + existing_devices()});
}

/// Applies a set operation to the devices of each rank. A scope of this process stands for its devices on each rank.
template <class F>
Scope by_rank(const Scope& a, const Scope& b, F&& combine) {
  detail::RankPlaces out{(a.ranks() ? a : b).ranks()->messages, {}};
  if (a.ranks() && b.ranks() && a.ranks()->messages != b.ranks()->messages)
    fail<ArgumentError>({.operation = "scope", .wrong = "the scopes are of different Worlds"});
  for (std::size_t r = 0; r < static_cast<std::size_t>(out.messages->size()); ++r) {
    const auto& of_a = a.ranks() ? a.ranks()->devices[r] : a.devices();
    const auto& of_b = b.ranks() ? b.ranks()->devices[r] : b.devices();
    combine(of_a, of_b, std::back_inserter(out.devices.emplace_back()));
  }
  return Scope(std::make_shared<const detail::RankPlaces>(std::move(out)));
}

}  // namespace

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

Scope::Scope(std::shared_ptr<const detail::RankPlaces> ranks) : ranks_(std::move(ranks)) {
  devices_ = ranks_->devices[static_cast<std::size_t>(ranks_->messages->rank())];
}

bool operator==(const Scope& a, const Scope& b) {
  return a.devices_ == b.devices_ && (a.ranks_ == b.ranks_ || (a.ranks_ && b.ranks_ && *a.ranks_ == *b.ranks_));
}

bool Scope::contains(Device device) const noexcept { return std::ranges::binary_search(devices_, device); }

bool Scope::inside(const Scope& other) const noexcept { return std::ranges::includes(other.devices_, devices_); }

Scope operator|(const Scope& a, const Scope& b) {
  if (a.ranks_ || b.ranks_) {
    if (!a.ranks_ || !b.ranks_)
      fail<ArgumentError>({.operation = "scope",
                           .with = {{"one", to_string(a)}, {"other", to_string(b)}},
                           .wrong = "only one of the scopes names ranks"});
    return by_rank(a, b, [](const auto& x, const auto& y, auto to) { std::ranges::set_union(x, y, to); });
  }
  Scope both;
  both.devices_.clear();
  std::ranges::set_union(a.devices_, b.devices_, std::back_inserter(both.devices_));
  return both;
}

Scope operator&(const Scope& a, const Scope& b) {
  if (a.ranks_ || b.ranks_) {
    const Scope common =
        by_rank(a, b, [](const auto& x, const auto& y, auto to) { std::ranges::set_intersection(x, y, to); });
    if (common.ranks_->list().empty()) fail_nothing_common(a, b);
    return common;
  }
  Scope common;
  common.devices_.clear();
  std::ranges::set_intersection(a.devices_, b.devices_, std::back_inserter(common.devices_));
  if (common.devices_.empty()) fail_nothing_common(a, b);
  return common;
}

namespace {
std::string list_of(const std::vector<Device>& devices) {
  std::string text;
  for (const Device d : devices) text += (text.empty() ? "" : ", ") + to_string(d);
  return text;
}
}  // namespace

std::string to_string(const Scope& scope) {
  if (scope.ranks()) {
    std::string text;
    std::vector<std::pair<std::vector<Device>, std::string>> alike;  // lists of devices, and the ranks that have them
    for (std::size_t r = 0; r < scope.ranks()->devices.size(); ++r) {
      const auto& devices = scope.ranks()->devices[r];
      if (devices.empty()) continue;
      const auto at = std::ranges::find(alike, devices, [](const auto& entry) { return entry.first; });
      if (at == alike.end())
        alike.emplace_back(devices, std::to_string(r));
      else
        at->second += ", " + std::to_string(r);
    }
    for (const auto& [devices, ranks] : alike) {
      if (!text.empty()) text += "; ";
      text += list_of(devices) + (ranks.find(',') == ranks.npos ? " of rank " : " of ranks ") + ranks;
    }
    return text;
  }
  return list_of(scope.devices());
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
