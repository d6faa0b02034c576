// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/placement_scope.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/device/dry_run.h"
#include "tessera/device/placement.h"

namespace tessera {

constinit thread_local Placement* PlacementAccess::innermost = nullptr;

Placement::Placement(std::optional<std::vector<Device>> allowed)
    : outer_(PlacementAccess::innermost), allowed_(std::move(allowed)) {
  if (allowed_)
    for (const Device device : *allowed_) device_info(device);  // throws if there is none
  PlacementAccess::innermost = this;
}

Placement::~Placement() { PlacementAccess::innermost = outer_; }

void PlacementAccess::refuse_unless_allowed(const char* asked, const std::string& name, Device device) {
  if (!holds_data(device)) return;
  for (const Placement* scope = innermost; scope != nullptr; scope = scope->outer_) {
    if (!scope->allowed_ ||
        std::find(scope->allowed_->begin(), scope->allowed_->end(), device) != scope->allowed_->end())
      continue;
    std::string allowed;
    for (const Device d : *scope->allowed_) allowed += (allowed.empty() ? "" : ", ") + to_string(d);
    fail<DeviceError>({.asked = asked,
                       .with = {{"what", name}, {"device", to_string(device)}, {"allowed", allowed}},
                       .wrong = fmt::format("{} would run on {}, which this strict placement does not allow", name,
                                            to_string(device)),
                       .todo = "Move its arrays with to(...) before the scope, or allow the device"});
  }
}

void PlacementAccess::add(const LaunchCounter& counter) {
  if (!holds_data(counter.device)) return;
  for (Placement* scope = innermost; scope != nullptr; scope = scope->outer_) ++scope->launches_[&counter];
}

void PlacementAccess::add(Device device, Direction direction, std::uint64_t bytes) {
  if (!holds_data(device)) return;
  for (Placement* scope = innermost; scope != nullptr; scope = scope->outer_) {
    PlacementLog::Copies& c = scope->copies_[device];
    c.device = device;
    switch (direction) {
      case Direction::to_device: c.to_device_bytes += bytes, ++c.to_device_count; break;
      case Direction::to_host: c.to_host_bytes += bytes, ++c.to_host_count; break;
      case Direction::within: c.within_bytes += bytes, ++c.within_count; break;
      case Direction::from_peers: c.from_peers_bytes += bytes, ++c.from_peers_count; break;
    }
  }
}

PlacementLog Placement::log() const {
  PlacementLog log;
  for (const auto& [counter, launches] : launches_) log.kernels.push_back({counter->name, counter->device, launches});
  sort_for_people(log.kernels);
  for (const auto& [device, copies] : copies_) log.copies.push_back(copies);
  return log;
}

}  // namespace tessera
