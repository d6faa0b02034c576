// SPDX-License-Identifier: Apache-2.0
// A folder for small cache files ("entries") shared between processes of one user. Other users may have files in it or
// write to it, so only regular files of this user with an entry's exact name are read, replaced or deleted, and links
// are never followed. Operating system layer.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::os {

/// Stores only a path: the disk is not accessed before a member function is called. Any number of threads and processes
/// may use the same folder. A folder that another user owns, that other users can write to, or that is a symbolic link
/// is not used; this is logged once. The state of the disk never causes an exception. Throws ArgumentError if an
/// entry's name has characters other than letters, digits, '.', '_' and '-', or starts with '.'.
class PrivateStore {
 public:
  /// Empty path: the store has no entries and cannot be written.
  explicit PrivateStore(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Returns nullopt if entries can be written, else the reason, such as "/x cannot be created: Permission denied".
  /// Creates the folder, with permissions for this user only, and its missing parents.
  std::optional<std::string> why_not_written() const;

  static constexpr std::size_t most_bytes = std::size_t{64} << 20;
  /// Reads an entry. Returns nullopt if it does not exist or is not trusted: not a regular file, owned by another user,
  /// writable by others, or larger than `limit` bytes.
  std::optional<std::string> read(std::string_view name, std::size_t limit = most_bytes) const;
  /// Atomically replaces the entry's content, readable by this user only. Returns nullopt on success, else the reason.
  /// Does not replace anything that is not a regular file of this user.
  [[nodiscard]] std::optional<std::string> write(std::string_view name, std::string_view bytes) const;
  /// Deletes the entry. Returns whether it existed.
  bool remove(std::string_view name) const;

  struct Entry {
    std::string name;
    std::int64_t written = 0;  ///< nanoseconds since 1970
    std::uint64_t bytes = 0;
  };
  /// The entries named `before` + `digits` lowercase hexadecimal digits + `after`, oldest first.
  std::vector<Entry> list(std::string_view before, std::string_view after, std::size_t digits = 16) const;
  /// Sets the entry's modification time to now if it is older than `age`, so that used entries stay recent.
  void touch(std::string_view name, std::chrono::seconds age) const;
  /// Deletes what killed processes left behind, if older than an hour: temporary files, and unheld locks of entries
  /// with such names.
  void remove_stale(std::string_view before, std::string_view after) const;

  /// Released when destroyed or when the process ends, even if it is killed.
  class Lock {
   public:
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();
    bool waited() const { return waited_; }  ///< another thread or process had the lock

   private:
    friend class PrivateStore;
    Lock(int file, int folder, std::string name, bool waited);
    int file_, folder_;
    std::string name_;
    bool waited_;
    std::uint32_t generation_;  ///< of forks: a child's copy does not own the lock
  };
  /// Locks an entry, which need not exist, against all threads and processes; waits for at most `limit`. Returns
  /// nullopt on timeout or if the store cannot be written; callers then continue without the lock.
  std::optional<Lock> lock(std::string_view name, std::chrono::milliseconds limit) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace tessera::os
