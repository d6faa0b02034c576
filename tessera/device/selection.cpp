// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/system.h"
#include "tessera/device/device.h"
#include "tessera/device/discovery.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

struct Choice {
  Device device;
  std::string why, brief;
};
std::atomic<const Choice*> chosen = nullptr;
std::mutex choosing;
/// Every choice ever made, under `choosing`: another thread may be reading an earlier one.
std::vector<std::unique_ptr<const Choice>>& choices() {
  static auto* the_choices = new std::vector<std::unique_ptr<const Choice>>;
  return *the_choices;
}
std::atomic<std::uint32_t> choice_generation = 0;
thread_local std::optional<Device> scope;

bool is_gpu(const DeviceInfo& info) {
  return info.kind == DeviceKind::discrete_gpu || info.kind == DeviceKind::integrated_gpu;
}

/// Better candidates are greater.
auto rank(const DeviceInfo& info) {
  const int kind = info.kind == DeviceKind::discrete_gpu ? 2 : info.kind == DeviceKind::integrated_gpu ? 1 : 0;
  return std::tuple(kind, -static_cast<int>(info.device.backend), info.total_memory, -info.device.index);
}

Choice named(const std::string& text) {
  std::string wrong;
  std::optional<Backend> backend;
  try {
    const Device device = parse_device(text);
    backend = device.backend;
    if (auto why = why_missing(device)) {
      wrong = *why;
    } else {
      const std::string rule =
          fmt::format("{} ({}): TESSERA_DEVICE={}", to_string(device), device_info(device).name, text);
      return {device, rule, rule};
    }
  } catch (const DeviceError& e) {
    wrong = e.what();
  }
  fail<DeviceError>({.asked = "environment",
                     .wrong = fmt::format("TESSERA_DEVICE={}: {}", text, wrong),
                     .todo = "Set it to one of these, or unset it: " + existing_devices(backend)});
}

/// "no driver", "no device": why there is no GPU, in few words; empty where none could be.
std::string why_no_gpu(const BackendReport& row) {
  switch (row.state) {
    case DeviceState::unsupported: return "";
    case DeviceState::supported: return "no driver";
    case DeviceState::loaded: return row.devices.empty() ? "no device" : "no usable device";
    case DeviceState::crashed: return "driver crashes";
    case DeviceState::hung: return "driver hangs";
    default: break;
  }
  for (const DeviceInfo& info : row.devices)
    if (is_gpu(info)) return std::string(state_name(info.state));
  for (const DriverPart& part : row.parts)
    if (part.state == DeviceState::crashed || part.state == DeviceState::hung)
      return std::string("a driver ") + (part.state == DeviceState::hung ? "hangs" : "crashes");
  return "none";
}

Choice automatic() {
  static_assert(Backend::cuda < Backend::rocm && Backend::rocm < Backend::oneapi && Backend::oneapi < Backend::metal &&
                Backend::metal < Backend::opencl);  // the order of preference
  const DeviceInfo* best = nullptr;
  std::string reasons, words;
  for (Backend backend : {Backend::cuda, Backend::rocm, Backend::oneapi, Backend::metal, Backend::opencl}) {
    const BackendReport& row = discover(backend);
    std::string reason = row.devices.empty() ? row.reason : "no GPU among its devices";
    for (const DriverPart& part : row.parts)
      if (!row.devices.empty() && (part.state == DeviceState::crashed || part.state == DeviceState::hung))
        reason += fmt::format(", and {}: {}", part.name, part.reason);
    for (const DeviceInfo& info : row.devices) {
      if (!is_gpu(info)) continue;
      if (!usable(info)) {
        reason = fmt::format("{} is {}: {}", to_string(info.device), state_name(info.state), info.reason);
      } else if (best == nullptr || rank(info) > rank(*best)) {
        best = &info;
      }
    }
    // Nothing that a later backend has could come before a discrete GPU of this one.
    if (best != nullptr && best->kind == DeviceKind::discrete_gpu) break;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", backend_name(backend), reason);
    if (const std::string word = why_no_gpu(row); !word.empty())
      words += fmt::format("{}{}: {}", words.empty() ? "" : "; ", backend_name(backend), word);
  }
  if (best != nullptr) {
    const std::string rule = fmt::format("{} ({}): chosen automatically, the first of the {}s", to_string(best->device),
                                         best->name, kind_name(best->kind));
    return {best->device, rule, rule};
  }
  const BackendReport& cpus = discover(Backend::cpu);
  for (const DeviceInfo& info : cpus.devices) {
    if (usable(info)) {
      const std::string rule = fmt::format("{} ({}): chosen automatically", to_string(info.device), info.name);
      return {info.device, rule + ", because no GPU was found: " + reasons,
              fmt::format("{} ({}): no GPU ({}), see `tessera devices`", to_string(info.device), info.name, words)};
    }
  }
  if (!cpus.devices.empty())
    reasons = fmt::format("cpu: {}; {}", cpus.devices.front().reason, reasons);
  else if (!cpus.reason.empty())
    reasons = fmt::format("cpu: {}; {}", cpus.reason, reasons);
  fail<DeviceError>(
      {.asked = "current_device",
       .wrong = "there is no device to compute on: " + reasons,
       .todo = "Name a device with DeviceScope or TESSERA_DEVICE. Devices that exist: " + existing_devices()});
}

const Choice& choice() {
  if (const Choice* c = chosen.load(std::memory_order_acquire)) return *c;
  while (true) {
    const std::uint32_t generation = choice_generation.load();
    const auto& name = settings().device;
    auto made = std::make_unique<const Choice>(name ? named(*name) : automatic());
    std::lock_guard hold(choosing);
    if (const Choice* c = chosen.load(std::memory_order_acquire)) return *c;
    if (generation != choice_generation.load()) continue;  // a device was lost meanwhile: choose again
    logging::info("new arrays go to " + made->why);
    choices().push_back(std::move(made));
    chosen.store(choices().back().get(), std::memory_order_release);
    return *choices().back();
  }
}

}  // namespace

void forget_choice() {
  std::lock_guard hold(choosing);
  choice_generation.fetch_add(1);
  chosen.store(nullptr, std::memory_order_release);
}

Device current_device() { return scope ? *scope : choice().device; }

std::string why_current_device(Detail detail) {
  if (!scope) return detail == Detail::whole ? choice().why : choice().brief;
  return fmt::format("{} ({}): the innermost DeviceScope of this thread", to_string(*scope), device_info(*scope).name);
}

DeviceScope::DeviceScope(Device device) : before_(scope) {
  device_info(device);  // throws if there is none
  scope = device;
}
DeviceScope::~DeviceScope() { scope = before_; }

}  // namespace tessera
