// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {
namespace {

[[noreturn]] void fail_with_errno(const std::string& path, int code) {
  const std::string reason = std::generic_category().message(code);
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      fail<ArgumentError>({.operation = "open file",
                           .with = {{"path", path}},
                           .wrong = "the file does not exist",
                           .remedy = "Check the path"});
    case EACCES:
    case EPERM:
      fail<ArgumentError>({.operation = "open file",
                           .with = {{"path", path}},
                           .wrong = "permission denied",
                           .remedy = "Change its permissions or run as a user with read access"});
    case EIO:
      fail<DeviceError>(
          {.operation = "open file", .with = {{"path", path}}, .wrong = "the system failed to read it: " + reason});
    default:
      fail<ArgumentError>(
          {.operation = "open file", .with = {{"path", path}}, .wrong = "the system reported an error: " + reason});
  }
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK prevents waiting for a writer if the path is a pipe. It has no effect on regular files.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail_with_errno(path_, errno);
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail_with_errno(path_, errno);
    if (!S_ISREG(status.st_mode)) {
      fail<ArgumentError>({.operation = "open file",
                           .with = {{"path", path_}},
                           .wrong = S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file",
                           .remedy = "Pass the path of a file"});
    }
    if (status.st_size <= 0) {
      fail<FormatError>({.operation = "open file",
                         .with = {{"path", path_}},
                         .wrong = "the file is empty",
                         .remedy = "Download or create it again"});
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  } catch (...) {
    close();
    throw;
  }
}

InputFile::~InputFile() { close(); }

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno(path_, errno);
    if (n == 0) {
      fail<FormatError>({.operation = "read file",
                         .with = {{"path", path_},
                                  {"offset", std::to_string(offset)},
                                  {"bytes when it was opened", std::to_string(size_)}},
                         .wrong = "unexpected end of file: the file was truncated while it was being read",
                         .remedy = "Download or create it again, and do not modify files that are in use"});
    }
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

std::shared_ptr<void> InputFile::map() const {
  void* const data = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
  if (data == MAP_FAILED)
    fail<DeviceError>({.operation = "map file",
                       .with = {{"path", path_}, {"bytes", std::to_string(size_)}},
                       .wrong = "the system reported an error: " + std::generic_category().message(errno)});
  return {data, [size = static_cast<std::size_t>(size_)](void* p) { ::munmap(p, size); }};
}

void InputFile::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace tessera
