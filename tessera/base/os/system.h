// SPDX-License-Identifier: Apache-2.0
// Information from the operating system: memory, control groups, the environment. Operating system layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera::os {

/// The variable's value, which may be empty; nullopt if unset.
std::optional<std::string> environment(const char* name);

struct Memory {
  std::uint64_t total = 0;      ///< bytes installed
  std::uint64_t available = 0;  ///< bytes available without swapping; page caches count as free
};
/// Zeros if unknown. Without /proc, page caches count as used. `proc` is for tests.
Memory memory(const std::filesystem::path& proc = "/proc");

/// The tightest memory limit of the control groups of this process (versions 1 and 2), and its free part.
struct GroupMemory {
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t free = 0;   ///< bytes below the limit; page caches count as free
};
/// Nullopt if there is no limit. The paths are for tests.
std::optional<GroupMemory> group_memory(const std::filesystem::path& proc = "/proc",
                                        const std::filesystem::path& groups = "/sys/fs/cgroup");

/// Whether `bytes` of memory are available now, tested by mapping and unmapping them. For code that cannot handle a
/// failed allocation; other threads may take the memory afterwards.
bool can_allocate(std::uint64_t bytes) noexcept;

/// Whether a resource limit of this process (setrlimit: ulimit -v, -d, -u, ...) is low enough to make code fail that
/// works without it.
bool resources_are_limited() noexcept;

/// The default stack size of a new thread.
std::size_t thread_stack_bytes();

/// Whether the calling thread is the process's initial thread.
bool is_main_thread() noexcept;

/// Sorted names of the files and folders in `folder`; empty if it cannot be read.
std::vector<std::string> file_names_in(const std::filesystem::path& folder);

bool file_exists(const char* path);
/// The process's access to a file, such as a device file (below TESSERA_SYSTEM_ROOT, if set), without opening it.
enum class Access : std::uint8_t { missing, denied, granted };
Access read_write_access(const char* path);
/// Whether files can be created in this folder. Creates it and its parents if missing.
bool is_writable_folder(const std::filesystem::path& folder);
/// Whether the machine has a graphics or compute card of this PCI vendor (0x10de: NVIDIA, 0x1002: AMD, 0x8086: Intel),
/// with or without a kernel driver.
bool display_card_of(std::uint32_t vendor);
/// Whether the kernel exposes a render node of this PCI vendor (0x8086: Intel). Loads no driver library.
bool render_node_of(std::uint32_t vendor);

}  // namespace tessera::os
