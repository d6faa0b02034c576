// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/discovery/probe_driver.h"
#include "tessera/device/discovery/probe_results.h"
#include "tessera/device/driver.h"
#include "tessera/device/selection/preferences_file.h"
#include "tessera/device/settings.h"

namespace tessera {

#if defined(__GNUC__)
// Used only by programs that do not link backend/all.cpp.
__attribute__((weak)) void register_all_drivers() {}
#endif

namespace {

constexpr std::size_t backend_count = all_backends.size() + 1;  // plus dry_run, which is not listed

struct DriverTable {
  std::array<std::atomic<Driver*>, backend_count> drivers{};
  /// The fork generation plus 1 if the driver was entered, else 0.
  std::array<std::atomic<std::uint64_t>, backend_count> entered{};
  std::once_flag filled;  ///< std::once_flag is safe across forks
};
constinit DriverTable the_table;  // trivially destructible, because drivers are never destroyed
DriverTable& table() { return the_table; }
thread_local bool registering_all = false;

void fill_table() {
  if (registering_all) return;
  std::call_once(table().filled, [] {
    registering_all = true;
    register_all_drivers();
    registering_all = false;
  });
}

struct Override {
  DeviceState state;
  std::string reason, remedy;
  std::optional<std::int64_t> until;
  std::optional<std::string> looks;  ///< name and identity of the device when the state was set, if known

