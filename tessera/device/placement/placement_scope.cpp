// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/placement/placement_scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/placement/placement.h"

namespace tessera {

Placement::Placement(std::optional<std::vector<Device>> allowed) : state_(std::make_shared<PlacementState>()) {
  if (allowed)
    for (const Device device : *allowed) device_info(device);  // throws if the device does not exist
  state_->allowed = std::move(allowed);
  if (thread_context.placement != nullptr) state_->outer = thread_context.placement->shared_from_this();
  thread_context.placement = state_.get();
}

Placement::~Placement() { thread_context.placement = state_->outer.get(); }

void PlacementAccess::refuse_unless_allowed(const char* asked, const std::string& name, Device device) {
  if (!holds_data(device)) return;
  for (const PlacementState* scope = thread_context.placement; scope != nullptr; scope = scope->outer.get()) {
    if (!scope->allowed || std::find(scope->allowed->begin(), scope->allowed->end(), device) != scope->allowed->end())
      continue;
    std::string allowed;
    for (const Device d : *scope->allowed) allowed += (allowed.empty() ? "" : ", ") + to_string(d);
    fail<DeviceError>({.operation = asked,
                       .with = {{"what", name}, {"device", to_string(device)}, {"allowed", allowed}},
                       .wrong = fmt::format("{} would run on {}, which this strict placement does not allow", name,
                                            to_string(device)),
                       .remedy = "Move its arrays with to(...) before the scope, or allow the device"});
  }
}

void PlacementAccess::add(const LaunchCounter& counter) {
  if (!holds_data(counter.device)) return;
  for (PlacementState* scope = thread_context.placement; scope != nullptr; scope = scope->outer.get()) {
    PlacementState::Counted& counted = scope->counted.get();
    const std::lock_guard hold(counted.lock);
    ++counted.launches[&counter];
  }
}

void PlacementAccess::add(Device device, Direction direction, std::uint64_t bytes) {
  if (!holds_data(device)) return;
  for (PlacementState* scope = thread_context.placement; scope != nullptr; scope = scope->outer.get()) {
    PlacementState::Counted& counted = scope->counted.get();
    const std::lock_guard hold(counted.lock);
    PlacementLog::Copies& c = counted.copies[device];
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
  PlacementState::Counted& counted = state_->counted.get();
  const std::lock_guard hold(counted.lock);
  for (const auto& [counter, launches] : counted.launches)
    log.kernels.push_back({counter->name, counter->device, launches});
  sort_for_people(log.kernels);
  for (const auto& [device, copies] : counted.copies) log.copies.push_back(copies);
  return log;
}

}  // namespace tessera
