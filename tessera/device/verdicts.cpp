// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tessera/base/config.h"
#include "tessera/base/log.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/os/replace_file.h"
#include "tessera/base/os/system.h"
#include "tessera/device/probe.h"
#include "tessera/device/report_json.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int format = 1;
// Beginnings of the variables that drivers, loaders and our own search read. TESSERA_FAKE_ is of the tests' drivers.
constexpr std::string_view answering =
    "CUDA_ NVIDIA_ HIP_ ROCR_ ROCM_ HSA_ GPU_DEVICE AMD_ ZE_ ZES_ ZEL_ ONEAPI_ SYCL_ NEO INTEL_ OCL_ICD_ OPENCL_ POCL_ "
    "RUSTICL_ MESA_ LD_LIBRARY_ LD_PRELOAD= HOME= XDG_CACHE_HOME= VIRTUAL_ENV= CONDA_PREFIX= TESSERA_FAKE_ "
    "TESSERA_SYSTEM_ROOT= TESSERA_PROBE_TIMEOUT=";
constexpr std::size_t most_files = 64;

/// Empty if there is no place for one.
fs::path folder() {
  if (settings().cache_dir) return *settings().cache_dir;
  if (const auto cache = config::text("XDG_CACHE_HOME")) return fs::path(*cache) / "tessera";
  if (const auto home = config::text("HOME")) return fs::path(*home) / ".cache" / "tessera";
  return {};
}

std::string beginning(Backend backend) { return fmt::format("probe-{}-", backend_name(backend)); }

/// One file for a key: its name is a hash (FNV-1a), and the key itself is inside.
fs::path file_of(Backend backend, const std::string& key) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return folder() / fmt::format("{}{:016x}.json", beginning(backend), hash);
}

std::vector<fs::path> files_with(const std::string& prefix) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder(), error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(prefix)) files.push_back(it->path());
  return files;
}

/// The oldest go first: of earlier starts of the machine, mostly.
void bound() {
  std::vector<fs::path> files = files_with("probe-");
  if (files.size() <= most_files) return;
  std::error_code ignored;
  std::vector<std::pair<fs::file_time_type, fs::path>> by_age;
  for (const fs::path& file : files) by_age.emplace_back(fs::last_write_time(file, ignored), file);
  std::sort(by_age.begin(), by_age.end());
  for (std::size_t i = 0; i + most_files < by_age.size(); ++i) fs::remove(by_age[i].second, ignored);
}

void not_kept(const std::string& why) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) logging::info(fmt::format("what drivers answered is not kept for other programs: {}", why));
}

}  // namespace

std::string verdict_key(Backend backend, const ForeignPart& part, const fs::path& program) {
  if (part.libraries.empty()) return "";
  std::string key = fmt::format("tessera {}\nprobe {}\nbackend {}\npart {}\n{}\n", TESSERA_VERSION,
                                os::file_stamp(program), backend_name(backend), part.name, os::hardware_fingerprint());
  if (!part.name.empty()) key += os::file_stamp(part.name) + "\n";
  for (const std::string& file : files_found(part.libraries)) key += os::file_stamp(file) + "\n";
  for (const std::string& file : files_found(part.beside)) key += os::file_stamp(file) + "\n";
  for (const std::string& variable : os::variables_named(answering)) key += variable + "\n";
  for (const std::string& variable : os::variables_named("TESSERA_"))
    if (variable.substr(0, variable.find('=')).ends_with("_LIBRARY")) key += variable + "\n";
  return key;
}

std::optional<BackendReport> load_verdict(Backend backend, const std::string& key) {
  if (key.empty() || folder().empty()) return std::nullopt;
  std::ifstream in(file_of(backend, key), std::ios::binary);
  if (!in) return std::nullopt;
  try {
    const Json json = Json::parse(in);
    if (json.at("format") != format || json.at("key") != key) return std::nullopt;
    BackendReport report = report_from_json(json.at("report").dump());
    if (report.backend != backend) return std::nullopt;
    report.remembered = true;
    return report;
  } catch (const std::exception& e) {
    logging::info(fmt::format("{} is damaged and will be written anew: {}", file_of(backend, key).string(), e.what()));
    return std::nullopt;
  }
}

void store_verdict(const BackendReport& report, const std::string& key) {
  if (key.empty()) return;
  if (folder().empty()) return not_kept("neither XDG_CACHE_HOME nor HOME is set");
  try {
    if (!os::folder_can_be_used(folder())) return not_kept(fmt::format("{} cannot be written", folder().string()));
    const Json json = {{"format", format}, {"key", key}, {"report", Json::parse(report_json(report))}};
    const fs::path file = file_of(report.backend, key);
    os::replace_text(file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    bound();
  } catch (const std::exception& e) {
    not_kept(e.what());
  }
}

void forget_verdicts(std::optional<Backend> backend) {
  if (folder().empty()) return;
  std::error_code ignored;
  for (const fs::path& file : files_with(backend ? beginning(*backend) : "probe-")) fs::remove(file, ignored);
}

}  // namespace tessera
