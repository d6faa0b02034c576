// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// Closes on every way out; a mapping outlives the descriptor it was made from.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, int code) {
  const std::string reason = std::generic_category().message(code);
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      fail<ArgumentError>({.asked = "open file",
                           .with = {{"path", path.string()}},
                           .wrong = "there is no such file",
                           .todo = "Check the path"});
    case EACCES:
    case EPERM:
      fail<ArgumentError>({.asked = "open file",
                           .with = {{"path", path.string()}},
                           .wrong = "this user may not read the file",
                           .todo = "Change its permissions or run as a user who may"});
    case ENOMEM:
      fail<OutOfMemory>({.asked = "open file",
                         .with = {{"path", path.string()}},
                         .wrong = "the system has no address space left to map the file"});
    case EIO:
      fail<DeviceError>({.asked = "open file",
                         .with = {{"path", path.string()}},
                         .wrong = "the system could not read it: " + reason});
    default:
      fail<ArgumentError>(
          {.asked = "open file", .with = {{"path", path.string()}}, .wrong = "the system refused: " + reason});
  }
}

}  // namespace

FileMap::FileMap(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe by mistake must not wait for its writer; it has no effect on files.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) fail_with_errno(path, errno);
  struct stat status {};
  if (::fstat(file.value, &status) != 0) fail_with_errno(path, errno);
  if (!S_ISREG(status.st_mode)) {
    fail<ArgumentError>({.asked = "open file",
                         .with = {{"path", path.string()}},
                         .wrong = S_ISDIR(status.st_mode) ? "this is a directory" : "this is not a regular file",
                         .todo = "Name a file"});
  }
  if (status.st_size <= 0) {
    fail<FormatError>({.asked = "open file",
                       .with = {{"path", path.string()}},
                       .wrong = "the file is empty",
                       .todo = "Copy or make it anew"});
  }
  if (static_cast<std::uintmax_t>(status.st_size) > std::numeric_limits<std::size_t>::max())
    fail_with_errno(path, ENOMEM);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (address == MAP_FAILED) fail_with_errno(path, errno);
  data_ = static_cast<const std::byte*>(address);
  size_ = size;
}

FileMap::~FileMap() { unmap(); }

FileMap::FileMap(FileMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void FileMap::unmap() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tessera
