// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/trials.h"

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/os/process_tree.h"
#include "tessera/base/printable.h"
#include "tessera/base/sha256.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/discovery/probe.h"
#include "tessera/device/discovery/probe_results.h"
#include "tessera/device/discovery/report_json.h"
#include "tessera/device/discovery/store.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format = 1;
constexpr std::size_t most_bytes = std::size_t{1} << 20, most_entries = 128;
constexpr std::string_view trial_ending = ".json";

std::string beginning(Backend backend) { return fmt::format("open-{}-", backend_name(backend)); }
std::string mark_beginning(Backend backend) { return fmt::format("opening-{}-", backend_name(backend)); }

/// Returns an empty string if the driver's results are not cached.
std::string key_of(const DeviceInfo& info, const Origin& origin) {
  if (origin.row_key.empty()) return "";
  return sha256(fmt::format("{}\ndevice {} {} {}\n", origin.row_key, origin.index, info.name, info.identity));
}
std::string name_of(Backend backend, const std::string& key) {
  return fmt::format("{}{}{}", beginning(backend), key.substr(0, 16), trial_ending);
}

struct Known {
  DeviceState state = DeviceState::enumerated;
  std::string reason, remedy;
  std::optional<std::int64_t> until;  ///< expiry in seconds since 1970
};

std::optional<Known> load(Backend backend, const std::string& key) {
  if (key.empty()) return std::nullopt;
  const auto text = private_store().read(name_of(backend, key), most_bytes);
  if (!text) return std::nullopt;
  try {
    const Json json = parse_json(*text);
    if (json.at("format") != format || json.at("key") != key) return std::nullopt;
    Known known{.reason = printable_text(json.at("reason").get<std::string>()),
                .remedy = printable_text(json.at("remedy").get<std::string>())};
    const std::string state = json.at("state").get<std::string>();
    for (const DeviceState each :
         {DeviceState::verified, DeviceState::quarantined, DeviceState::crashed, DeviceState::hung})
      if (state == state_name(each)) known.state = each;
    if (known.state == DeviceState::enumerated) return std::nullopt;
    if (json.contains("until")) known.until = json.at("until").get<std::int64_t>();
    if (known.until && has_expired(*known.until)) return std::nullopt;
    return known;
  } catch (const std::exception&) {  // damaged: will be replaced
    return std::nullopt;
  }
}

void keep(Backend backend, const std::string& key, const Known& known) {
  if (key.empty()) return;
  Json json = {{"format", format},
               {"key", key},
               {"state", state_name(known.state)},
               {"reason", redact_values(known.reason)},
               {"remedy", redact_values(known.remedy)}};
  if (known.until) json["until"] = *known.until;
  const os::PrivateStore store = private_store();
  const auto why = store.folder().empty() ? "neither XDG_CACHE_HOME nor HOME is set"
                                          : store.write(name_of(backend, key), json.dump(1) + "\n");
  if (!why) {
    const auto all = store.list(beginning(backend), trial_ending);
    for (std::size_t i = 0; i + most_entries < all.size(); ++i) store.remove(all[i].name);
    store.remove_stale(beginning(backend), trial_ending);
    return;
  }
  static std::atomic<bool> said = false;
  if (!said.exchange(true))
    logging::warn(fmt::format(
        "trial results cannot be cached on disk ({}): each program opens each device in a helper process first, which "
        "takes time. Set TESSERA_CACHE_DIR to another folder, or TESSERA_PROBE=list to skip trials",
        *why));
}

/// True if a program ended while it was opening this device. If `remove` is true, the marks of such programs are
/// deleted.
bool has_stale_mark(Backend backend, const std::string& key, bool remove) {
  const os::PrivateStore store = private_store();
  bool found = false;
  for (const auto& entry : store.list(mark_beginning(backend), trial_ending)) {
    const auto text = store.read(entry.name, most_bytes);
    if (!text) continue;
    try {
      const Json json = parse_json(*text);
      if (json.at("key") != key) continue;
      const int process = json.at("process").get<int>();
      const bool lives = json.at("boot") == os::boot_id() && os::start_of(process) == json.at("start");
      if (lives) continue;
    } catch (const std::exception&) {  // incomplete marks count as stale
    }
    found = true;
    if (remove) store.remove(entry.name);
  }
  return found;
}

