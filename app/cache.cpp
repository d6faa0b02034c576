// SPDX-License-Identifier: Apache-2.0
// `tessera cache`: lists and deletes the compiled kernels on disk, and checks which devices would load them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "command.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/device/launch/kernel_cache.h"

namespace tessera::app {
namespace {

using Json = nlohmann::ordered_json;

struct CacheArguments {
  std::string name;
  bool clear = false, why = false, json = false;
};

double seconds_since(std::int64_t nanoseconds) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::max(0.0, std::chrono::duration<double>(now - std::chrono::nanoseconds(nanoseconds)).count());
}

/// Returns a text such as "3 minutes ago".
std::string span_text(double seconds) {
  constexpr std::pair<double, const char*> units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}};
  for (const auto& [length, name] : units)
    if (seconds >= length) return count_noun(static_cast<long long>(seconds / length), name) + " ago";
  return "now";
}

/// Describes which devices of this machine can load the kernels with one set of key parts.
struct Verdict {
  std::size_t kernels = 0;
  /// Each device of the backend, with the key parts that differ. If no part differs, the device loads the kernels.
  std::vector<std::pair<Device, std::vector<std::string>>> devices;
  std::string none;  ///< the reason if there is no device
};
/// The key of the map consists of all parts of a cache key except the kernel.
using Verdicts = std::map<std::string, Verdict>;

std::string device_part(const CachedKernel& kernel) {
  const std::size_t at = kernel.key.find("backend: ");
  return at == std::string::npos ? "" : kernel.key.substr(at);
}

Verdict judge(const CachedKernel& kernel) {
  Verdict verdict;
  const Device named = parse_device(kernel.device.substr(0, kernel.device.find(' ')));
  const BackendReport& report = discover(named.backend);
  verdict.none = report.reason;
  for (const DeviceInfo& info : report.devices) {
    try {
      verdict.devices.emplace_back(info.device, differences(kernel, info.device));
    } catch (const Error& e) {
      verdict.none = e.what();
    }
  }
  return verdict;
}

Verdicts judge(const std::vector<CachedKernel>& kernels) {
  Verdicts verdicts;
  for (const CachedKernel& kernel : kernels) {
    const auto [at, fresh] = verdicts.try_emplace(device_part(kernel));
    if (fresh) at->second = judge(kernel);
    ++at->second.kernels;
  }
  return verdicts;
}

std::vector<std::string> loaded_by(const Verdict& verdict) {
  std::vector<std::string> names;
  for (const auto& [device, differs] : verdict.devices)
    if (differs.empty()) names.push_back(to_string(device));
  return names;
}

void print_verdicts(const std::vector<CachedKernel>& kernels, const Verdicts& verdicts, bool off) {
  app::print("\n");
  std::vector<std::string> told;
  for (const CachedKernel& kernel : kernels) {
    const std::string part = device_part(kernel);
    if (std::ranges::find(told, part) != told.end()) continue;
    told.push_back(part);
    const Verdict& verdict = verdicts.at(part);
    const std::string which =
        fmt::format("{} for {}", count_noun(verdict.kernels, "kernel"), printable_line(kernel.device));
    if (const auto by = loaded_by(verdict); !by.empty()) {
      app::print("{}: {} by {}\n", which, off ? "would be loaded" : "loaded", fmt::join(by, ", "));
      continue;
    }
    app::print("{}: not loaded here\n", which);
    for (const auto& [device, differs] : verdict.devices)
      for (const std::string& line : differs)
        app::print("    {}\n",
                   wrapped(printable_line(fmt::format("{}: {}", to_string(device), line)), 8, columns(output()), 4));
    if (verdict.devices.empty())
      app::print("    {}\n",
                 wrapped(verdict.none.empty() ? "there is no such device" : verdict.none, 8, columns(output()), 4));
  }
}

