// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/launch/kernel_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/packed.h"
#include "tessera/base/printable.h"
#include "tessera/base/sha256.h"
#include "tessera/device/discovery/probe_results.h"
#include "tessera/device/discovery/store.h"
#include "tessera/device/discovery/verify_device.h"
#include "tessera/device/launch/kernel_pack.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"
#include "tessera/ir/digest.h"

namespace tessera {
namespace {

constexpr std::string_view kernel_beginning = "kernel-", kernel_ending = ".bin";
constexpr std::size_t part_digits = 16, digits = 2 * part_digits;
/// Prefix of an entry. It is followed by the SHA-256 hash of the entry's body.
constexpr std::string_view magic = "tessera kernel 1\n";
constexpr std::size_t hash_digits = 64;
/// Prefixes of environment variables that the vendors' compilers read. Only hashes of their values are stored.
constexpr std::string_view compiler_variables = "NVRTC_ HIPRTC_ AMD_COMGR_ COMGR_ OCLOC_ IGC_ NEO";
constexpr std::chrono::hours stays_young{24};
/// How long a process waits for another one that compiles the same kernel.
constexpr std::chrono::seconds longest_build{30};
/// Maximum number of images per kernel. A device switches to another compiler at most once.
constexpr int most_images = 4;
constexpr std::uint64_t block = 4096;

std::uint64_t on_disk(std::uint64_t bytes) { return (bytes + block - 1) / block * block; }

// The key consists of two texts with lines "name: value". Entries of a kernel for different devices, compilers and
// drivers have different file names, so that programs with different configurations do not replace each other's
// entries.

struct Key {
  std::string kernel, device;
  std::string text() const { return kernel + device; }
  std::string beginning() const { return fmt::format("{}{}", kernel_beginning, sha256(kernel).substr(0, part_digits)); }
  std::string name() const { return beginning() + sha256(device).substr(0, part_digits) + std::string(kernel_ending); }
};

/// Returns an empty string if images of this device are not cached.
std::string device_lines(DriverDevice& device, KernelCounters& counters) {
  const std::string own = device.image_key();
  if (own.empty()) return own;
  if (counters.files.empty()) {
    std::string all;
    if (Driver* driver = find_driver(device.info().device.backend))
      if (const auto parts = driver->vendor_drivers())
        for (const VendorDriver& part : *parts) all += stamps_of(part);
    for (const std::string& variable : os::variables_named(compiler_variables)) all += variable + "\n";
    counters.files = sha256(all);
  }
  return fmt::format("tessera: {}\n{}driver's files: {}\n", TESSERA_VERSION, own, counters.files);
}

/// Returns the value of the line "what: ..." in a key.
std::string_view value_of(std::string_view key, std::string_view what) {
  for (std::size_t at = 0; at < key.size();) {
    const std::size_t end = std::min(key.find('\n', at), key.size());
    const std::string_view line = key.substr(at, end - at);
    if (line.starts_with(what) && line.substr(what.size()).starts_with(": ")) return line.substr(what.size() + 2);
    at = end + 1;
  }
  return {};
}

/// Describes the lines of `kept` that are missing or different in `now`, one sentence for each.
std::vector<std::string> different_lines(std::string_view kept, std::string_view now) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < kept.size();) {
    const std::size_t end = std::min(kept.find('\n', at), kept.size());
    const std::string_view line = kept.substr(at, end - at), what = line.substr(0, line.find(": "));
    const std::string_view then = value_of(line, what), other = value_of(now, what);
    const bool many = what.ends_with("s");
    if (then != other)
      out.push_back(fmt::format("{} {} {}, and {} {}", what, many ? "were" : "was", then, many ? "are" : "is",
                                other.empty() ? "none" : other));
    at = end + 1;
  }
  return out;
}

std::string make_entry(const Key& key, std::string_view image) {
  const std::string body = (Packer() << key.text() << image).take();
  return fmt::format("{}{}\n{}", magic, sha256(body), body);
}

struct Entry {
  std::string_view key, image;
};
/// Parses an entry. Returns std::nullopt if its hash does not match. The result refers to `bytes`.
std::optional<Entry> read_entry(std::string_view bytes) {
  const std::size_t head = magic.size() + hash_digits + 1;
  if (bytes.size() < head || !bytes.starts_with(magic) || bytes[head - 1] != '\n') return std::nullopt;
  const std::string_view body = bytes.substr(head);
  if (sha256(body) != bytes.substr(magic.size(), hash_digits)) return std::nullopt;
  try {
    Unpacker parts(body);
    const std::string_view key = parts.text(), image = parts.text();
    parts.end();
    return Entry{key, image};
  } catch (const FormatError&) {
    return std::nullopt;
  }
}

