// SPDX-License-Identifier: Apache-2.0
// A folder for small cache files ("entries") that processes of one user share. Other users may have files in it or
// write to it. Therefore, only regular files of this user with exactly an entry's name are read, replaced or deleted,
// and links are never followed. Operating system layer.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::os {

/// Stores only a path. The disk is not accessed before a member function is called. Any number of threads and processes
/// may use the same folder. The folder is not used if another user owns it, if other users can write to it, or if it is
/// a symbolic link; this is logged once. Disk errors never cause exceptions. Throws ArgumentError if an entry's name
/// contains characters other than letters, digits, '.', '_' and '-', or starts with '.'.
class PrivateStore {
 public:
  /// Creates a store for a folder. If the path is empty, the store has no entries and is not writable.
  explicit PrivateStore(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Returns std::nullopt if entries can be written, else the reason, such as "/x cannot be created: Permission
  /// denied". Creates the folder, with permissions only for this user, and its missing parents.
  std::optional<std::string> why_not_written() const;

  static constexpr std::size_t most_bytes = std::size_t{64} << 20;
  /// Reads an entry. Returns std::nullopt if it does not exist or is not trusted, that is, if it is not a regular file,
  /// belongs to another user, is writable by others, or is larger than `limit` bytes.
  std::optional<std::string> read(std::string_view name, std::size_t limit = most_bytes) const;
  /// Replaces the content of an entry atomically. Only this user can read it. Returns std::nullopt on success, else the
  /// reason. Does not replace anything that is not a regular file of this user.
  [[nodiscard]] std::optional<std::string> write(std::string_view name, std::string_view bytes) const;
  /// Deletes the entry. Returns whether it existed.
  bool remove(std::string_view name) const;

  struct Entry {
    std::string name;
    std::int64_t written = 0;  ///< nanoseconds since 1970
    std::uint64_t bytes = 0;
  };
  /// Returns the entries named `before` + `digits` lowercase hexadecimal digits + `after`, oldest first.
  std::vector<Entry> list(std::string_view before, std::string_view after, std::size_t digits = 16) const;
  /// Sets the modification time of an entry to now if it is older than `age`, so that used entries stay recent.
  void touch(std::string_view name, std::chrono::seconds age) const;
  /// Deletes files that killed processes left behind, if they are older than an hour: temporary files, and unheld lock
  /// files of entries with such names.
  void remove_stale(std::string_view before, std::string_view after, std::size_t digits = 16) const;

  /// A lock on an entry. It is released by the destructor or when the process ends, even if the process is killed.
  class Lock {
   public:
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();
    bool waited() const { return waited_; }  ///< true if another thread or process had the lock

   private:
    friend class PrivateStore;
    Lock(int file, int folder, std::string name, bool waited);
    int file_, folder_;
    std::string name_;
    bool waited_;
    std::uint32_t generation_;  ///< fork generation; a forked child's copy does not own the lock
  };
  /// Locks an entry against all threads and processes. The entry need not exist. Waits for at most `limit`. Returns
  /// std::nullopt on timeout or if the store is not writable; callers then continue without the lock.
  std::optional<Lock> lock(std::string_view name, std::chrono::milliseconds limit) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace tessera::os
