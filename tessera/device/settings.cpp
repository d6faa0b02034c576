// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/settings.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/hardware.h"
#include "tessera/device/setting_names.h"

namespace tessera {
namespace {
std::atomic<const Settings*> current = nullptr;
struct Reading {
  std::mutex lock;
  std::vector<std::unique_ptr<const Settings>> kept;  // never freed, because callers keep references
};
constinit os::PerProcess<Reading> reading;
}  // namespace

const Settings& settings() {
  if (const Settings* s = current.load(std::memory_order_acquire)) return *s;
  Reading& r = reading.get();
  std::lock_guard hold(r.lock);
  if (const Settings* s = current.load(std::memory_order_acquire)) return *s;
  Settings s;
  logging::check_setting();
  static const bool checked [[maybe_unused]] = [] {
    for (const std::string& text : misspelt_settings(os::variables_named("TESSERA_"))) logging::warn(text);
    return true;
  }();
  s.device = config::text("TESSERA_DEVICE");
  s.memory_limit = config::bytes("TESSERA_MEMORY_LIMIT");
  s.dump = config::text("TESSERA_DUMP");
  s.sync = config::flag("TESSERA_SYNC", false);
  s.trace = config::flag("TESSERA_TRACE", false);
  s.trace_fusion = config::flag("TESSERA_TRACE_FUSION", false);
  s.probe = config::text("TESSERA_PROBE");
  s.probe_timeout = static_cast<int>(config::integer("TESSERA_PROBE_TIMEOUT", 1, 3600).value_or(s.probe_timeout));
  s.cache_dir = config::text("TESSERA_CACHE_DIR");
  s.kernel_cache = config::flag("TESSERA_KERNEL_CACHE", s.kernel_cache);
  s.kernel_cache_bytes = config::bytes("TESSERA_KERNEL_CACHE_SIZE").value_or(s.kernel_cache_bytes);
  s.stats = config::flag("TESSERA_STATS", false);
  // Validated here, because in the cpu backend an error would only show up as a missing cpu device.
  config::integer("TESSERA_THREADS", 1, config::most_threads);
  if (const auto blas = config::text("TESSERA_BLAS"); blas && !blas->empty() && *blas != "auto") {
    if (*blas != "off" && *blas != "vendor")
      fail<ArgumentError>({.operation = "environment",
                           .wrong = fmt::format("TESSERA_BLAS={}: expected off, vendor or auto", *blas),
                           .remedy = "Set TESSERA_BLAS to one of these, or unset it"});
    s.blas = *blas == "off" ? Settings::Blas::off : Settings::Blas::vendor;
  }
  s.wait = static_cast<Settings::Wait>(config::choice("TESSERA_WAIT", {"auto", "spin", "block"}).value_or(0));
  s.tf32 = config::flag("TESSERA_TF32", false);
  s.peer_copies = config::flag("TESSERA_PEER_COPIES", true);
  s.pack = config::text("TESSERA_PACK");
  s.compile = config::flag("TESSERA_COMPILE", true);
  s.check = config::flag("TESSERA_CHECK", false);
  r.kept.push_back(std::make_unique<const Settings>(std::move(s)));
  current.store(r.kept.back().get(), std::memory_order_release);
  return *r.kept.back();
}

std::optional<double> watchdog_seconds() {
  const auto text = config::text("TESSERA_WATCHDOG");
  if (!text) return std::nullopt;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  if (error != std::errc() || end != text->data() + text->size() || !(seconds >= 0.01 && seconds <= 1e6))
    fail<ArgumentError>(
        {.operation = "TESSERA_WATCHDOG",
         .with = {{"value", *text}},
         .wrong = "not a number of seconds from 0.01 to 1,000,000",
         .remedy = "Set it to the number of seconds without progress before a warning, such as 30, or unset it"});
  return seconds;
}

void trace_line(const std::string& line) {
  if (settings().trace)
    logging::print(line);
  else
    logging::debug(line);
}

void forget_settings() {
  std::lock_guard hold(reading->lock);
  current.store(nullptr, std::memory_order_release);
}

}  // namespace tessera
