// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/private_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/system.h"

namespace tessera::os {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view digits = "0123456789abcdef";
constexpr std::string_view hidden = ".tessera-", temporary_after = ".tmp", lock_after = ".lock";
constexpr std::int64_t stale_seconds = 3600;

struct File {
  int number = -1;
  explicit File(int n) : number(n) {}
  File(File&& other) noexcept : number(std::exchange(other.number, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~File() {
    if (number >= 0) ::close(number);
  }
  explicit operator bool() const { return number >= 0; }
};

void require_name(std::string_view name) {
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
  if (!plain || name.empty() || name.front() == '.' || name.size() > 200)
    fail<ArgumentError>({.operation = "private store",
                         .with = {{"entry", std::string(name)}},
                         .wrong = "the entry's name is invalid",
                         .remedy = "Use at most 200 letters, digits, '.', '_' and '-', and do not start with '.'"});
}

bool ours(const struct stat& status) { return status.st_uid == ::geteuid(); }
bool others_may_write(const struct stat& status) { return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

/// Returns whether `name` is a regular file of this user and not a link. Fills `status`.
bool is_entry(int folder, const std::string& name, struct stat& status) {
  return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) && ours(status);
}

/// Opens a regular file of this user. Checks it before opening, because opening a device or a pipe can have side
/// effects, and again afterwards, because it may have been replaced.
File open_entry(int folder, const std::string& name, int flags, struct stat& status) {
  if (!is_entry(folder, name, status)) return File(-1);
  File file(::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file && (::fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode) || !ours(status))) return File(-1);
  return file;
}

std::string system_words(int error) { return std::strerror(error); }

/// Creates the folder with permissions only for this user if it does not exist. Returns the error, if any.
std::error_code make_folder(const fs::path& path) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) return {};
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (!error && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) error.assign(errno, std::generic_category());
  return error;
}

enum class Missing : std::uint8_t { stays, is_made };
/// Opens the folder and checks its owner and permissions. On failure, returns -1 and sets `why`. The last component of
/// the path must not be a link.
File open_folder(const fs::path& path, Missing missing, std::string& why) {
  if (path.empty()) {
    why = "no folder is set";
    return File(-1);
  }
  if (missing == Missing::is_made)
    if (const std::error_code error = make_folder(path)) {
      why = fmt::format("{} cannot be created: {}", path.string(), error.message());
      return File(-1);
    }
  File folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!folder) {
    const int error = errno;
    const bool link = ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
    why = fmt::format("{} {}", path.string(),
                      link ? "is a symbolic link, which is not followed" : "cannot be used: " + system_words(error));
    if (!link) return folder;
  } else if (::fstat(folder.number, &status) != 0) {
    why = fmt::format("{} cannot be used: {}", path.string(), system_words(errno));
    return File(-1);
  } else if (!ours(status)) {
    why = fmt::format("{} belongs to another user (uid {})", path.string(), status.st_uid);
  } else if (others_may_write(status)) {
    why = fmt::format("other users can write to {} (mode {:03o}; fix with `chmod go-w`)", path.string(),
                      status.st_mode & 0777u);
  } else {
    return folder;
  }
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) logging::warn(fmt::format("the disk cache is not used: {}", why));
  return File(-1);
}

/// Creates a file with an unpredictable name.
File open_temporary(int folder, std::string& name) {
  for (int tries = 0; tries < 100; ++tries) {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) return File(-1);
    name = fmt::format("{}{:016x}{}", hidden, random, temporary_after);
    File file(::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file || errno != EEXIST) return file;
  }
  return File(-1);
}

bool has_form(std::string_view name, std::string_view before, std::string_view after, std::size_t count = 16) {
  return name.size() == before.size() + count + after.size() && name.starts_with(before) && name.ends_with(after) &&
         name.substr(before.size(), count).find_first_not_of(digits) == name.npos;
}

