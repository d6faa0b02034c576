// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/settings.h"

#include <atomic>
#include <mutex>

#include "tessera/base/config.h"

namespace tessera {
namespace {
std::atomic<const Settings*> current = nullptr;
std::mutex reading;
}  // namespace

const Settings& settings() {
  if (const Settings* s = current.load(std::memory_order_acquire)) return *s;
  std::lock_guard hold(reading);
  if (const Settings* s = current.load(std::memory_order_acquire)) return *s;
  Settings s;
  s.device = config::text("TESSERA_DEVICE");
  s.memory_limit = config::bytes("TESSERA_MEMORY_LIMIT");
  s.dump = config::text("TESSERA_DUMP");
  s.sync = config::flag("TESSERA_SYNC", false);
  s.trace = config::flag("TESSERA_TRACE", false);
  const auto* kept = new Settings(std::move(s));  // never freed: others may still look at the one before
  current.store(kept, std::memory_order_release);
  return *kept;
}

void forget_settings() {
  std::lock_guard hold(reading);
  current.store(nullptr, std::memory_order_release);
}

}  // namespace tessera
