// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/processor.h"
#include "tessera/device/context.h"
#include "tessera/device/device.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/selection/preferences_file.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

struct Choice {
  Device device;
  std::string why, brief;
  bool named = false;  ///< true if the environment or a file selected it
};
std::atomic<const Choice*> chosen = nullptr;
struct Choices {
  std::mutex lock;
  std::vector<std::unique_ptr<const Choice>> made;  // never freed, because another thread may be reading an earlier one
};
constinit os::PerProcess<Choices> choices;
std::atomic<std::uint32_t> choice_generation = 0;

bool is_gpu(const DeviceInfo& info) {
  return info.kind == DeviceKind::discrete_gpu || info.kind == DeviceKind::integrated_gpu;
}

/// Sort key. Better candidates compare greater.
auto rank(const DeviceInfo& info) {
  const int kind = info.kind == DeviceKind::discrete_gpu ? 2 : info.kind == DeviceKind::integrated_gpu ? 1 : 0;
  return std::tuple(kind, -static_cast<int>(info.device.backend), info.total_memory, -info.device.index);
}

/// Whether two GPUs are of the same kind and size, so that the processes of a job can use them in turn. Equal cards can
/// report slightly different amounts of memory.
bool is_alike(const DeviceInfo& a, const DeviceInfo& b) {
  const auto [less, more] = std::minmax(a.total_memory, b.total_memory);
  return a.kind == b.kind && a.device.backend == b.device.backend && more - less <= more / 10;
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
      return {device, rule, rule, true};
    }
  } catch (const DeviceError& e) {
    wrong = e.what();
  }
  fail<DeviceError>({.operation = "environment",
                     .wrong = fmt::format("TESSERA_DEVICE={}: {}", text, wrong),
                     .remedy = "Set it to one of these, or unset it: " + existing_devices(backend)});
}

/// Returns in a few words why there is no GPU: "no driver", "no device". Returns an empty string if the backend cannot
/// have one.
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

Choice preferred(const Preference& p) {
  const Device device = resolve(p);
  const DeviceInfo& info = device_info(device);
  std::string rule = fmt::format("{} ({}): preferred by the {}'s file {}:{}", to_string(device), info.name,
                                 p.scope == PreferenceScope::project ? "project" : "user", p.file, p.line);
  if (device != p.device) {
    rule += fmt::format(", as {}; found by its identity {}", to_string(p.device), p.identity);
    logging::warn(
        fmt::format("{}:{}: {} is now {} (identity {}) and is used; run `tessera prefer {} --{}` to update the file",
                    p.file, p.line, to_string(p.device), to_string(device), p.identity, to_string(device),
                    p.scope == PreferenceScope::project ? "project" : "user"));
  } else if (!p.identity.empty() && info.identity != p.identity) {
    rule += fmt::format(", whose identity {} matches no device", p.identity);
    logging::warn(fmt::format(
        "{}:{}: no device has the identity {}; using {}, which has no identity but the same name ({}); run `tessera "
        "prefer {} --{}` to update the file",
        p.file, p.line, p.identity, to_string(device), info.name, to_string(device),
        p.scope == PreferenceScope::project ? "project" : "user"));
  }
  return {device, rule, rule, true};
}

constexpr std::array gpu_backends = {Backend::cuda, Backend::rocm, Backend::oneapi, Backend::metal, Backend::opencl};

/// The usable GPUs, best first, each physical device only once. `reasons` and `words` describe why other backends have
/// none, in sentences and in a few words.
struct Gpus {
  std::vector<const DeviceInfo*> usable;
  std::string reasons, words;
};
/// GPUs that could not be opened, and why.
using Refused = std::map<Device, std::string>;
Gpus find_gpus(bool only_best, const Refused& refused = {}) {
  static_assert(std::is_sorted(gpu_backends.begin(), gpu_backends.end()));  // in order of preference
  Gpus found;
  for (const Backend backend : gpu_backends) {
    const BackendReport& row = discover(backend);
    std::string reason = row.devices.empty() ? row.reason : "no GPU among its devices";
    for (const DriverPart& part : row.parts)
      if (!row.devices.empty() && (part.state == DeviceState::crashed || part.state == DeviceState::hung))
        reason += fmt::format(", and {}: {}", part.name, part.reason);
    bool discrete = false;
    const std::size_t before = found.usable.size();
    for (const DeviceInfo& info : row.devices) {
      if (!is_gpu(info)) continue;
      if (const auto why = refused.find(info.device); why != refused.end())
        reason = fmt::format("{} ({}) cannot be opened: {}", to_string(info.device), info.name, why->second);
      else if (usable(info))
        found.usable.push_back(&info), discrete = discrete || info.kind == DeviceKind::discrete_gpu;
      else
        reason = fmt::format("{} is {}: {}", to_string(info.device), state_name(info.state), info.reason);
    }
    // A discrete GPU of this backend is better than any GPU of a later backend.
    if (discrete && only_best) break;
    if (found.usable.size() != before) continue;
    found.reasons += fmt::format("{}{}: {}", found.reasons.empty() ? "" : "; ", backend_name(backend), reason);
    if (const std::string word = why_no_gpu(row); !word.empty())
      found.words += fmt::format("{}{}: {}", found.words.empty() ? "" : "; ", backend_name(backend), word);
  }
  std::stable_sort(found.usable.begin(), found.usable.end(),
                   [](const DeviceInfo* a, const DeviceInfo* b) { return rank(*a) > rank(*b); });
  std::vector<const DeviceInfo*> cards;
  for (const DeviceInfo* info : found.usable) {
    const auto same = [&](const DeviceInfo* other) {
      return !info->identity.empty() && info->identity == other->identity &&
             info->device.backend != other->device.backend;
    };
    if (std::none_of(cards.begin(), cards.end(), same)) cards.push_back(info);
  }
  found.usable = std::move(cards);
  return found;
}

