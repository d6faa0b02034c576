// SPDX-License-Identifier: Apache-2.0
// A folder in which Tessera keeps what later processes of the same user may use: small files ("entries") that can be
// made again at any time. Other people's files may lie in it, and other people may write to it: so nothing is read,
// replaced or deleted there but regular files of this user with an entry's exact name, and links are never followed.
// Part of the operating system's seam.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::os {

/// A store is a path: nothing is open, and nothing on disk is touched, until something is asked of it. Any number of
/// threads and processes may use the same folder at once. A folder that is not this user's own, that others may write
/// to, or that is a symbolic link is as good as none; the log warns of it once. Nothing here throws for what is on the
/// disk. Names of entries have letters, digits, '.', '_' and '-', and do not begin with '.' (ArgumentError).
class PrivateStore {
 public:
  /// Empty: no place, and so no entries.
  explicit PrivateStore(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Nothing if entries can be written; else why not, such as "/x cannot be made: Permission denied". Makes the folder,
  /// with permissions for this user alone, and those above it where they are missing.
  std::optional<std::string> why_not_written() const;

  static constexpr std::size_t most_bytes = std::size_t{64} << 20;
  /// The entry's bytes; nothing if there is none, or none that can be believed: it is no regular file, another user's,
  /// one that others may write to, or larger than `limit` bytes.
  std::optional<std::string> read(std::string_view name, std::size_t limit = most_bytes) const;
  /// Puts `bytes` in the entry's place in one step (a reader sees the old ones or the new ones), readable by this user
  /// alone. Nothing if that was done; else why not. What has the name and is no regular file of this user stays.
  [[nodiscard]] std::optional<std::string> write(std::string_view name, std::string_view bytes) const;
  /// Deletes the entry if it is one; true if it did.
  bool remove(std::string_view name) const;

  struct Entry {
    std::string name;
    std::int64_t written = 0;  ///< nanoseconds since 1970
    std::uint64_t bytes = 0;
  };
  /// The entries whose names are `before`, so many hexadecimal digits in small letters, `after`; the oldest first.
  std::vector<Entry> list(std::string_view before, std::string_view after, std::size_t digits = 16) const;
  /// If the entry was written longer ago than that, it counts as written now: so those that are used stay young.
  void touch(std::string_view name, std::chrono::seconds age) const;
  /// Deletes what processes that were killed have left here, if it is older than an hour: files half written, and locks
  /// that nobody holds of entries with such names.
  void remove_stale(std::string_view before, std::string_view after) const;

  /// Held until it is destroyed, or its process has ended in whatever way.
  class Lock {
   public:
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();
    bool waited() const { return waited_; }  ///< somebody else had it when it was asked for

   private:
    friend class PrivateStore;
    Lock(int file, int folder, std::string name, bool waited);
    int file_, folder_;
    std::string name_;
    bool waited_;
    std::uint32_t generation_;  ///< of forks: a child's copy is not the holder
  };
  /// The lock of an entry, which need not exist: of all threads and processes one has it, and others wait, `limit` at
  /// most. Nothing if the time ran out or the store cannot be written; go on without then.
  std::optional<Lock> lock(std::string_view name, std::chrono::milliseconds limit) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace tessera::os