std::vector<std::string> names_in(const File& folder) {
  std::vector<std::string> names;
  const int copy = ::fcntl(folder.number, F_DUPFD_CLOEXEC, 0);
  DIR* const list = copy < 0 ? nullptr : ::fdopendir(copy);
  if (list == nullptr) {
    if (copy >= 0) ::close(copy);
    return names;
  }
  while (const dirent* one = ::readdir(list)) names.emplace_back(one->d_name);
  ::closedir(list);
  return names;
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

/// Returns whether the open file still has this name. This is false if a previous lock holder has deleted it.
bool still_named(int folder, const std::string& name, int file) {
  struct stat here {
  }, there{};
  return ::fstat(file, &here) == 0 && is_entry(folder, name, there) && same_file(here, there);
}

fs::path without_slash(fs::path path) { return path.has_filename() ? path : path.parent_path(); }

}  // namespace

// Removes a trailing slash, which would make open() follow a link.
PrivateStore::PrivateStore(fs::path folder) : folder_(without_slash(std::move(folder))) {}

std::optional<std::string> PrivateStore::why_not_written() const {
  std::string why;
  const File folder = open_folder(folder_, Missing::is_made, why);
  if (!folder) return why;
  if (::faccessat(folder.number, ".", W_OK | X_OK, AT_EACCESS) != 0)
    return fmt::format("{} cannot be written: {}", folder_.string(), system_words(errno));
  return std::nullopt;
}

std::optional<std::string> PrivateStore::read(std::string_view entry, std::size_t limit) const {
  require_name(entry);
  std::string why;
  const File folder = open_folder(folder_, Missing::stays, why);
  if (!folder) return std::nullopt;
  struct stat status {};
  const File file = open_entry(folder.number, std::string(entry), O_RDONLY, status);
  if (!file || others_may_write(status) || static_cast<std::uint64_t>(status.st_size) > limit) return std::nullopt;
  std::string bytes;
  bytes.resize(static_cast<std::size_t>(status.st_size));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::read(file.number, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    // Entries are replaced atomically, so a file that became shorter is not an entry of ours.
    if (n <= 0) return std::nullopt;
    at += static_cast<std::size_t>(n);
  }
  return bytes;
}

std::optional<std::string> PrivateStore::write(std::string_view entry, std::string_view bytes) const {
  require_name(entry);
  std::string why, temporary;
  const File folder = open_folder(folder_, Missing::is_made, why);
  if (!folder) return why;
  const std::string name(entry);
  const auto refused = [&](int error) {
    return fmt::format("{} cannot be written: {}", (folder_ / name).string(), system_words(error));
  };
  struct stat status {};
  if (::fstatat(folder.number, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!S_ISREG(status.st_mode) || !ours(status))
      return fmt::format("{} is not a file of this user and was not replaced", (folder_ / name).string());
  } else if (errno != ENOENT) {
    return refused(errno);
  }
  const File file = open_temporary(folder.number, temporary);
  if (!file) return refused(errno);
  int error = write_all(file.number, bytes);
  if (error == 0 && ::renameat(folder.number, temporary.c_str(), folder.number, name.c_str()) != 0) error = errno;
  if (error == 0) return std::nullopt;
  ::unlinkat(folder.number, temporary.c_str(), 0);
  return refused(error);
}

bool PrivateStore::remove(std::string_view entry) const {
  require_name(entry);
  std::string why;
  const File folder = open_folder(folder_, Missing::stays, why);
  struct stat status {};
  const std::string name(entry);
  return folder && is_entry(folder.number, name, status) && ::unlinkat(folder.number, name.c_str(), 0) == 0;
}

std::vector<PrivateStore::Entry> PrivateStore::list(std::string_view before, std::string_view after,
                                                    std::size_t count) const {
  std::vector<Entry> entries;
  std::string why;
  const File folder = open_folder(folder_, Missing::stays, why);
  if (!folder) return entries;
  struct stat status {};
  for (std::string& name : names_in(folder))
    if (has_form(name, before, after, count) && is_entry(folder.number, name, status))
      entries.push_back({std::move(name), std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
                         static_cast<std::uint64_t>(status.st_size)});
  std::ranges::sort(entries, {},
                    [](const Entry& e) { return std::pair<std::int64_t, std::string_view>(e.written, e.name); });
  return entries;
}

