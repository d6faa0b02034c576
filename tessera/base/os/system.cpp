// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/system.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "tessera/base/os/hardware.h"

namespace tessera::os {
namespace {

namespace fs = std::filesystem;

/// Returns the number at the start of a file; std::nullopt if the file does not exist or contains "max".
std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

/// Returns the number after `key` in a file with lines "key number"; 0 if it is missing.
std::uint64_t keyed_number(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return 0;
}

/// Uses the limit of a group if it is the lowest one so far.
void tighten(std::optional<GroupMemory>& best, std::optional<std::uint64_t> limit, std::optional<std::uint64_t> used,
             std::uint64_t cache) {
  // In version 1, "no limit" is the largest multiple of the page size.
  if (!limit || *limit >= std::uint64_t{1} << 62) return;
  const std::uint64_t in_use = used.value_or(0) - std::min(cache, used.value_or(0));
  const GroupMemory group{*limit, *limit - std::min(*limit, in_use)};
  if (!best) {
    best = group;
  } else {
    best->limit = std::min(best->limit, group.limit);
    best->free = std::min(best->free, group.free);
  }
}

/// Calls `f` for the process's group and its parents up to the root of the mount, because limits of parents also apply.
/// If the process is in another namespace, the mount does not contain its group. The root is then the process's own
/// group, and only the root is visited.
template <class F>
void each_group(const fs::path& mount, std::string path, F&& f) {
  while (true) {
    std::error_code ignored;
    const fs::path folder = mount / fs::path(path).relative_path();
    if (fs::is_directory(folder, ignored)) f(folder);
    if (path.empty() || path == "/") return;
    path = fs::path(path).parent_path().string();
  }
}

}  // namespace

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

int process_id() noexcept { return ::getpid(); }

Memory memory(const fs::path& proc) {
  const fs::path file = proc / "meminfo";
  const Memory told{keyed_number(file, "MemTotal:") * 1024, keyed_number(file, "MemAvailable:") * 1024};
  struct sysinfo info {};
  if (told.total != 0 || ::sysinfo(&info) != 0) return told;
  // Without /proc, page caches are not included in free memory.
  return {std::uint64_t{info.totalram} * info.mem_unit, std::uint64_t{info.freeram + info.bufferram} * info.mem_unit};
}

std::optional<GroupMemory> group_memory(const fs::path& proc, const fs::path& groups) {
  std::optional<GroupMemory> best;
  std::ifstream in(proc / "self" / "cgroup");
  std::string line;
  while (std::getline(in, line)) {  // format: "number:controllers:path"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      each_group(groups, path, [&](const fs::path& g) {
        tighten(best, number_in(g / "memory.max"), number_in(g / "memory.current"),
                keyed_number(g / "memory.stat", "inactive_file"));
      });
    } else if (controllers.find(",memory,") != std::string::npos) {
      each_group(groups / "memory", path, [&](const fs::path& g) {
        tighten(best, number_in(g / "memory.limit_in_bytes"), number_in(g / "memory.usage_in_bytes"),
                keyed_number(g / "memory.stat", "total_inactive_file"));
      });
    }
  }
  return best;
}

bool can_allocate(std::uint64_t bytes) noexcept {
  // Mapped writable, so that all limits apply (address space, data size, overcommit).
  void* const there = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (there == MAP_FAILED) return false;
  ::munmap(there, bytes);
  return true;
}

bool resources_are_limited() noexcept {
  const auto below = [](auto resource, rlim_t enough) {
    rlimit limit{};
    return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < enough;
  };
  // Any limit on these resources can break a driver. For example, CUDA reserves addresses for all memory of the host
  // and the devices. Many systems have default limits for the other resources, which are only checked for very low
  // values.
  return below(RLIMIT_AS, RLIM_INFINITY) || below(RLIMIT_DATA, RLIM_INFINITY) || below(RLIMIT_FSIZE, RLIM_INFINITY) ||
         below(RLIMIT_CPU, RLIM_INFINITY) || below(RLIMIT_NPROC, 4096) || below(RLIMIT_NOFILE, 256) ||
         below(RLIMIT_STACK, rlim_t{1} << 20);
}

std::size_t thread_stack_bytes() {
  std::size_t bytes = 0;
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return bytes;
}

bool is_main_thread() noexcept { return ::syscall(SYS_gettid) == ::getpid(); }

std::vector<std::string> file_names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool file_exists(const char* path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Access read_write_access(const char* path) {
  const fs::path file = system_root() / fs::path(path).relative_path();
  if (!file_exists(file.c_str())) return Access::missing;
  return ::access(file.c_str(), R_OK | W_OK) == 0 ? Access::granted : Access::denied;
}

bool is_writable_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return fs::is_directory(folder, error) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

bool display_card_of(std::uint32_t vendor) {
  return std::ranges::any_of(display_cards(), [&](const DisplayCard& card) { return card.vendor == vendor; });
}

bool render_node_of(std::uint32_t vendor) {
  for (const DeviceFile& file : device_files())
    if (file.vendor.starts_with("0x") && std::stoul(file.vendor, nullptr, 16) == vendor) return true;
  return false;
}

}  // namespace tessera::os