std::string why_off() {
  if (!settings().kernel_cache) return "disabled by TESSERA_KERNEL_CACHE";
  if (private_store().folder().empty()) return "no cache folder: neither XDG_CACHE_HOME nor HOME is set";
  return {};
}

os::PrivateStore store() { return os::PrivateStore(private_store().folder() / "kernels"); }

void remove_oldest(const os::PrivateStore& store, std::uint64_t limit) {
  const auto entries = store.list(kernel_beginning, kernel_ending, digits);
  std::uint64_t bytes = 0;
  for (const auto& entry : entries) bytes += on_disk(entry.bytes);
  if (bytes > limit)
    for (const auto& entry : entries) {
      if (bytes <= limit - limit / 8) break;
      if (store.remove(entry.name)) bytes -= on_disk(entry.bytes);
    }
  store.remove_stale(kernel_beginning, kernel_ending, digits);
}

void keep(const Key& key, std::string_view image) {
  const std::uint64_t limit = settings().kernel_cache_bytes;
  const std::string entry = make_entry(key, image), name = key.name();
  if (on_disk(entry.size()) > limit / 4) return;
  // If others can write to the parent folder, both the cache folder and `kernels` are created with private permissions.
  std::optional<std::string> why = private_store().why_not_written();
  if (!why) why = store().write(name, entry);
  if (why) {
    static std::atomic<bool> said = false;
    if (!said.exchange(true)) logging::info(fmt::format("compiled kernels cannot be cached on disk: {}", *why));
    return;
  }
  // Each process lists the folder about once for every 1/32 of the limit that it writes. The choice is effectively
  // random because it depends on the file name, which is a hash.
  const std::uint64_t share = std::max<std::uint64_t>(limit / 32, 1);
  if (std::stoull(name.substr(kernel_beginning.size(), part_digits), nullptr, 16) % share < on_disk(entry.size()))
    remove_oldest(store(), limit);
}

/// Logs why this kernel has to be compiled.
void tell_absent(const Key& key) {
  if (!logging::enabled(logging::Level::debug)) return;
  std::string why = "it is not cached yet";
  const os::PrivateStore kept = store();
  for (const auto& entry : kept.list(key.beginning(), kernel_ending, part_digits)) {
    const auto bytes = kept.read(entry.name);
    const auto read = bytes ? read_entry(*bytes) : std::nullopt;
    why = !bytes  ? entry.name + " is not trusted: it belongs to another user or others can write to it"
          : !read ? entry.name + " is damaged"
                  : fmt::format("the cached one differs: {}", fmt::join(different_lines(read->key, key.text()), "; "));
  }
  logging::debug(fmt::format("{} is not in the kernel cache: {}", value_of(key.kernel, "kernel"), why));
}

std::unique_ptr<LoadedKernel> load_cached(DriverDevice& device, const CompileRequest& request, const Key& key,
                                          KernelCounters& counters) {
  const os::PrivateStore kept = store();
  const std::string name = key.name();
  const auto bytes = kept.read(name);
  if (!bytes) {
    tell_absent(key);
    return nullptr;
  }
  const auto entry = read_entry(*bytes);
  if (!entry || entry->key != key.text()) {
    ++counters.damaged;
    logging::info(fmt::format("{} is damaged and will be replaced", (kept.folder() / name).string()));
    return nullptr;
  }
  std::string why = "the device needs a different image";
  try {
    if (auto kernel = device.load(request, std::string(entry->image))) {
      kept.touch(name, stays_young);
      return kernel;
    }
  } catch (const KernelError& e) {
    why = e.what();
  } catch (const FormatError& e) {
    why = e.what();
  }
  ++counters.refused;
  logging::info(fmt::format("{} could not be loaded and will be replaced: {}", (kept.folder() / name).string(), why));
  return nullptr;
}

[[noreturn]] void fail_undecided(DriverDevice& device, const CompileRequest& request) {
  fail<KernelError>({.operation = "compile " + request.function->name,
                     .with = {{"device", to_string(device.info().device)}},
                     .wrong = "the driver rejects the output of all its compilers"});
}