const DeviceInfo* usable_cpu() {
  for (const DeviceInfo& info : discover(Backend::cpu).devices)
    if (usable(info)) return &info;
  return nullptr;
}

/// Opens the device. Returns why it failed, or std::nullopt.
std::optional<std::string> why_not_open(const DeviceInfo& info) {
  try {
    open_device(info.device);
    return std::nullopt;
  } catch (const Error& e) {
    return e.what();
  }
}

/// Selects the best GPU that can be opened, else the CPU. With `only_look`, does not try to open the GPU.
Choice automatic(bool only_look) {
  Refused refused;
  Gpus found = find_gpus(true);
  const unsigned turn = os::machine_share().rank;
  while (!found.usable.empty()) {
    std::vector<const DeviceInfo*> alike;
    for (const DeviceInfo* info : found.usable)
      if (is_alike(*info, *found.usable.front())) alike.push_back(info);
    std::ranges::sort(alike, {}, &DeviceInfo::device);
    const auto first = static_cast<std::size_t>(std::ranges::find(alike, found.usable.front()) - alike.begin());
    const DeviceInfo best = *alike[(first + turn) % alike.size()];
    if (!only_look)
      if (const auto why = why_not_open(best)) {
        logging::warn(fmt::format("{} ({}) was skipped: {}", to_string(best.device), best.name, *why));
        refused[best.device] = *why;
        found = find_gpus(true, refused);
        continue;
      }
    std::string rule = fmt::format("{} ({}): chosen automatically, {} of the {}s", to_string(best.device), best.name,
                                   turn == 0 ? "the first" : fmt::format("for process {} of this machine, one", turn),
                                   kind_name(best.kind));
    for (const auto& [device, why] : refused)
      rule += fmt::format("{}{}: {}", device == refused.begin()->first ? " that can be opened; " : "; ",
                          to_string(device), why);
    return {best.device, rule, rule};
  }
  if (const DeviceInfo* cpu = usable_cpu()) {
    const std::string rule = fmt::format("{} ({}): chosen automatically", to_string(cpu->device), cpu->name);
    return {cpu->device, rule + ", because no GPU was found: " + found.reasons,
            fmt::format("{} ({}): no GPU ({}), see `tessera devices`", to_string(cpu->device), cpu->name, found.words)};
  }
  const BackendReport& cpus = discover(Backend::cpu);
  const std::string& why_no_cpu = cpus.devices.empty() ? cpus.reason : cpus.devices.front().reason;
  std::string reasons = found.reasons;
  if (!why_no_cpu.empty()) reasons = fmt::format("cpu: {}; {}", why_no_cpu, reasons);
  fail<DeviceError>(
      {.operation = "current_device",
       .wrong = "there is no usable device: " + reasons,
       .remedy = "Select a device with DeviceScope or TESSERA_DEVICE. Devices that exist: " + existing_devices()});
}

Choice choose(bool only_look) {
  if (const auto& name = settings().device) return named(*name);
  if (const auto preference = effective_preference()) return preferred(*preference);
  return automatic(only_look);
}

/// True while this thread selects a device. Errors of devices that it opens are already considered by its own
/// selection, and other selecting threads open the devices themselves. Without this flag, two threads that find a
/// broken device would restart each other's selection forever.
thread_local bool choosing = false;
struct Choosing {
  Choosing() { choosing = true; }
  ~Choosing() { choosing = false; }
};

const Choice& choice() {
  if (const Choice* c = chosen.load(std::memory_order_acquire)) return *c;
  while (true) {
    const std::uint32_t generation = choice_generation.load();
    std::unique_ptr<const Choice> made;
    {
      const Choosing now;
      made = std::make_unique<const Choice>(choose(false));
    }
    Choices& all = choices.get();
    std::lock_guard hold(all.lock);
    if (const Choice* c = chosen.load(std::memory_order_acquire)) return *c;
    if (generation != choice_generation.load()) continue;  // a device was lost in the meantime: select again
    logging::info("default device: " + made->why);
    all.made.push_back(std::move(made));
    chosen.store(all.made.back().get(), std::memory_order_release);
    return *all.made.back();
  }
}

}  // namespace

