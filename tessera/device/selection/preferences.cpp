// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/selection/preferences.h"

#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/system.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/selection/preferences_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Known {
  std::mutex reading;  // serialises reading, writing and discarding
  bool read = false;
  std::optional<Preference> preference;
  void forget() { read = false, preference.reset(); }
};
constinit os::PerProcess<Known> preferences;

fs::path home() {
  const auto text = os::environment("HOME");
  if (!text || text->empty()) return {};
  // Normalise the path like the working directory: without links and without a trailing slash.
  std::error_code error;
  fs::path folder = fs::weakly_canonical(*text, error);
  if (error) folder = fs::path(*text).lexically_normal();
  return folder.has_filename() || folder == folder.root_path() ? folder : folder.parent_path();
}

constexpr std::size_t most_bytes = std::size_t{1} << 20;

/// Returns whether a file may be read. If it exists but is not trusted, logs a warning once.
bool counts(const fs::path& file) {
  const auto why = os::why_not_trusted(file);
  std::error_code error;
  if (!why) return fs::exists(file, error);
  if (fs::is_directory(file, error)) return false;
  struct Said {
    std::mutex lock;
    std::set<std::string> lines;
  };
  static constinit os::PerProcess<Said> said;
  std::lock_guard hold(said->lock);
  const std::string line = fmt::format("{} was ignored: {}", file.string(), *why);
  if (said->lines.insert(line).second) logging::warn(line);
  return false;
}

fs::path project_file() {
  std::error_code error;
  const fs::path start = fs::current_path(error);
  if (error) return {};
  const fs::path last = home();
  for (fs::path folder = start;; folder = folder.parent_path()) {
    const fs::path file = folder / "tessera.toml";
    if (counts(file)) return file;
    if (folder == last || folder == folder.parent_path()) return start / "tessera.toml";
  }
}

fs::path user_file() {
  // According to the XDG Base Directory Specification, relative paths must be ignored.
  if (const auto folder = os::environment("XDG_CONFIG_HOME"); folder && fs::path(*folder).is_absolute())
    return fs::path(*folder) / "tessera" / "config.toml";
  const fs::path folder = home();
  return folder.empty() ? fs::path() : folder / ".config" / "tessera" / "config.toml";
}

std::string written(const Preference& p) { return fmt::format("{}:{}:{}", p.file, p.line, p.column); }

std::string devices_with_identities(Backend backend) {
  std::string text;
  for (const DeviceInfo& info : discover(backend).devices)
    text += fmt::format("{}{} ({}, {})", text.empty() ? "" : ", ", to_string(info.device), info.name,
                        info.identity.empty() ? "no identity" : info.identity);
  return text.empty() ? "none" : text;
}

}  // namespace

std::string preference_file(PreferenceScope scope) {
  return (scope == PreferenceScope::project ? project_file() : user_file()).string();
}

std::optional<Preference> read_preference(PreferenceScope scope) {
  const std::string file = preference_file(scope);
  if (file.empty() || !counts(file)) return std::nullopt;
  const auto text = os::read_trusted_text(file, most_bytes);
  return text ? parse_preference(*text, scope, file) : std::nullopt;
}

std::optional<Preference> effective_preference() {
  Known& k = preferences.get();
  std::lock_guard hold(k.reading);
  if (!k.read) {
    k.preference = read_preference(PreferenceScope::project);
    if (!k.preference) k.preference = read_preference(PreferenceScope::user);
    k.read = true;
  }
  return k.preference;
}

void forget_preferences() {
  Known& k = preferences.get();
  std::lock_guard hold(k.reading);
  k.forget();
}

Device resolve(const Preference& p) {
  if (!p.identity.empty()) {
    for (const DeviceInfo& info : discover(p.device.backend).devices)
      if (info.identity == p.identity) return info.device;
    // An earlier version may have written an identity for a device that no longer has one.
    if (!why_missing(p.device))
      if (const DeviceInfo& info = device_info(p.device);
          info.identity.empty() && !p.name.empty() && info.name == p.name)
        return p.device;
    fail<DeviceError>(
        {.operation = written(p),
         .with = {{"prefer", to_string(p.device)},
                  {"identity", p.identity},
                  {"name", p.name.empty() ? "not given" : p.name},
                  {std::string(backend_name(p.device.backend)) + " devices",
                   devices_with_identities(p.device.backend)}},
         .wrong = "the preferred device was not found",
         .remedy = "Prefer another device with `tessera prefer DEVICE`, remove the line `identity` to select by "
                   "index alone, or set TESSERA_DEVICE. Devices that exist: " +
                   existing_devices()});
  }
  if (const auto why = why_missing(p.device))
    fail<DeviceError>({.operation = written(p),
                       .wrong = "the preferred device " + *why,
                       .remedy = "Prefer another device with `tessera prefer DEVICE`, or set TESSERA_DEVICE. "
                                 "Devices that exist: " +
                                 existing_devices()});
  return p.device;
}

void set_preferred_device(std::optional<Device> device, PreferenceScope scope) {
  std::optional<Preference> wanted;
  if (device) {
    const DeviceInfo& info = device_info(*device);  // throws DeviceError if the device does not exist
    wanted = Preference{.scope = scope, .device = *device, .identity = info.identity, .name = info.name};
  }
  {
    Known& k = preferences.get();
    std::lock_guard hold(k.reading);
    const std::string file = preference_file(scope);
    if (file.empty())
      fail<ArgumentError>({.operation = "set_preferred_device",
                           .wrong = "the user's file has no path: neither HOME nor XDG_CONFIG_HOME is set",
                           .remedy = "Set one of them, or write the project's file"});
    const auto text = os::read_trusted_text(file, most_bytes);
    if (text || wanted) {
      const std::string changed = change_preference(text.value_or(""), wanted, scope, file);
      if (changed != text) {
        os::replace_text(file, changed);
        logging::info(fmt::format("{}: {}", file, wanted ? "prefers " + to_string(*device) : "prefers no device"));
      }
    }
    k.forget();
  }
  forget_choice();
}

}  // namespace tessera
