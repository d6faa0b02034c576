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
  fail<ArgumentError>({.asked = asked,
                       .with = {{"file", file.string()}},
                       .wrong = std::strerror(error),
                       .todo = "Check that the path exists and may be used by this user"});
}

/// Where a path leads through symbolic links, also if the file is not there yet.
fs::path target(fs::path file) {
  std::error_code error;
  for (int links = 0; links < 40 && fs::is_symlink(fs::symlink_status(file, error)); ++links)
    file = file.parent_path() / fs::read_symlink(file, error);
  const fs::path whole = fs::weakly_canonical(file, error);
  return error ? file : whole;
}

}  // namespace

bool replaceable(const fs::path& asked) {
  const fs::path file = target(asked);
  if (::access(file.c_str(), F_OK) != 0) return true;
  return ::access(file.c_str(), W_OK) == 0 && ::access(file.parent_path().c_str(), W_OK) == 0;
}

std::optional<std::string> read_text(const fs::path& file) {
  const File f{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  if (f.number < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    refuse("read a file", file, errno);
  }
  std::string text;
  char part[4096];
  while (true) {
    const ssize_t n = ::read(f.number, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse("read a file", file, errno);
    if (n == 0) return text;
    text.append(part, static_cast<std::size_t>(n));
  }
}

void replace_text(const fs::path& asked, std::string_view text) {
  std::error_code error;
  const fs::path file = target(asked);
  fs::create_directories(file.parent_path(), error);
  static std::atomic<unsigned> count = 0;
  const std::string name = file.parent_path() / fmt::format(".{}.{}", ::getpid(), count.fetch_add(1));
  const int number = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (number < 0) refuse("write a file", file, errno);
  int failed = 0;
  {
    const File f{number};
    struct stat before {};
    if (::stat(file.c_str(), &before) == 0 && ::fchmod(number, before.st_mode & 07777) != 0) failed = errno;
    for (std::size_t at = 0; failed == 0 && at < text.size();) {
      const ssize_t n = ::write(number, text.data() + at, text.size() - at);
      if (n >= 0)
        at += static_cast<std::size_t>(n);
      else if (errno != EINTR)
        failed = errno;
    }
    if (failed == 0 && ::fsync(number) != 0) failed = errno;
  }
  if (failed == 0 && ::rename(name.c_str(), file.c_str()) != 0) failed = errno;
  if (failed == 0) return;
  ::unlink(name.c_str());
  refuse("write a file", file, failed);
}

}  // namespace tessera::os