void forget_choice() {
  if (choosing) return;
  std::lock_guard hold(choices->lock);
  choice_generation.fetch_add(1);
  chosen.store(nullptr, std::memory_order_release);
}

Device current_device() { return thread_context.device ? *thread_context.device : choice().device; }

std::string why_current_device(Detail detail) {
  if (!thread_context.device) return detail == Detail::full ? choice().why : choice().brief;
  return fmt::format("{} ({}): the innermost DeviceScope of this thread", to_string(*thread_context.device),
                     device_info(*thread_context.device).name);
}

Selection expected_device() {
  if (!thread_context.device) {
    const Choice made = choose(true);
    return {made.device, made.why};
  }
  return {*thread_context.device, why_current_device()};
}

std::vector<Device> devices() {
  std::vector<Device> all;
  for (const BackendReport& row : discover())
    for (const DeviceInfo& info : row.devices) all.push_back(info.device);
  return all;
}

std::vector<Device> gpus() {
  std::vector<Device> all;
  for (const DeviceInfo* info : find_gpus(false).usable) all.push_back(info->device);
  return all;
}

bool has_gpu() { return !find_gpus(true).usable.empty(); }

namespace {

/// Returns why this GPU does not have enough free memory, or std::nullopt if it does. Opens it only if its total memory
/// is sufficient.
std::optional<std::string> too_little_memory(const DeviceInfo& info, std::uint64_t wanted) {
  if (wanted == 0) return std::nullopt;
  const auto too_little = [&](std::uint64_t bytes, const char* what) {
    return fmt::format("{} ({}) has {} {}, but {} are required", to_string(info.device), info.name,
                       config::format_bytes(bytes), what, config::format_bytes(wanted));
  };
  if (info.total_memory != 0 && info.total_memory < wanted) return too_little(info.total_memory, "in total");
  try {
    const std::uint64_t free = free_memory(info.device);
    if (free < wanted) return too_little(free, "free");
  } catch (const Error& e) {
    return fmt::format("{} ({}): {}", to_string(info.device), info.name, e.what());
  }
  return std::nullopt;
}

[[noreturn]] void no_such_gpu(int index, const std::vector<const DeviceInfo*>& counted, const std::string& reasons) {
  std::string list;
  for (std::size_t i = 0; i < counted.size(); ++i)
    list += fmt::format("{}{} ({}, {})", i == 0 ? "" : ", ", i, to_string(counted[i]->device), counted[i]->name);
  fail<DeviceError>({.operation = "gpu_device",
                     .with = {{"index", std::to_string(index)}, {"GPUs", std::to_string(counted.size())}},
                     .wrong = fmt::format("GPU {} does not exist: this machine has {}, numbered from 0{}{}", index,
                                          counted.size(), counted.empty() ? ". " : "", counted.empty() ? reasons : ""),
                     .remedy = counted.empty() ? "Run `tessera devices` for remedies" : "Use one of these: " + list});
}

Device without_gpu(const GpuRequest& request, Device instead, const std::string& why) {
  if (request.require)
    fail<DeviceError>({.operation = "gpu_device",
                       .wrong = "a GPU is required, but there is none: " + why,
                       .remedy = "Run `tessera devices` for remedies"});
  static std::atomic<bool> warned = false;
  if (!warned.exchange(true)) logging::warn(fmt::format("using {} instead of a GPU: {}", to_string(instead), why));
  return instead;
}

}  // namespace

Device gpu_device(GpuRequest request) {
  Gpus found;
  if (request.index) {
    found = find_gpus(false);
  } else if (thread_context.device && is_gpu(device_info(*thread_context.device))) {
    found.usable = {&device_info(*thread_context.device)};
  } else if (settings().device || effective_preference()) {
    const Choice& bound = choice();
    const DeviceInfo& info = device_info(bound.device);
    if (!is_gpu(info)) return without_gpu(request, bound.device, bound.why);
    found.usable = {&info};
  } else {
    found = find_gpus(request.free_memory == 0);
  }
  std::vector<const DeviceInfo*> counted;
  const int index = request.index.value_or(0);
  for (const DeviceInfo* info : found.usable) {
    if (const auto why = too_little_memory(*info, request.free_memory)) {
      found.reasons += (found.reasons.empty() ? "" : "; ") + *why;
      continue;
    }
    counted.push_back(info);
    if (index == static_cast<int>(counted.size()) - 1) return info->device;
  }
  if (request.index) no_such_gpu(index, counted, found.reasons);
  if (const DeviceInfo* cpu = usable_cpu()) return without_gpu(request, cpu->device, found.reasons);
  request.require = true;  // an error, not even the CPU
  return without_gpu(request, {}, found.reasons);
}

DeviceScope::DeviceScope(Device device) : before_(thread_context.device) {
  device_info(device);  // throws if the device does not exist
  thread_context.device = device;
}
DeviceScope::~DeviceScope() { thread_context.device = before_; }

}  // namespace tessera
