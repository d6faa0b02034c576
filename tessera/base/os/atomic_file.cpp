// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"

namespace tessera::os {
namespace {

namespace fs = std::filesystem;

struct File {
  int number = -1;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

constexpr const char* write_a_file = "write a file";

[[noreturn]] void refuse(const char* asked, const fs::path& file, int error) {
  const char* remedy = "Check that the path exists and that you have permission";
  if (error == ENOSPC || error == EDQUOT) remedy = "Free some space, or choose another location";
  if (error == EROFS) remedy = "Choose another location: the file system is read-only";
  fail<ArgumentError>(
      {.operation = asked, .with = {{"file", file.string()}}, .wrong = std::strerror(error), .remedy = remedy});
}
[[noreturn]] void refuse(const char* asked, const fs::path& file, const std::string& why) {
  fail<ArgumentError>({.operation = asked,
                       .with = {{"file", file.string()}},
                       .wrong = why,
                       .remedy = "Move it away, or replace it by a file that you own"});
}

std::optional<std::string> why_not_trusted(const struct stat& status) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return fmt::format("it belongs to another user (uid {})", status.st_uid);
  if (S_ISDIR(status.st_mode)) return "it is a folder";
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  return std::nullopt;
}

/// Resolves symbolic links, even if the target does not exist yet.
fs::path target(fs::path file) {
  std::error_code error;
  for (int links = 0; links < 40 && fs::is_symlink(fs::symlink_status(file, error)); ++links)
    file = file.parent_path() / fs::read_symlink(file, error);
  const fs::path whole = fs::weakly_canonical(file, error);
  return error ? file : whole;
}

/// True for pipes and terminals. Also true for /dev/stdout if it is redirected to a file, because other processes may
/// write to that file.
bool special(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return true;
  const std::string text = fs::absolute(path, error).lexically_normal().string();
  return text.starts_with("/dev/fd/") || text.starts_with("/dev/std") || text.starts_with("/proc/");
}

/// Creates a new file with a unique name in the same folder, and stores the name in `name`. On failure, returns -1 and
/// sets errno.
int open_beside(const fs::path& file, std::string& name) {
  static std::atomic<unsigned> count = 0;
  int number = -1;
  for (int tries = 0; number < 0 && tries < 1000; ++tries) {
    name = file.parent_path() / fmt::format(".{}.{}", ::getpid(), count.fetch_add(1));
    number = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (number < 0 && errno != EEXIST) break;  // EEXIST: an earlier process with the same process id left a file behind
  }
  if (number < 0) name.clear();
  return number;
}

constexpr std::size_t buffered = std::size_t{64} << 10;

}  // namespace

std::optional<std::string> why_not_trusted(const fs::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0) return std::nullopt;
  if (S_ISLNK(status.st_mode)) {
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
      return fmt::format("it is a link that belongs to another user (uid {})", status.st_uid);
    if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  }
  return why_not_trusted(status);
}

std::optional<std::string> read_trusted_text(const fs::path& path, std::size_t limit) {
  constexpr const char* asked = "read a file";
  // Check before opening, because opening a pipe or a device can have side effects. Check again afterwards, because the
  // file may have been replaced.
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

int write_all(int number, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(number, bytes.data(), bytes.size());
    if (n > 0)
      bytes.remove_prefix(static_cast<std::size_t>(n));
    else if (n == 0 || errno != EINTR)
      return n == 0 ? ENOSPC : errno;
  }
  return 0;
}