  /// True if the device is open (verified) or was lost. Its state is then permanent.
  bool of_open() const { return state == DeviceState::verified || state == DeviceState::lost; }
  /// Returns whether the state applies to this device. After a rescan, the index may refer to another device.
  bool is_of(const DeviceInfo& info) const { return of_open() || !looks || *looks == looks_of(info); }
  static std::string looks_of(const DeviceInfo& info) { return info.name + "\n" + info.identity; }
};
struct Slot {
  std::mutex asking;  // held while the driver enumerates its devices, which may take long; one lock per backend
  std::optional<BackendReport> answer;                        // as returned by the driver; guarded by `asking`
  std::atomic<const std::vector<Origin>*> origins = nullptr;  // origins of its devices; modified under `asking`
  std::vector<std::unique_ptr<const std::vector<Origin>>> kept_origins;  // never freed
  std::atomic<const BackendReport*> shown = nullptr;                     // the report with later state changes applied
  std::vector<std::unique_ptr<const BackendReport>>
      kept;  // never freed, because callers keep references; guarded by `asking`
};
struct Discovery {
  /// A forked child starts with the reports that its parent had published. They are immutable.
  explicit Discovery(const Discovery* parents) {
    for (std::size_t i = 0; parents != nullptr && i < slots.size(); ++i)
      if (const BackendReport* shown = parents->slots[i].shown.load(std::memory_order_acquire)) {
        slots[i].answer = *shown, slots[i].shown = shown;
        slots[i].origins = parents->slots[i].origins.load(std::memory_order_acquire);
      }
  }
  std::array<Slot, backend_count> slots;
  std::mutex lock;
  std::map<Device, Override> overrides;                                // guarded by `lock`
  std::vector<std::unique_ptr<const std::vector<BackendReport>>> all;  // guarded by `lock`; the last one is current
  std::array<const BackendReport*, all_backends.size()> all_from{};
};
constinit os::PerProcess<Discovery> the_discovery;
Discovery& discovery() { return the_discovery.get(); }

/// Returns the report of a backend without a driver, with the reason why it is unsupported.
BackendReport report_without_driver(Backend backend) {
  BackendReport r{.backend = backend, .state = DeviceState::unsupported};
#ifndef __APPLE__
  if (backend == Backend::metal) {
    r.reason = "Metal exists on Apple systems only";
    r.remedy = "Nothing to do here";
    return r;
  }
#endif
  r.reason = fmt::format("this program was built without the {} backend", backend_name(backend));
  r.remedy = "Link the whole library, tessera::tessera";
  return r;
}

constexpr const char* untried = "listed by the driver; no kernel has been run on the device yet";

/// Logs what was tried and the result: "cuda: supported, libcuda.so: no such file".
void log_answer(const BackendReport& report) {
  if (!logging::enabled(logging::Level::info)) return;
  std::string text = fmt::format("{}: {}{}{}{}", backend_name(report.backend), state_name(report.state),
                                 report.file.empty() ? "" : ", ", report.file, report.remembered ? ", cached" : "");
  if (report.devices.empty() && !report.reason.empty()) text += ": " + report.reason;
  for (const DeviceInfo& info : report.devices) {
    text += fmt::format("; {} ({}) {}", to_string(info.device), info.name, state_name(info.state));
    if (info.reason != untried && !info.reason.empty()) text += ": " + info.reason;
  }
  logging::info(text);
}

BackendReport ask_driver(Backend backend, std::vector<Origin>& origins) {
  Driver* driver = find_driver(backend);
  origins.clear();
  if (driver == nullptr) return report_without_driver(backend);
  try {
    ProbedBackend row = probe_driver(*driver);
    origins = std::move(row.origins);
    BackendReport& report = row.report;
    report.backend = backend;
    for (std::size_t i = 0; i < report.devices.size(); ++i) {
      DeviceInfo& info = report.devices[i];
      info.device = {backend, static_cast<int>(i)};
      if (info.state == DeviceState::enumerated && info.reason.empty())
        info.reason = untried, info.remedy = "Use it, or run `tessera devices`, to check it with a first kernel";
    }
    return std::move(report);
  } catch (const OutOfMemory&) {
    throw;  // not an error of the device; the next call probes again
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const ArgumentError& e) {  // an invalid setting
    return {.backend = backend, .state = DeviceState::supported, .reason = e.what(), .remedy = "Correct the setting"};
  } catch (const std::exception& e) {
    return {.backend = backend,
            .state = DeviceState::supported,
            .reason = e.what(),
            .remedy = "This is a bug in the backend: please report it with this message"};
  }
}

BackendReport ask(Backend backend, std::vector<Origin>& origins) {
  BackendReport report = ask_driver(backend, origins);
  log_answer(report);
  return report;
}

/// Rank of a device state. A backend reports the state of its device with the highest rank.
int worth(DeviceState state) {
  switch (state) {
    case DeviceState::verified: return 8;
    case DeviceState::enumerated: return 7;
    case DeviceState::lost: return 6;
    case DeviceState::quarantined: return 5;
    case DeviceState::crashed: return 4;
    case DeviceState::hung: return 3;
    default: return static_cast<int>(state);
  }
}

/// Publishes `slot.answer` with later state changes applied. The caller must hold `slot.asking`.
const BackendReport* show(Slot& slot) {
  Discovery& d = discovery();
  auto report = std::make_unique<BackendReport>(*slot.answer);
  {
    std::lock_guard hold(d.lock);
    for (DeviceInfo& info : report->devices) {
      if (auto it = d.overrides.find(info.device); it != d.overrides.end() && it->second.is_of(info)) {
        info.state = it->second.state;
        // Keep the driver's remark about a working device, for example that cpu uses the interpreter.
        if (info.state == DeviceState::verified && info.reason != untried) continue;
        info.reason = it->second.reason;
        info.remedy = it->second.remedy;
      }
    }
  }
  if (!report->devices.empty()) {
    const DeviceInfo* best = &report->devices.front();
    for (const DeviceInfo& info : report->devices)
      if (worth(info.state) > worth(best->state)) best = &info;
    report->state = best->state;
    // Keep the driver's own reason for the backend unless the state has changed.
    if (report->reason.empty() || best->state != slot.answer->state)
      report->reason = best->reason, report->remedy = best->remedy;
  }
  const BackendReport* shown = report.get();
  slot.kept.push_back(std::move(report));
  slot.shown.store(shown, std::memory_order_release);
  return shown;
}

Slot& slot_of(Backend backend) { return discovery().slots[static_cast<std::size_t>(backend)]; }

}  // namespace

void register_driver(std::unique_ptr<Driver> driver) {
  fill_table();
  const Backend backend = driver->backend();
  table().drivers[static_cast<std::size_t>(backend)] =
      driver.release();  // never destroyed, because its devices may be open
  forget_report(backend);
  if (backend != Backend::dry_run) forget_choice();
}

Driver* find_driver(Backend backend) {
  fill_table();
  return table().drivers[static_cast<std::size_t>(backend)];
}

std::optional<std::string> enter_driver(Driver& driver) {
  if (!driver.vendor_drivers()) return std::nullopt;
  const std::uint64_t here = std::uint64_t{os::fork_generation()} + 1;
  std::uint64_t there = 0;
  std::atomic<std::uint64_t>& entered = table().entered[static_cast<std::size_t>(driver.backend())];
  if (entered.compare_exchange_strong(there, here) || there == here) return std::nullopt;
  return "the driver was started before this process was forked, and drivers do not survive a fork";
}

const BackendReport& discover(Backend backend) {
  Slot& slot = slot_of(backend);
  if (const BackendReport* r = slot.shown.load(std::memory_order_acquire)) return *r;
  fill_table();  // before locking, because register_driver locks it too
  std::lock_guard hold(slot.asking);
  if (const BackendReport* r = slot.shown.load(std::memory_order_acquire)) return *r;
  if (!slot.answer) {
    auto origins = std::make_unique<std::vector<Origin>>();
    BackendReport answer = ask(backend, *origins);
    slot.kept_origins.push_back(std::move(origins));
    slot.origins = slot.kept_origins.back().get();
    slot.answer = std::move(answer);
  }
  return *show(slot);
}

std::optional<Origin> origin_of(Device device) {
  Slot& slot = slot_of(device.backend);
  std::lock_guard hold(slot.asking);
  const auto at = static_cast<std::size_t>(device.index);
  const std::vector<Origin>* origins = slot.origins;
  if (!slot.answer || origins == nullptr || device.index < 0 || at >= origins->size()) return std::nullopt;
  return (*origins)[at];
}

void forget_report(Backend backend) {
  Slot& slot = slot_of(backend);
  std::lock_guard hold(slot.asking);
  slot.answer.reset();
  slot.shown = nullptr;
}

const BackendReport& known(Backend backend) {
  const BackendReport* shown = slot_of(backend).shown.load(std::memory_order_acquire);
  static constinit os::PerProcess<BackendReport> nothing;
  return shown != nullptr ? *shown : nothing.get();
}

const std::vector<BackendReport>& discover() {
  std::array<const BackendReport*, all_backends.size()> now{};
  for (Backend backend : all_backends) now[static_cast<std::size_t>(backend)] = &discover(backend);
  Discovery& d = discovery();
  std::lock_guard hold(d.lock);
  if (d.all.empty() || d.all_from != now) {
    auto rows = std::make_unique<std::vector<BackendReport>>();
    for (const BackendReport* r : now) rows->push_back(*r);
    d.all.push_back(std::move(rows));
    d.all_from = now;
  }
  return *d.all.back();
}

void rescan() {
  forget_settings();
  try {
    clear_probe_results();
    forget_trials();
  } catch (const ArgumentError&) {  // an invalid setting is reported where it is used
  }
  forget_preferences();
  Discovery& d = discovery();
  for (Backend backend : all_backends) forget_report(backend);
  {
    std::lock_guard hold(d.lock);
    // Drop the states of devices that computed wrong results or could not be opened, so that they are tried again.
    std::erase_if(d.overrides, [](const auto& entry) { return !entry.second.of_open(); });
  }
  forget_choice();
}

void clear_expired_state(Device device) {
  Discovery& d = discovery();
  Slot& slot = slot_of(device.backend);
  std::lock_guard hold(slot.asking);
  {
    std::lock_guard also(d.lock);
    const auto known = d.overrides.find(device);
    if (known == d.overrides.end() || !known->second.until || !has_expired(*known->second.until)) return;
    d.overrides.erase(known);
  }
  if (slot.answer) show(slot);
}

void set_device_state(Device device, DeviceState state, std::string reason, std::string remedy,
                      std::optional<std::int64_t> until) noexcept {
  try {
    Discovery& d = discovery();
    Slot& slot = slot_of(device.backend);
    std::lock_guard hold(slot.asking);
    Override now{state, std::move(reason), std::move(remedy), until, std::nullopt};
    if (const auto at = static_cast<std::size_t>(device.index); slot.answer && at < slot.answer->devices.size())
      now.looks = Override::looks_of(slot.answer->devices[at]);
    {
      std::lock_guard also(d.lock);
      d.overrides[device] = std::move(now);
    }
    if (slot.answer) show(slot);
    if (state != DeviceState::verified && state != DeviceState::enumerated) forget_choice();
  } catch (...) {  // out of memory: the caller's error already reports the failure
  }
}

std::string existing_devices(std::optional<Backend> asked) {
  const bool all = !asked || !is_built_in(*asked);
  std::vector<DeviceInfo> devices;
  for (Backend backend : all_backends)
    for (const DeviceInfo& info : (all || is_built_in(backend) ? discover(backend) : known(backend)).devices)
      devices.push_back(info);
  std::string text;
  for (const DeviceInfo& info : devices) {
    text += fmt::format("{}{} ({}", text.empty() ? "" : ", ", to_string(info.device), info.name);
    // Several drivers may list the same CPU. Their versions distinguish the entries.
    if (!info.driver_version.empty() && std::ranges::count(devices, info.name, &DeviceInfo::name) > 1)
      text += ", " + info.driver_version;
    text += ")";
  }
  if (text.empty()) text = "none";
  return all ? text : text + "; drivers that were not probed yet may have more (run `tessera devices`)";
}

std::optional<Device> same_card(Device device) {
  const DeviceInfo& info = device_info(device);
  if (info.identity.empty() || (info.kind != DeviceKind::discrete_gpu && info.kind != DeviceKind::integrated_gpu))
    return std::nullopt;
  const auto alike = [&](Backend backend) {
    std::vector<const DeviceInfo*> out;
    for (const DeviceInfo& other : known(backend).devices)
      if (other.identity == info.identity) out.push_back(&other);
    return out;
  };
  // Partitions of a GPU may share its address, which then does not identify them.
  if (alike(device.backend).size() != 1) return std::nullopt;
  for (Backend backend : all_backends) {
    if (backend == device.backend) return std::nullopt;
    if (const auto others = alike(backend); others.size() == 1) return others.front()->device;
  }
  return std::nullopt;
}

void mark_report_stale(Backend backend) {
  clear_probe_results(backend);
  forget_report(backend);
  forget_choice();
}

std::optional<std::string> why_missing(Device device) {
  const BackendReport& row = discover(device.backend);
  if (device.index >= 0 && static_cast<std::size_t>(device.index) < row.devices.size()) return std::nullopt;
  std::string why =
      fmt::format("{} does not exist: the backend {} has ", to_string(device), backend_name(device.backend));
  if (row.devices.empty()) {
    why += "no devices";
    if (!row.reason.empty()) why += fmt::format(" ({}: {})", state_name(row.state), row.reason);
  } else {
    why += fmt::format("{} device{}", row.devices.size(), row.devices.size() == 1 ? "" : "s");
  }
  return why;
}

const DeviceInfo& device_info(Device device) {
  if (auto why = why_missing(device)) {
    settings();  // reports an invalid setting, which may be the cause
    fail<DeviceError>({.wrong = *why, .remedy = "Devices that exist: " + existing_devices(device.backend)});
  }
  return discover(device.backend).devices[static_cast<std::size_t>(device.index)];
}

}  // namespace tessera
