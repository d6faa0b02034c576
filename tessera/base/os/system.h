// SPDX-License-Identifier: Apache-2.0
// Facts that only the operating system knows: memory, control groups, the environment. Part of the operating system's
// seam: callers see numbers, only system.cpp knows where they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera::os {

/// The variable's value, also an empty one; nothing if it is not set.
std::optional<std::string> environment(const char* name);

struct Memory {
  std::uint64_t total = 0;      ///< bytes of the machine
  std::uint64_t available = 0;  ///< bytes that can be had without swapping, caches of files counted as free
};
/// Zeros where the system does not tell; without /proc, caches count as used. `proc` is for tests.
Memory memory(const std::filesystem::path& proc = "/proc");

/// The tightest memory limit of the control groups around this process (versions 1 and 2), and what is left of it.
struct GroupMemory {
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t free = 0;   ///< bytes until the limit, caches of files counted as free
};
/// Nothing if there is no limit. The paths are for tests.
std::optional<GroupMemory> group_memory(const std::filesystem::path& proc = "/proc",
                                        const std::filesystem::path& groups = "/sys/fs/cgroup");

/// Whether so many bytes of memory could be had now: they are mapped and given back. For what cannot bear to be refused
/// memory in its middle; other threads may take it meanwhile.
bool can_allocate(std::uint64_t bytes) noexcept;

/// Whether a limit of this process (setrlimit: ulimit -v, -d, -u, ...) is such that code may fail for it in any way
/// which works without it.
bool resources_are_limited() noexcept;

/// Stack of a thread that is started without a wish of its own.
std::size_t thread_stack_bytes();

/// Whether this is the thread that the process began with.
bool is_main_thread() noexcept;

/// Sorted names of the files and folders in `folder`; none if it cannot be read.
std::vector<std::string> file_names_in(const std::filesystem::path& folder);

bool file_exists(const char* path);
/// What this process may do with a file, such as a device's (under TESSERA_SYSTEM_ROOT, if that is set): it need not be
/// open already.
enum class Access : std::uint8_t { missing, denied, granted };
Access read_write_access(const char* path);
/// Can files be made in this folder? Makes it, and those above it, where they are missing.
bool is_writable_folder(const std::filesystem::path& folder);
/// Is there a graphics or computing card of this PCI vendor (0x10de: NVIDIA, 0x1002: AMD, 0x8086: Intel), with or
/// without a kernel driver?
bool display_card_of(std::uint32_t vendor);
/// Does the kernel show a graphics device of this PCI vendor (0x8086: Intel)? No driver library is loaded to know.
bool render_node_of(std::uint32_t vendor);

}  // namespace tessera::os