[[noreturn]] void refuse(const DeviceInfo& info, const Known& known) {
  set_device_state(info.device, known.state, known.reason, known.remedy, known.until);
  fail<DeviceError>(
      {.operation = to_string(info.device),
       .with = {{"device", info.name}},
       .wrong = fmt::format("the device cannot be used (state: {}): {}", state_name(known.state), known.reason),
       .remedy = known.remedy});
}

}  // namespace

bool try_first(const DeviceInfo& info, const Origin& origin) {
  const Backend backend = info.device.backend;
  const std::string key = key_of(info, origin);
  const auto known = [&]() -> std::optional<Known> {
    if (key.empty() || has_stale_mark(backend, key, false)) return std::nullopt;
    return load(backend, key);
  };
  std::optional<Known> before = known();
  auto lock = before || key.empty() ? std::optional<os::PrivateStore::Lock>()
                                    : private_store().lock(name_of(backend, key), longest_probe());
  if (!before) before = known();  // another process may have tried it since
  if (before) {
    if (before->state == DeviceState::verified) return true;
    before->reason += "  (cached)";
    refuse(info, *before);
  }
  // The other process's result was not cached, so ours would not be cached either.
  if (lock && lock->waited()) lock.reset();
  const auto trial = run_trial(origin.program, backend, origin.part, origin.index,
                               fmt::format("{} ({})", to_string(info.device), info.name));
  if (!trial) return true;  // the helper process could not be started; this was logged
  const auto& seen = trial->seen.devices;
  if (trial->state == DeviceState::verified || trial->state == DeviceState::enumerated) {
    const auto at = static_cast<std::size_t>(origin.index);
    if (at >= seen.size() || seen[at].name != info.name || seen[at].identity != info.identity) return false;
  }
  if (!key.empty()) has_stale_mark(backend, key, true);
  if (trial->state == DeviceState::enumerated) {
    set_device_state(info.device, trial->state, trial->reason, try_again);
    if (trial->out_of_memory) fail<OutOfMemory>({.wrong = trial->reason});
    fail<DeviceError>({.wrong = trial->reason});
  }
  Known result{trial->state, trial->reason, trial->state == DeviceState::quarantined ? wrong_remedy : trial->remedy,
               trial->holds == Validity::always ? std::nullopt : std::optional(temporary_expiry())};
  if (trial->holds != Validity::now) keep(backend, key, result);
  if (result.state != DeviceState::verified) refuse(info, result);
  return true;
}

OpeningMark::OpeningMark(const DeviceInfo& info, const Origin& origin) {
  const std::string key = key_of(info, origin);
  if (key.empty()) return;
  const int process = os::own_process();
  const std::uint64_t start = os::start_of(process);
  const std::string mine = sha256(fmt::format("{} {} {}", key, process, start));
  const std::string name = fmt::format("{}{}{}", mark_beginning(info.device.backend), mine.substr(0, 16), trial_ending);
  const Json json = {{"key", key}, {"process", process}, {"start", start}, {"boot", os::boot_id()}};
  if (!private_store().write(name, json.dump() + "\n")) name_ = name;
}

OpeningMark::~OpeningMark() {
  if (name_.empty()) return;
  try {
    private_store().remove(name_);
  } catch (const std::exception&) {  // a mark that is not deleted only causes the next program to run a trial
  }
}

void record_wrong_result(const DeviceInfo& info, const Origin& origin, const std::string& reason) {
  keep(info.device.backend, key_of(info, origin), {DeviceState::quarantined, reason, wrong_remedy, std::nullopt});
}

void forget_trials() {
  const os::PrivateStore store = private_store();
  for (const Backend backend : all_backends)
    for (const std::string& begins : {beginning(backend), mark_beginning(backend)})
      for (const auto& entry : store.list(begins, trial_ending)) store.remove(entry.name);
}

}  // namespace tessera