/// Throws KernelError if the device cannot or must not compile.
void require_compiler(DriverDevice& device, const CompileRequest& request) {
  auto* const loads = dynamic_cast<LoadsPacks*>(&device);
  const Device here = device.info().device;
  const KernelPack* const pack = pack_in_use();
  const std::string target = loads == nullptr ? "" : loads->pack_target();
  bool forbidden = !settings().compile && holds_data(here) && !is_reference(here.backend);
  // Without the module and a target, the cpu device interprets kernels.
  if (forbidden && loads != nullptr && target.empty() && !loads->why_not_compiled().empty()) forbidden = false;
  std::string why = forbidden ? "TESSERA_COMPILE=0 forbids compiling it" : "";
  if (!forbidden && pack != nullptr && !target.empty()) why = loads->why_not_compiled();
  if (why.empty()) return;
  const std::string absent = pack == nullptr ? "no pack is in use"
                             : target.empty()
                                 ? fmt::format("the pack {} has no target for this device; its targets are {}",
                                               pack->file(), pack->target_names(", "))
                                 : fmt::format("the pack {} does not contain it (target {}, {})", pack->file(), target,
                                               count_noun(pack->kernels(target), "kernel"));
  const std::string variant = kernel_lines(here.backend, request);
  fail<KernelError>({.operation = "kernel " + request.function->name,
                     .with = {{"device", to_string(here) + " " + device.info().name},
                              {"variant", std::string(value_of(variant, "variant"))},
                              {"hash", std::string(value_of(variant, "hash"))}},
                     .wrong = absent + ", and " + why,
                     .remedy = pack == nullptr ? "Name a pack with TESSERA_PACK, or unset TESSERA_COMPILE"
                               : target.empty()
                                   ? "Make the pack again with a target for this device, or allow compiling"
                                   : "Make the pack again with this kernel, or allow compiling. Kernels "
                                     "of a model depend on options such as --cache, --batch and "
                                     "--parallel, which `tessera pack` has, too"});
}

MadeKernel make_kernel(DriverDevice& device, const CompileRequest& request, KernelCounters& counters) {
  const std::string kernel_part = kernel_lines(device.info().device.backend, request);
  for (int images = 0; images < most_images; ++images) {
    const Key key{kernel_part, device_lines(device, counters)};
    const std::uint64_t unusable = counters.damaged + counters.refused;
    auto kernel = load_cached(device, request, key, counters);
    // Another process may be compiling the kernel.
    const bool absent = !kernel && counters.damaged + counters.refused == unusable;
    const auto building =
        absent && !private_store().why_not_written() ? store().lock(key.name(), longest_build) : std::nullopt;
    if (building) kernel = load_cached(device, request, key, counters);
    if (kernel) {
      ++counters.loaded;
      return {std::move(kernel), true};
    }
    // The device switched to another compiler while loading the image.
    if (device_lines(device, counters) != key.device) continue;
    require_compiler(device, request);
    const std::string image = device.build(request);
    kernel = device.load(request, image);
    if (kernel) {
      ++counters.compiled;
      keep(key, image);
      return {std::move(kernel), false};
    }
  }
  fail_undecided(device, request);
}

}  // namespace

std::vector<std::unique_ptr<LoadedKernel>> DriverDevice::compile(std::span<const CompileRequest> requests) {
  std::vector<std::unique_ptr<LoadedKernel>> out;
  for (const CompileRequest& request : requests) {
    std::unique_ptr<LoadedKernel> kernel;
    for (int images = 0; images < most_images && !kernel; ++images) kernel = load(request, build(request));
    if (!kernel) fail_undecided(*this, request);
    out.push_back(std::move(kernel));
  }
  return out;
}

