// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue/copy_path.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/driver.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

const std::string check_name = "(check of direct copies)";
constexpr std::size_t words = 16 * 1024, check_bytes = words * sizeof(std::uint32_t);

/// Calls the driver; marks the device as lost on DeviceLost.
template <class F>
auto or_lost(OpenDevice& device, const F& call) {
  device.check();
  try {
    return call();
  } catch (const DeviceLost& e) {
    device.mark_lost(e.what());
    device.check();  // throws a DeviceLost with the remedy
    throw;
  }
}

/// Memory for the check. It is not counted in the budget because it is freed right after the check.
struct Scratch {
  explicit Scratch(OpenDevice& on) : device(on), memory(allocate(on)) {}
  ~Scratch() {
    if (!device.gone()) device.driver->release(memory);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  static Allocation allocate(OpenDevice& on) {
    return or_lost(on, [&] { return on.driver->allocate(check_bytes, MemoryKind::device); });
  }
  OpenDevice& device;
  const Allocation memory;
};

/// Copies a pattern directly. Returns an empty string if it arrives correctly, otherwise an error message. Throws
/// DeviceLost and OutOfMemory.
std::string check_copy(OpenDevice& to, OpenDevice& from) {
  std::vector<std::uint32_t> pattern(words), got(words);
  for (std::size_t i = 0; i < words; ++i)
    pattern[i] = static_cast<std::uint32_t>(i + 1) * 2654435761u + static_cast<std::uint32_t>(to.ordinal);
  for (std::size_t i = 0; i < words; ++i) got[i] = ~pattern[i];
  const Scratch source(from), target(to);
  Queue out(from.device), in(to.device);  // separate queues, so that other work and its errors are not involved
  out.core().submit(check_name, [&](DriverQueue& q) { q.upload(source.memory, 0, pattern.data(), check_bytes); });
  out.core().finish();
  try {
    in.core().submit(check_name, [&](DriverQueue& q) {
      q.upload(target.memory, 0, got.data(), check_bytes);
      q.copy_from(*from.driver, target.memory, 0, source.memory, 0, check_bytes);
      q.download(got.data(), target.memory, 0, check_bytes);
    });
    in.core().finish();
  } catch (const DeviceLost&) {
    throw;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    return fmt::format("the copy of a pattern from {} to {} failed: {}", to_string(from.device), to_string(to.device),
                       e.what());
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < words; ++i) wrong += got[i] != pattern[i] ? 1 : 0;
  if (wrong == 0) return {};
  return fmt::format("the driver reports that a pattern was copied from {} to {}, but {} of {} bytes are wrong",
                     to_string(from.device), to_string(to.device), wrong * sizeof(std::uint32_t), check_bytes);
}

/// Returns std::nullopt if no path was selected yet.
std::optional<CopyPath> known_path(OpenDevice& to, OpenDevice& from) {
  std::lock_guard hold(to.paths_lock);
  const auto found = to.paths.find(&from);
  return found == to.paths.end() ? std::nullopt : std::optional(found->second);
}

void keep_path(OpenDevice& to, OpenDevice& from, CopyPath path) {
  {
    std::lock_guard hold(to.paths_lock);
    to.paths[&from] = path;
  }
  logging::debug(
      fmt::format("copies from {} to {}: {}", to_string(from.device), to_string(to.device), to_string(path)));
}

}  // namespace

std::string_view to_string(CopyPath path) {
  switch (path) {
    case CopyPath::direct: return "direct";
    case CopyPath::host: return "through the host: the driver does not support peer access";
    case CopyPath::disabled: return "through the host: TESSERA_PEER_COPIES=off";
    case CopyPath::failed_check: return "through the host: a test of direct copies failed";
  }
  return "?";
}

CopyPath copy_path(OpenDevice& to, OpenDevice& from) {
  if (to.device.backend != from.device.backend) return CopyPath::host;
  if (!settings().peer_copies) return CopyPath::disabled;
  if (const auto path = known_path(to, from)) return *path;
  static constinit os::PerProcess<std::mutex> meeting;
  std::lock_guard hold(meeting.get());
  if (const auto path = known_path(to, from)) return *path;
  const bool there = or_lost(to, [&] { return to.driver->enable_peer_access(*from.driver); }),
             back = or_lost(from, [&] { return from.driver->enable_peer_access(*to.driver); });
  std::string failure;
  try {
    if (there) failure = check_copy(to, from);
    if (back && failure.empty()) failure = check_copy(from, to);
  } catch (const OutOfMemory&) {  // the result is not stored, so that the next copy retries
    return CopyPath::host;
  }
  if (!failure.empty())
    logging::warn(fmt::format(
        "direct copies between {} ({}) and {} ({}) are disabled: {}. Copies between them go through the host's "
        "memory, which is slower. The cause is usually an IOMMU that translates addresses or PCIe Access Control "
        "Services (ACS): boot with iommu=pt, or disable ACS in the firmware. TESSERA_PEER_COPIES=off skips this check",
        to_string(to.device), to.info.name, to_string(from.device), from.info.name, failure));
  const auto path = [&](bool enable_peer_access) {
    return !enable_peer_access ? CopyPath::host : failure.empty() ? CopyPath::direct : CopyPath::failed_check;
  };
  keep_path(from, to, path(back));
  keep_path(to, from, path(there));
  return path(there);
}

CopyPath copy_path(Device to, Device from) { return copy_path(open_device(to), open_device(from)); }

}  // namespace tessera