AtomicFile::AtomicFile(const fs::path& asked, const WriteOptions& rules)
    : file_(asked), rules_(rules), generation_(fork_generation()) {
  if (rules.anything && special(asked)) {
    // Without O_CREAT, because Linux rejects it for another user's file in a shared folder (fs.protected_regular).
    number_ = ::open(asked.c_str(), O_WRONLY | O_CLOEXEC | O_APPEND);
    if (number_ < 0) refuse(errno);
    return;
  }
  file_ = target(asked);
  struct stat before {};
  const bool there = ::stat(file_.c_str(), &before) == 0;
  if (there && !S_ISREG(before.st_mode)) os::refuse(write_a_file, file_, "it is not a regular file");
  if (there && rules.anything && ::access(file_.c_str(), W_OK) != 0) refuse(errno);
  std::error_code error;
  if (const fs::path folder = file_.parent_path(); !folder.empty() && !fs::is_directory(folder, error)) {
    if (!rules.makes_folders && !fs::exists(folder, error) && error.value() != EACCES)
      fail<ArgumentError>({.operation = write_a_file,
                           .with = {{"file", file_.string()}},
                           .wrong = fmt::format("the folder {} does not exist", folder.string()),
                           .remedy = "Create the folder, or choose another location"});
    if (rules.makes_folders) fs::create_directories(folder, error);
    if (rules.makes_folders && error) refuse(error.value());
  }
  number_ = open_beside(file_, name_);
  int failed = number_ < 0 ? errno : 0;
  if (there && rules.anything && (failed == EACCES || failed == EPERM || failed == EROFS)) {
    number_ = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
    failed = number_ < 0 ? errno : 0;
    cut_ = true;
  }
  if (failed == 0 && there && !name_.empty() && ::fchmod(number_, before.st_mode & 07777) != 0) failed = errno;
  if (failed == 0) return;
  if (number_ >= 0) ::close(number_);
  if (!name_.empty()) ::unlink(name_.c_str());
  refuse(failed);
}

AtomicFile::~AtomicFile() {
  if (number_ >= 0) ::close(number_);
  if (!name_.empty() && generation_ == fork_generation()) ::unlink(name_.c_str());
}

void AtomicFile::refuse(int error) const { os::refuse(write_a_file, file_, error); }

void AtomicFile::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() < buffered) {
    buffer_ += bytes;
    return;
  }
  write_out(std::exchange(buffer_, {}));
  write_out(bytes);
}

void AtomicFile::write_out(std::string_view bytes) {
  if (std::exchange(cut_, false) && ::ftruncate(number_, 0) != 0) refuse(errno);
  if (const int error = write_all(number_, bytes)) refuse(error);
}

void AtomicFile::commit() {
  write_out(std::exchange(buffer_, {}));
  if (!name_.empty()) {
    while (rules_.flush_to_disk && ::fsync(number_) != 0)
      if (errno != EINTR) refuse(errno);
    if (::rename(name_.c_str(), file_.c_str()) == 0) {
      name_.clear();
    } else if (rules_.anything && (errno == EACCES || errno == EPERM || errno == EBUSY) &&
               ::access(file_.c_str(), W_OK) == 0) {
      copy_in_place();
    } else {
      refuse(errno);
    }
  }
  if (::close(std::exchange(number_, -1)) != 0 && errno != EINTR) refuse(errno);
}

/// Copies the new content into the old file. Used for files that cannot be replaced.
void AtomicFile::copy_in_place() {
  const File old{::open(file_.c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC)};
  if (old.number < 0 || ::lseek(number_, 0, SEEK_SET) != 0) refuse(errno);
  std::string part(buffered, '\0');
  while (const ssize_t n = ::read(number_, part.data(), part.size())) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(errno);
    if (const int error = write_all(old.number, std::string_view(part).substr(0, static_cast<std::size_t>(n))))
      refuse(error);
  }
}

void replace_text(const fs::path& file, std::string_view text) { write_text(file, text, {.anything = false}); }

void write_text(const fs::path& file, std::string_view text, const WriteOptions& rules) {
  AtomicFile replaced(file, rules);
  replaced.write(text);
  replaced.commit();
}

AppendFile::AppendFile(const fs::path& file, std::string_view first) : file_(file) {
  const bool shared = special(file);
  if (!shared) write_text(file, first, {.flush_to_disk = false});
  number_ = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_APPEND);
  if (number_ < 0) refuse(write_a_file, file_, errno);
  if (shared) append(first);
}

AppendFile::~AppendFile() {
  if (number_ >= 0) ::close(number_);
}

void AppendFile::append(std::string_view piece) {
  struct stat before {};
  const bool regular = ::fstat(number_, &before) == 0 && S_ISREG(before.st_mode);
  const int error = write_all(number_, piece);
  if (error == 0) return;
  if (regular && ::ftruncate(number_, before.st_size) != 0) errno = 0;  // the partial record then stays in the file
  refuse(write_a_file, file_, error);
}

void require_writable(const fs::path& file, const WriteOptions& rules) {
  if (!special(file))
    static_cast<void>(AtomicFile(file, rules));
  else if (std::error_code error; fs::is_directory(file, error))
    refuse(write_a_file, file, EISDIR);
  else if (::access(file.c_str(), W_OK) != 0)
    refuse(write_a_file, file, errno);
}

}  // namespace tessera::os