std::vector<std::unique_ptr<LoadedKernel>> load_from_pack(DriverDevice& device,
                                                          std::span<const CompileRequest> requests,
                                                          KernelCounters& counters) {
  std::vector<std::unique_ptr<LoadedKernel>> out(requests.size());
  const KernelPack* const pack = pack_in_use();
  auto* const loads = dynamic_cast<LoadsPacks*>(&device);
  const std::string target = pack == nullptr || loads == nullptr ? "" : loads->pack_target();
  if (target.empty()) {
    // The trial of a device that is then not used is no reason for a warning.
    const bool matters =
        pack != nullptr && loads != nullptr && std::ranges::any_of(requests, [](const CompileRequest& r) {
          return !r.function->name.starts_with(verify_kernel_name);
        });
    if (matters && counters.unpacked.fetch_add(requests.size()) == 0)
      logging::warn(fmt::format(
          "{}: the pack {} has no target for this device, so its kernels are {}; its targets are {}",
          to_string(device.info().device), pack->file(),
          loads->why_not_compiled().empty() ? "compiled" : "interpreted, which is slow", pack->target_names(", ")));
    return out;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const CompileRequest& request = requests[i];
    const auto image = pack->find(target, kernel_lines(device.info().device.backend, request));
    std::string why = "does not contain";
    const auto refused = [&](const Error& e) {
      why = fmt::format("could not be used ({}) for", e.what());
      // The kernel can be compiled instead, unless the user forbade it.
      if (settings().compile && loads->why_not_compiled().empty()) return;
      fail<KernelError>({.operation = "kernel " + request.function->name,
                         .with = {{"device", to_string(device.info().device) + " " + device.info().name},
                                  {"pack", pack->file()},
                                  {"target", target}},
                         .wrong = e.what()});
    };
    if (image) {
      try {
        out[i] = loads->load_packed(request, *image);
      } catch (const KernelError& e) {
        refused(e);
      } catch (const FormatError& e) {
        refused(e);
      }
    }
    if (out[i]) {
      ++counters.packed;
      continue;
    }
    ++counters.unpacked;
    const std::string text =
        fmt::format("{}: the pack {} (target {}, {}) {} {}", to_string(device.info().device), pack->file(), target,
                    count_noun(pack->kernels(target), "kernel"), why, request.function->name);
    counters.unpacked == 1 ? logging::warn(text) : logging::info(text);
  }
  return out;
}

std::vector<MadeKernel> load_or_compile(DriverDevice& device, std::span<const CompileRequest> requests,
                                        KernelCounters& counters) {
  std::vector<MadeKernel> out;
  auto packed = load_from_pack(device, requests, counters);
  std::vector<CompileRequest> missing;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    out.push_back({std::move(packed[i]), true});
    if (!out[i].kernel) missing.push_back(requests[i]);
  }
  if (missing.empty()) return out;
  auto put = [&, at = std::size_t{0}](MadeKernel made) mutable {
    while (out[at].kernel) ++at;
    out[at] = std::move(made);
  };
  counters.kept = why_off().empty() && !device.image_key().empty();
  if (counters.kept) {
    for (const CompileRequest& request : missing) put(make_kernel(device, request, counters));
    return out;
  }
  require_compiler(device, missing.front());
  for (auto& kernel : device.compile(missing)) put({std::move(kernel), false});
  if (!is_reference(device.info().device.backend)) counters.compiled += missing.size();
  return out;
}

KernelCache kernel_cache() {
  KernelCache cache;
  cache.off = why_off();
  cache.limit = settings().kernel_cache_bytes;
  if (private_store().folder().empty()) return cache;
  const os::PrivateStore kept = store();
  cache.folder = kept.folder();
  if (cache.off.empty()) cache.unwritable = kept.why_not_written().value_or("");
  for (const auto& file : kept.list(kernel_beginning, kernel_ending, digits)) {
    cache.bytes += on_disk(file.bytes);
    const auto bytes = kept.read(file.name);
    const auto entry = bytes ? read_entry(*bytes) : std::nullopt;
    if (!entry) {
      cache.damaged.push_back(file.name);
      continue;
    }
    const auto value = [&](std::string_view what) { return std::string(value_of(entry->key, what)); };
    cache.kernels.push_back({file.name, value("kernel"), fmt::format("{} {}", value("backend"), value("architecture")),
                             value("variant"), std::string(entry->key), on_disk(file.bytes), file.written});
  }
  std::ranges::reverse(cache.kernels);
  return cache;
}

std::size_t clear_kernel_cache() {
  std::size_t deleted = 0;
  if (private_store().folder().empty()) return deleted;
  const os::PrivateStore kept = store();
  for (const auto& entry : kept.list(kernel_beginning, kernel_ending, digits))
    deleted += kept.remove(entry.name) ? 1 : 0;
  return deleted;
}

std::vector<std::string> differences(const CachedKernel& kept, Device device) {
  OpenDevice& open = open_device(device);
  const std::lock_guard hold(open.compile_lock);
  const Key now{fmt::format("backend: {}\n", backend_name(device.backend)), device_lines(*open.driver, open.kernels)};
  const std::size_t from = kept.key.find("backend: ");  // the lines before "backend:" describe the kernel itself
  return different_lines(std::string_view(kept.key).substr(std::min(from, kept.key.size())), now.text());
}

}  // namespace tessera
