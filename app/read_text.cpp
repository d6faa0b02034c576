// SPDX-License-Identifier: Apache-2.0
#include "read_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/unicode.h"

namespace tessera::app {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& why) {
  fail<ArgumentError>({.with = {{"file", path}}, .wrong = fmt::format("{} cannot be read: {}", what, why)});
}

std::string read_all(int file, const std::string& path, const std::string& what) {
  std::string text;
  char part[16384];
  while (const ssize_t n = ::read(file, part, sizeof part)) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(path, what, std::strerror(errno));
    text.append(part, static_cast<std::size_t>(n));
    if (text.size() > longest_text) refuse(path, what, "it is longer than " + config::format_bytes(longest_text));
  }
  return text;
}

struct File {
  int number = -1;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

std::string read_text(const std::string& path, const std::string& what, bool pipes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) refuse(path, what, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse(path, what, "it is a directory");
  if (!S_ISREG(status.st_mode) && !(pipes && S_ISFIFO(status.st_mode)))
    refuse(path, what, pipes ? "it is neither a regular file nor a pipe" : "it is not a regular file");
  // Open regular files with O_NONBLOCK, because the path may have been replaced by a pipe, which would block.
  const int wait = S_ISFIFO(status.st_mode) ? 0 : O_NONBLOCK;
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | wait)};
  if (file.number < 0) refuse(path, what, std::strerror(errno));
  return read_all(file.number, path, what);
}

void warn_unless_utf8(std::string_view text, const std::string& what) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text.substr(at));
    if (unit.kind != Utf8Unit::Kind::character) {
      logging::warn(
          fmt::format("{} is not UTF-8: byte {} is 0x{:02x}. The bytes are read as they are; iconv converts "
                      "text to UTF-8",
                      what, at, static_cast<unsigned char>(text[at])));
      return;
    }
    at += unit.size;
  }
}

std::string read_standard_input(const std::string& what) { return read_all(STDIN_FILENO, "-", what); }

}  // namespace tessera::app
