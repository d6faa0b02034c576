// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/probe_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/sha256.h"
#include "tessera/device/discovery/report_json.h"
#include "tessera/device/discovery/store.h"
#include "tessera/device/launch/kernel_pack.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int format = 2;
// Prefix of entries in format 1. They contained their key, and therefore values of environment variables, in clear
// text.
constexpr std::string_view in_clear = "{\n \"format\": 1,";
// Prefixes of the environment variables that are read by drivers, their compilers, loaders and our own search: NVIDIA,
// AMD, Intel (CL_CONFIG_ and DPCPP_ are from its CPU runtime), OpenCL loaders, PoCL, Oclgrind, Mesa (LP_ and GALLIVM_
// are from llvmpipe), Vulkan below OpenCL, and the system. TESSERA_FAKE_ is used by the fake drivers of the tests.
constexpr std::string_view answering =
    "CUDA_ NVIDIA_ HIP_ ROCR_ ROCM_ HSA_ GPU_ AMD_ AMDGPU_ ZE_ ZES_ ZET_ ZEL_ UR_ ONEAPI_ SYCL_ DPCPP_ NEO "
    "IGC_ INTEL_ CL_CONFIG_ OCL_ OPENCL_ POCL_ OCLGRIND_ RUSTICL_ MESA_ GALLIUM_ GALLIVM_ LP_ LIBGL_ NOUVEAU_ R600_ "
    "RADEON_ "
    "ZINK_ NIR_ IRIS_ CLVK_ VK_ LD_ HOME= XDG_CACHE_HOME= VIRTUAL_ENV= CONDA_PREFIX= TESSERA_FAKE_ "
    "TESSERA_SYSTEM_ROOT= "
    "TESSERA_PROBE_TIMEOUT=";
constexpr std::size_t most_entries = 64, most_bytes = std::size_t{16} << 20;
constexpr std::string_view verdict_ending = ".json";
constexpr std::size_t shortest_secret = 6;  // shorter values such as "0" and "all" occur in many texts

std::string beginning(Backend backend) { return fmt::format("probe-{}-", backend_name(backend)); }

/// Returns the file name of an entry. It contains a prefix of the key's hash; the entry contains the full hash.
std::string name_of(Backend backend, const std::string& hash) {
  return fmt::format("{}{}{}", beginning(backend), hash.substr(0, 16), verdict_ending);
}

/// Removes the oldest entries, which are mostly from earlier boots, and entries of format 1.
void bound(const os::PrivateStore& store) {
  std::vector<os::PrivateStore::Entry> all;
  for (const Backend backend : all_backends) {
    for (os::PrivateStore::Entry& entry : store.list(beginning(backend), verdict_ending)) {
      if (const auto text = store.read(entry.name); text && text->starts_with(in_clear))
        store.remove(entry.name);
      else
        all.push_back(std::move(entry));
    }
    store.remove_stale(beginning(backend), verdict_ending);
  }
  std::ranges::sort(all, {}, &os::PrivateStore::Entry::written);
  for (std::size_t i = 0; i + most_entries < all.size(); ++i) store.remove(all[i].name);
}

void not_kept(const std::string& why) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) logging::info(fmt::format("probe results cannot be cached on disk: {}", why));
}

}  // namespace

std::int64_t temporary_expiry() {
  const auto end = std::chrono::system_clock::now() + temporary_validity;
  return std::chrono::duration_cast<std::chrono::seconds>(end.time_since_epoch()).count();
}
bool has_expired(std::int64_t until) {
  const std::int64_t latest = temporary_expiry();
  return until > latest || until <= latest - std::chrono::seconds(temporary_validity).count();
}

std::string stamps_of(const VendorDriver& part) {
  std::string stamps;
  if (!part.name.empty()) stamps += os::file_stamp(part.name) + "\n";
  for (const auto& names : {part.libraries, part.dependencies})
    for (const std::string& file : files_found(names)) stamps += os::file_stamp(file) + "\n";
  return stamps;
}

std::string probe_cache_key(Backend backend, const VendorDriver& part, const fs::path& program) {
  if (part.libraries.empty()) return "";
  std::string key = fmt::format("tessera {}\nprobe {}\nbackend {}\npart {}\n{}\n", TESSERA_VERSION,
                                os::file_stamp(program), backend_name(backend), part.name, os::hardware_fingerprint());
  key += stamps_of(part) + pack_stamp();
  for (const std::string& variable : os::variables_named(answering)) key += variable + "\n";
  for (const std::string& variable : os::variables_named("TESSERA_"))
    if (variable.substr(0, variable.find('=')).ends_with("_LIBRARY")) key += variable + "\n";
  return key;
}

std::string redact_values(std::string text) {
  std::vector<std::string> variables = os::variables_named(answering);
  // Longest first, because a value may contain a shorter one.
  std::ranges::sort(variables, std::greater{}, &std::string::size);
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    const std::string name = "$" + variable.substr(0, equals), value = variable.substr(equals + 1);
    if (value.size() < shortest_secret) continue;
    for (std::size_t at = 0; (at = text.find(value, at)) != text.npos; at += name.size())
      text.replace(at, value.size(), name);
  }
  return text;
}

std::optional<BackendReport> load_probe_result(Backend backend, const std::string& key) {
  if (key.empty()) return std::nullopt;
  const os::PrivateStore store = private_store();
  const std::string hash = sha256(key), name = name_of(backend, hash);
  const auto text = store.read(name, most_bytes);
  if (!text) return std::nullopt;
  try {
    const Json json = parse_json(*text);
    if (json.at("format") != format || json.at("key") != hash) return std::nullopt;
    BackendReport report = report_from_json(json.at("report"));
    if (report.backend != backend) return std::nullopt;
    if (json.contains("until") && has_expired(json.at("until"))) return std::nullopt;
    report.remembered = true;
    return report;
  } catch (const std::exception& e) {
    logging::info(fmt::format("{} is damaged and will be replaced: {}", (store.folder() / name).string(), e.what()));
    return std::nullopt;
  }
}

void store_probe_result(const BackendReport& asked, const std::string& key, Validity holds) {
  if (key.empty() || holds == Validity::now) return;
  BackendReport report = asked;
  const auto clean = [](auto& with_words) {
    with_words.reason = redact_values(std::move(with_words.reason));
    with_words.remedy = redact_values(std::move(with_words.remedy));
  };
  clean(report);
  for (DriverPart& part : report.parts) clean(part);
  for (DeviceInfo& info : report.devices) clean(info);
  const os::PrivateStore store = private_store();
  if (store.folder().empty()) return not_kept("neither XDG_CACHE_HOME nor HOME is set");
  const std::string hash = sha256(key);
  Json json = {{"format", format}, {"key", hash}, {"report", Json::parse(report_json(report))}};
  if (holds == Validity::temporary) json["until"] = temporary_expiry();
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (const auto why = store.write(name_of(report.backend, hash), text)) return not_kept(*why);
  bound(store);
}

std::optional<os::PrivateStore::Lock> lock_probe_result(Backend backend, const std::string& key) {
  if (key.empty()) return std::nullopt;
  return private_store().lock(name_of(backend, sha256(key)), longest_probe());
}

void clear_probe_results(std::optional<Backend> backend) {
  const os::PrivateStore store = private_store();
  for (const Backend one : all_backends)
    if (!backend || one == *backend)
      for (const os::PrivateStore::Entry& entry : store.list(beginning(one), verdict_ending)) store.remove(entry.name);
}

}  // namespace tessera
