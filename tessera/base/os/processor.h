// SPDX-License-Identifier: Apache-2.0
// The processor of this machine: its name and the number of cores that the process may use. Operating system layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera::os {

/// "AMD EPYC 9B45", or "unknown processor". `proc` is for tests.
std::string processor_name(const std::filesystem::path& proc = "/proc");
/// "AMD", "Intel", or the vendor id that the processor reports.
std::string processor_vendor(const std::filesystem::path& proc = "/proc");

/// The number of cores that this process can use at once: its affinity mask, limited by the control group's quota
/// (rounded up), at least 1. The paths are for tests.
unsigned usable_cores(const std::filesystem::path& proc = "/proc",
                      const std::filesystem::path& groups = "/sys/fs/cgroup");

/// The core that runs the calling thread; -1 if unknown.
int current_core() noexcept;

/// Keeps the calling thread off `core` during its lifetime, if another core is allowed. Does not undo changes of the
/// affinity mask made by others meanwhile. No effect if the system denies it or has more than 1,024 cores.
class AvoidCore {
 public:
  explicit AvoidCore(int core) noexcept;
  ~AvoidCore();
  AvoidCore(const AvoidCore&) = delete;
  AvoidCore& operator=(const AvoidCore&) = delete;

 private:
  struct Mask {
    std::uint64_t words[16];
    bool operator==(const Mask&) const = default;
  };
  Mask before_, without_;
  bool on_ = false;
};

/// Requests 2 MiB pages for [data, data + bytes). A hint: no effect if the system has none.
void prefer_large_pages(void* data, std::size_t bytes) noexcept;

}  // namespace tessera::os