void PrivateStore::touch(std::string_view entry, std::chrono::seconds age) const {
  require_name(entry);
  std::string why;
  const File folder = open_folder(folder_, Missing::stays, why);
  struct stat status {};
  const std::string name(entry);
  if (!folder || !is_entry(folder.number, name, status)) return;
  if (status.st_mtim.tv_sec > std::time(nullptr) - age.count()) return;
  ::utimensat(folder.number, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void PrivateStore::remove_stale(std::string_view before, std::string_view after, std::size_t count) const {
  std::string why;
  const File folder = open_folder(folder_, Missing::stays, why);
  if (!folder) return;
  const std::string lock_before = fmt::format("{}{}", hidden, before),
                    locks_after = fmt::format("{}{}", after, lock_after);
  struct stat status {};
  for (const std::string& name : names_in(folder)) {
    const bool lock = has_form(name, lock_before, locks_after, count);
    if (!lock && !has_form(name, hidden, temporary_after)) continue;
    const File file = open_entry(folder.number, name, O_RDWR, status);
    if (!file || status.st_mtim.tv_sec > std::time(nullptr) - stale_seconds) continue;
    if (lock && ::flock(file.number, LOCK_EX | LOCK_NB) != 0) continue;
    if (still_named(folder.number, name, file.number)) ::unlinkat(folder.number, name.c_str(), 0);
  }
}

PrivateStore::Lock::Lock(int file, int folder, std::string name, bool waited)
    : file_(file), folder_(folder), name_(std::move(name)), waited_(waited), generation_(fork_generation()) {}
PrivateStore::Lock::Lock(Lock&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      folder_(std::exchange(other.folder_, -1)),
      name_(std::move(other.name_)),
      waited_(other.waited_),
      generation_(other.generation_) {}
PrivateStore::Lock::~Lock() {
  if (file_ < 0) return;
  // In a forked child, the lock still belongs to the parent, which shares the open file.
  if (generation_ == fork_generation()) {
    if (still_named(folder_, name_, file_)) ::unlinkat(folder_, name_.c_str(), 0);
    ::flock(file_, LOCK_UN);
  }
  ::close(file_);
  ::close(folder_);
}

std::optional<PrivateStore::Lock> PrivateStore::lock(std::string_view entry, std::chrono::milliseconds limit) const {
  require_name(entry);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + limit;
  std::string why;
  File folder = open_folder(folder_, Missing::is_made, why);
  if (!folder) return std::nullopt;
  const std::string name = fmt::format("{}{}{}", hidden, entry, lock_after);
  bool waited = false;
  for (std::chrono::milliseconds pause{2};; pause = std::min(pause * 2, std::chrono::milliseconds{50})) {
    struct stat status {};
    File file = open_entry(folder.number, name, O_RDWR, status);
    const bool made = !file;
    if (made)
      file = File(::openat(folder.number, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file && ::flock(file.number, LOCK_EX | LOCK_NB) == 0) {
      if (still_named(folder.number, name, file.number))
        return Lock(std::exchange(file.number, -1), std::exchange(folder.number, -1), name, waited);
      continue;  // the previous holder deleted the file: retry with the new one
    }
    bool busy = errno == EWOULDBLOCK || errno == EINTR;
    if (file && made && !busy) ::unlinkat(folder.number, name.c_str(), 0);       // this file system has no locks
    if (!file) busy = errno == EEXIST && is_entry(folder.number, name, status);  // another process created it first
    if (!busy || Clock::now() >= end) return std::nullopt;
    waited = true;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, end - Clock::now()));
  }
}

}  // namespace tessera::os
