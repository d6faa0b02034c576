// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::os {
namespace {

namespace fs = std::filesystem;

struct File {
  int number = -1;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

[[noreturn]] void refuse(const char* asked, const fs::path& file, int error) {
  const char* todo = "Check that the path exists and may be used by this user";
  if (error == ENOSPC || error == EDQUOT) todo = "Make room there, or name another place";
  if (error == EROFS) todo = "Name another place: nothing can be written on this file system";
  fail<ArgumentError>({.asked = asked, .with = {{"file", file.string()}}, .wrong = std::strerror(error), .todo = todo});
}
[[noreturn]] void refuse(const char* asked, const fs::path& file, const std::string& why) {
  fail<ArgumentError>({.asked = asked,
                       .with = {{"file", file.string()}},
                       .wrong = why,
                       .todo = "Move it away, or put a file of this user in its place"});
}

std::optional<std::string> why_not_trusted(const struct stat& status) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return fmt::format("it belongs to another user (number {})", status.st_uid);
  if (S_ISDIR(status.st_mode)) return "it is a folder";
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  return std::nullopt;
}

/// Where a path leads through symbolic links, also if the file is not there yet.
fs::path target(fs::path file) {
  std::error_code error;
  for (int links = 0; links < 40 && fs::is_symlink(fs::symlink_status(file, error)); ++links)
    file = file.parent_path() / fs::read_symlink(file, error);
  const fs::path whole = fs::weakly_canonical(file, error);
  return error ? file : whole;
}

/// A pipe, a terminal, /dev/stdout also where it leads to a file: others may be writing to it too.
bool special(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return true;
  const std::string text = fs::absolute(path, error).lexically_normal().string();
  return text.starts_with("/dev/fd/") || text.starts_with("/dev/std") || text.starts_with("/proc/");
}

/// 0, or the system's number for what went wrong.
int write_all(int number, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(number, text.data(), text.size());
    if (n >= 0)
      text.remove_prefix(static_cast<std::size_t>(n));
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

/// Opens a new file of a name that nobody has, which it tells; -1 with errno.
int open_beside(const fs::path& file, std::string& name) {
  static std::atomic<unsigned> count = 0;
  int number = -1;
  for (int tries = 0; number < 0 && tries < 1000; ++tries) {
    name = file.parent_path() / fmt::format(".{}.{}", ::getpid(), count.fetch_add(1));
    number = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (number < 0 && errno != EEXIST) break;  // one that is there may be left of a process with our number
  }
  return number;
}

struct Failure {
  int error = 0;         ///< 0: none
  bool of_name = false;  ///< not of writing: no file can be made beside the old one, or take its place
};
Failure replace(const fs::path& file, std::string_view text) {
  std::error_code error;
  if (const fs::path folder = file.parent_path(); !folder.empty() && !fs::is_directory(folder, error)) {
    fs::create_directories(folder, error);
    if (error) return {error.value(), false};
  }
  std::string name;
  const int number = open_beside(file, name);
  if (number < 0) return {errno, errno == EACCES || errno == EPERM || errno == EROFS};
  Failure failed;
  {
    const File f{number};
    struct stat before {};
    if (::stat(file.c_str(), &before) == 0 && ::fchmod(number, before.st_mode & 07777) != 0) failed.error = errno;
    if (failed.error == 0) failed.error = write_all(number, text);
    if (failed.error == 0 && ::fsync(number) != 0) failed.error = errno;
  }
  if (failed.error == 0 && ::rename(name.c_str(), file.c_str()) != 0)
    failed = {errno, errno == EACCES || errno == EPERM || errno == EBUSY};
  if (failed.error != 0) ::unlink(name.c_str());
  return failed;
}

}  // namespace

std::optional<std::string> why_not_trusted(const fs::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0) return std::nullopt;
  if (S_ISLNK(status.st_mode)) {
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
      return fmt::format("it is a link that belongs to another user (number {})", status.st_uid);
    if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  }
  return why_not_trusted(status);
}

std::optional<std::string> read_trusted_text(const fs::path& path, std::size_t limit) {
  constexpr const char* asked = "read a file";
  // Looked at before it is opened, since opening can be an act (of a pipe, a device), and after: it may be another now.
  if (const auto why = why_not_trusted(path)) refuse(asked, path, *why);
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.number < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    refuse(asked, path, errno);
  }
  struct stat status {};
  if (::fstat(file.number, &status) != 0) refuse(asked, path, errno);
  if (const auto why = why_not_trusted(status)) refuse(asked, path, *why);
  std::string text;
  char part[4096];
  while (true) {
    const ssize_t n = ::read(file.number, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(asked, path, errno);
    if (n == 0) return text;
    text.append(part, static_cast<std::size_t>(n));
    if (text.size() > limit) refuse(asked, path, fmt::format("it is larger than {} bytes", limit));
  }
}

void replace_text(const fs::path& asked, std::string_view text) {
  const fs::path file = target(asked);
  std::error_code error;
  if (const fs::file_status status = fs::status(file, error); fs::exists(status) && !fs::is_regular_file(status))
    refuse("write a file", file, "what is there is not a regular file");
  if (const Failure failed = replace(file, text); failed.error != 0) refuse("write a file", file, failed.error);
}

void write_text(const fs::path& asked, std::string_view text) {
  const bool shared = special(asked);
  if (!shared) {
    const fs::path file = target(asked);
    const bool there = ::access(file.c_str(), F_OK) == 0;
    if (there && ::access(file.c_str(), W_OK) != 0) refuse("write a file", file, errno);
    const Failure failed = replace(file, text);
    if (failed.error == 0) return;
    if (!there || !failed.of_name) refuse("write a file", file, failed.error);
  }
  // It is there; and O_CREAT on another user's file in a shared folder is refused by Linux (fs.protected_regular).
  const int number = ::open(asked.c_str(), O_WRONLY | O_CLOEXEC | (shared ? O_APPEND : O_TRUNC));
  if (number < 0) refuse("write a file", asked, errno);
  int failed = write_all(number, text);
  if (::close(number) != 0 && failed == 0) failed = errno;
  if (failed != 0) refuse("write a file", asked, failed);
}

}  // namespace tessera::os
