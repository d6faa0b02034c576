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

/// Returns the value of a variable, which may be empty; std::nullopt if it is unset.
std::optional<std::string> environment(const char* name);

/// Returns the name of this machine.
std::string host_name();
/// Returns the id of this process.
int process_id() noexcept;

struct Memory {
  std::uint64_t total = 0;      ///< bytes installed
  std::uint64_t available = 0;  ///< available without swapping; page caches count as free
};
/// Returns zeros if unknown. Without /proc, page caches count as used. `proc` is for tests.
Memory memory(const std::filesystem::path& proc = "/proc");

/// The lowest memory limit of this process's control groups (versions 1 and 2), and how much of it is free.
struct GroupMemory {
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t free = 0;   ///< bytes that are still free; page caches count as free
};
/// Returns std::nullopt if there is no limit. The paths are for tests.
std::optional<GroupMemory> group_memory(const std::filesystem::path& proc = "/proc",
                                        const std::filesystem::path& groups = "/sys/fs/cgroup");

/// Returns whether `bytes` of memory are available now, by mapping and unmapping them. Used by code that cannot handle
/// failed allocations. Other threads may allocate the memory afterwards.
bool can_allocate(std::uint64_t bytes) noexcept;

/// Returns whether a resource limit of this process (setrlimit: ulimit -v, -d, -u, ...) is so low that drivers or
/// compilers may fail because of it.
bool resources_are_limited() noexcept;

/// Returns the default stack size of a new thread.
std::size_t thread_stack_bytes();

/// Returns whether the calling thread is the initial thread of the process.
bool is_main_thread() noexcept;

/// Returns the sorted names of the files and folders in `folder`; empty if it cannot be read.
std::vector<std::string> file_names_in(const std::filesystem::path& folder);

bool file_exists(const char* path);
/// The process's access to a file, such as a device file, without opening it. If TESSERA_SYSTEM_ROOT is set, paths are
/// below that folder.
enum class Access : std::uint8_t { missing, denied, granted };
Access read_write_access(const char* path);
/// Returns whether files can be created in this folder. Creates it and its parents if they do not exist.
bool is_writable_folder(const std::filesystem::path& folder);
/// Returns whether the machine has a graphics or compute card of this PCI vendor (0x10de: NVIDIA, 0x1002: AMD, 0x8086:
/// Intel), even if no kernel driver is loaded for it.
bool display_card_of(std::uint32_t vendor);
/// Returns whether the kernel provides a render node of this PCI vendor (0x8086: Intel). Does not load a driver.
bool render_node_of(std::uint32_t vendor);

}  // namespace tessera::os
