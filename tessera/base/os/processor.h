// SPDX-License-Identifier: Apache-2.0
// The processor this process runs on: its name, and how many of its cores the process may use.
// Part of the operating system's seam: callers see numbers, only processor.cpp knows where they come from.
#pragma once

#include <cstddef>
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

/// Asks for pages of 2 MiB behind [data, data + bytes); a hint, nothing fails if the system has none.
void prefer_large_pages(void* data, std::size_t bytes) noexcept;

}  // namespace tessera::os
