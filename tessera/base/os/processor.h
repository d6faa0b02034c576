// SPDX-License-Identifier: Apache-2.0
// The processor this process runs on: its name, and how many of its cores the process may use.
// Part of the operating system's seam: callers see numbers, only processor.cpp knows where they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera::os {

/// "AMD EPYC 9B45", or "unknown processor". `proc` is for tests.
std::string processor_name(const std::filesystem::path& proc = "/proc");
/// "AMD", "Intel", or what the processor calls itself.
std::string processor_vendor(const std::filesystem::path& proc = "/proc");

/// Cores that this process may use at once: those of its affinity mask, at most the quota of its control group (rounded
/// up), at least 1. The paths are for tests.
unsigned usable_cores(const std::filesystem::path& proc = "/proc",
                      const std::filesystem::path& groups = "/sys/fs/cgroup");

/// The core on which the calling thread runs; -1 if the system does not say.
int current_core() noexcept;

/// While it lives the calling thread stays off `core`, if it may use another one; a change of what it may use that
/// comes from outside meanwhile stands. Nothing where the system does not allow it, and on machines of more than 1,024
/// cores.
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

/// Asks for pages of 2 MiB behind [data, data + bytes); a hint, nothing fails if the system has none.
void prefer_large_pages(void* data, std::size_t bytes) noexcept;

}  // namespace tessera::os