void print_table(const CacheArguments& o, const KernelCache& cache, const std::vector<CachedKernel>& kernels) {
  // Names end with the same hash that TESSERA_DUMP appends, because several kernels may have the same name.
  std::vector<std::array<std::string, 5>> rows = {{"kernel", "device", "variant", "size", "used"}};
  for (const CachedKernel& k : kernels) {
    const std::size_t hash = k.key.find("hash: ");
    rows.push_back({printable_line(k.kernel + (hash == std::string::npos ? "" : "-" + k.key.substr(hash + 6, 8))),
                    printable_line(k.device), printable_line(k.variant), config::format_bytes(k.bytes),
                    span_text(seconds_since(k.used))});
  }
  std::array<std::size_t, 5> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i]));
  if (!kernels.empty())
    for (const auto& row : rows)
      app::print("{}  {}  {}  {:>{}}  {:>{}}\n", padded(row[0], widths[0]), padded(row[1], widths[1]),
                 padded(row[2], widths[2]), row[3], widths[3], row[4], widths[4]);
  if (!kernels.empty()) app::print("\n");
  if (!o.name.empty())
    app::print("{} of {} match \"{}\"\n", kernels.size(), count_noun(cache.kernels.size(), "kernel"),
               printable_line(o.name));
  app::print("{}, {} of at most {}, in {}\n", count_noun(cache.kernels.size(), "kernel"),
             config::format_bytes(cache.bytes), config::format_bytes(cache.limit),
             cache.folder.empty() ? "no folder" : printable_line(cache.folder.string()));
  if (!cache.damaged.empty())
    app::print("{} damaged: recompiled when needed, and evicted first\n",
               cache.damaged.size() == 1 ? "1 more is" : fmt::format("{} more are", cache.damaged.size()));
  if (!cache.off.empty())
    app::print("The cache is disabled: {}\n", cache.off);
  else if (!cache.unwritable.empty())
    app::print("The cache is not writable: {}\n", cache.unwritable);
}

void print_json(const CacheArguments& o, const KernelCache& cache, const std::vector<CachedKernel>& kernels,
                const Verdicts& verdicts) {
  Json list = Json::array();
  for (const CachedKernel& k : kernels) {
    list.push_back({{"kernel", k.kernel},
                    {"device", k.device},
                    {"variant", k.variant},
                    {"bytes", k.bytes},
                    {"used_seconds_ago", seconds_since(k.used)},
                    {"file", k.file},
                    {"key", k.key}});
    if (!o.why) continue;
    const Verdict& verdict = verdicts.at(device_part(k));
    list.back()["loaded_by"] = loaded_by(verdict);
    Json& differs = list.back()["differs"] = Json::object();
    for (const auto& [device, lines] : verdict.devices)
      if (!lines.empty()) differs[to_string(device)] = lines;
  }
  const Json out = {{"folder", cache.folder.string()},
                    {"off", cache.off},
                    {"unwritable", cache.unwritable},
                    {"bytes", cache.bytes},
                    {"limit_bytes", cache.limit},
                    {"damaged", cache.damaged},
                    {"kernels", list}};
  app::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

int run_cache(const CacheArguments& o) {
  if (o.clear) {
    app::print("{} deleted\n", count_noun(clear_kernel_cache(), "kernel"));
    return success;
  }
  const KernelCache cache = kernel_cache();
  std::vector<CachedKernel> kernels = cache.kernels;
  std::erase_if(kernels, [&](const CachedKernel& k) { return k.kernel.find(o.name) == std::string::npos; });
  const Verdicts verdicts = o.why ? judge(kernels) : Verdicts{};
  if (o.json) {
    print_json(o, cache, kernels, verdicts);
  } else {
    print_table(o, cache, kernels);
    if (o.why && !kernels.empty()) print_verdicts(kernels, verdicts, !cache.off.empty());
  }
  return success;
}

}  // namespace

Command cache_command(CLI::App& program) {
  auto options = std::make_shared<CacheArguments>();
  CLI::App* sub = program.add_subcommand("cache", "Show or clear the cache of compiled kernels");
  CLI::Option* name = sub->add_option("KERNEL", options->name, "Only kernels whose name contains this text");
  CLI::Option* clear = sub->add_flag("--clear", options->clear, "Delete all cached kernels")->excludes(name);
  sub->add_flag("--why", options->why,
                "Also report which devices would load these kernels, or what has changed since they were compiled")
      ->excludes(clear);
  sub->add_flag("--json", options->json, "Print JSON")->excludes(clear);
  sub->footer(
      R"(A kernel is compiled once and then loaded from disk by this user's programs, until the kernel, the device, the compiler,
the driver or Tessera changes. OpenCL kernels are not cached here, because OpenCL drivers have their own caches.
`tessera generate --stats`, or TESSERA_STATS=1 for any program, shows how many kernels were compiled and loaded;
TESSERA_LOG=debug logs why a kernel was not on disk. TESSERA_KERNEL_CACHE=0 disables the cache, TESSERA_KERNEL_CACHE_SIZE=1G
limits it (default 256M; kernels larger than a quarter are not cached), TESSERA_CACHE_DIR sets its folder. The least recently
used kernels are evicted first. --why opens devices, which may itself add a kernel to the cache.

Examples:
  tessera cache
  tessera cache softmax --why
  tessera cache --clear)");
  return {sub, [options] { return run_cache(*options); }};
}

}  // namespace tessera::app
