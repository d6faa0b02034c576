// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>

namespace tessera::os {
namespace {

/// Returns an empty string if the file cannot be read. Does not use streams, because it is called many times per
/// second.
std::string small_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = ::read(file, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<std::size_t>(n));
  ::close(file);
  return text;
}

std::string file_of_process(pid_t process, const char* name) { return "/proc/" + std::to_string(process) + "/" + name; }

std::vector<pid_t> all_processes() {
  std::vector<pid_t> all;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return all;
  while (const dirent* entry = ::readdir(folder))
    if (const long number = std::strtol(entry->d_name, nullptr, 10); number > 0)
      all.push_back(static_cast<pid_t>(number));
  ::closedir(folder);
  return all;
}

/// Returns field `word` (4 or above) of /proc/N/stat, numbered as in proc(5). Field 2 is a name in parentheses that may
/// contain any characters.
std::uint64_t number_of(pid_t process, int word) {
  const std::string text = small_file(file_of_process(process, "stat"));
  std::size_t at = text.rfind(')');
  for (int w = 2; w < word && at != text.npos; ++w) at = text.find(' ', at + 1);
  return at == text.npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}
pid_t parent_of(pid_t process) { return static_cast<pid_t>(number_of(process, 4)); }

}  // namespace

pid_t own_process() { return ::getpid(); }

std::vector<pid_t> descendants_of(pid_t process) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t each : all_processes()) children.emplace(parent_of(each), each);
  std::vector<pid_t> found = {process};
  std::unordered_set<pid_t> seen = {process};  // process ids can be reused during the scan
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [from, to] = children.equal_range(found[i]);
    for (auto child = from; child != to; ++child)
      if (seen.insert(child->second).second) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> processes_with(std::string_view variable) {
  std::vector<pid_t> found;
  const std::string entry = std::string(1, '\0') + std::string(variable) + std::string(1, '\0');
  for (const pid_t process : all_processes())
    if (process != ::getpid() &&
        (std::string(1, '\0') + small_file(file_of_process(process, "environ"))).find(entry) != entry.npos)
      found.push_back(process);
  return found;
}

std::uint64_t start_of(pid_t process) { return number_of(process, 22); }

ProcessWatch::ProcessWatch(pid_t process, std::uint64_t start) {
#ifdef SYS_pidfd_open
  descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  // Checked afterwards: the descriptor keeps its process even if the id is used again.
  if (descriptor_ >= 0 && start_of(process) != start) ::close(std::exchange(descriptor_, -1));
#else
  static_cast<void>(process), static_cast<void>(start);
#endif
}
ProcessWatch::~ProcessWatch() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
ProcessWatch& ProcessWatch::operator=(ProcessWatch&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
bool ProcessWatch::has_ended() const {
  pollfd entry{descriptor_, POLLIN, 0};
  return descriptor_ >= 0 && ::poll(&entry, 1, 0) > 0;
}

std::uint64_t resident_bytes(pid_t process) {
  const std::string text = small_file(file_of_process(process, "statm"));
  const std::size_t second = text.find(' ');
  if (second == text.npos) return 0;
  return std::strtoull(text.c_str() + second, nullptr, 10) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::vector<std::filesystem::path> ancestor_programs(int count) {
  std::vector<std::filesystem::path> programs;
  for (pid_t process = ::getppid(); process > 0 && count > 0; process = parent_of(process), --count) {
    std::error_code error;
    programs.push_back(std::filesystem::read_symlink(file_of_process(process, "exe"), error));
    if (!error) continue;
    programs.pop_back();
    break;
  }
  return programs;
}

}  // namespace tessera::os
