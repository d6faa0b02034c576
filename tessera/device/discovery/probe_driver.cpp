// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/probe_driver.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/discovery/discovery.h"
#include "tessera/device/discovery/probe.h"
#include "tessera/device/discovery/probe_results.h"
#include "tessera/device/driver.h"

namespace tessera {
namespace {

/// Priority of a part's state. If a backend with several parts has no device, the part with the highest priority is
/// reported.
int weight(DeviceState state) {
  switch (state) {
    case DeviceState::enumerated: return 4;
    case DeviceState::crashed: return 3;
    case DeviceState::hung: return 2;
    case DeviceState::loaded: return 1;
    default: return 0;
  }
}

/// Merges the answers of several parts into one report. For parts with devices, the reason only contains the part's
/// name.
BackendReport together(const std::vector<VendorDriver>& parts, std::vector<BackendReport> answers) {
  BackendReport row{.backend = answers.front().backend, .state = DeviceState::supported};
  const BackendReport* worst = nullptr;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    BackendReport& answer = answers[i];
    row.remembered = row.remembered || answer.remembered;
    row.parts.push_back({parts[i].name, answer.file, answer.state, answer.reason, answer.remedy});
    if (!answer.devices.empty()) row.file += (row.file.empty() ? "" : ", ") + answer.file;
    if (weight(answer.state) > weight(row.state)) row.state = answer.state;
    if (answer.devices.empty() && (worst == nullptr || weight(answer.state) > weight(worst->state))) worst = &answer;
    for (DeviceInfo& info : answer.devices) {
      info.native_index = static_cast<int>(row.devices.size());  // the indices of each part started from 0
      row.devices.push_back(std::move(info));
    }
  }
  if (row.devices.empty()) {  // each part has its own reason; report the most important one for the backend
    row.file = worst->file;
    row.reason = worst->reason;
    row.remedy = worst->remedy;
  } else {
    row.reason = row.devices.front().reason;
    row.remedy = row.devices.front().remedy;
  }
  return row;
}

BackendReport in_process(Driver& driver, const std::vector<VendorDriver>& parts) {
  if (auto why = enter_driver(driver))
    return {.state = DeviceState::loaded, .reason = std::move(*why), .remedy = instead_of_fork};
  std::vector<std::string> all;
  for (const VendorDriver& part : parts) all.push_back(part.name);
  driver.allow(std::move(all));
  return driver.enumerate();
}

}  // namespace

ProbedBackend probe_driver(Driver& driver) {
  const auto parts = driver.vendor_drivers();
  if (!parts) return {driver.enumerate(), {}};
  // If none of the library files exists, it is safe to load the driver in this process: it fails with the loader's
  // message.
  const auto absent = [](const VendorDriver& part) {
    return part.name.empty() && !part.libraries.empty() && files_found(part.libraries).empty();
  };
  if (parts->empty() || std::ranges::all_of(*parts, absent)) return {in_process(driver, *parts), {}};
  const auto program = probe_program();
  if (!program) return {in_process(driver, *parts), {}};
  std::vector<BackendReport> answers;
  std::vector<Origin> origins;
  std::vector<std::string> good;
  for (const VendorDriver& part : *parts) {
    const std::string key = probe_cache_key(driver.backend(), part, *program);
    auto answer = load_probe_result(driver.backend(), key);
    auto lock = answer ? std::optional<os::PrivateStore::Lock>() : lock_probe_result(driver.backend(), key);
    if (!answer) answer = load_probe_result(driver.backend(), key);  // another process may have probed it since
    if (!answer) {
      // The other process's result was not cached, so ours would not be cached either.
      if (lock && lock->waited()) lock.reset();
      auto asked = probe(*program, driver.backend(), part);
      if (!asked) return {in_process(driver, *parts), {}};
      store_probe_result(asked->report, key, asked->holds);
      answer = std::move(asked->report);
    }
    if (!answer->devices.empty()) good.push_back(part.name);
    if (devices_are_tried())
      for (std::size_t i = 0; i < answer->devices.size(); ++i)
        origins.push_back({part, static_cast<int>(i), *program, key});
    answers.push_back(std::move(*answer));
  }
  driver.allow(std::move(good));
  if (parts->size() == 1 && parts->front().name.empty()) return {std::move(answers.front()), std::move(origins)};
  return {together(*parts, std::move(answers)), std::move(origins)};
}

}  // namespace tessera
