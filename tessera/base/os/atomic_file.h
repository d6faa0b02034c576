// SPDX-License-Identifier: Apache-2.0
// Reading and replacing files atomically, so that readers never see partial content. Operating system layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::os {

/// Why the content of a file must not be trusted: "it belongs to another user (uid 1000)", "it is not a regular file".
/// Returns nullopt for a regular file, or a link to one, that this user or root owns, and if the file does not exist.
std::optional<std::string> why_not_trusted(const std::filesystem::path& file);

/// Reads a trusted file; nullopt if it does not exist. Throws ArgumentError with the cause if it cannot be read, is not
/// trusted or exceeds `limit` bytes. Never blocks, even on a pipe.
std::optional<std::string> read_trusted_text(const std::filesystem::path& file, std::size_t limit);

/// Writes all bytes to a file descriptor, retrying partial writes. Returns 0 or errno.
int write_all(int number, std::string_view bytes);

/// Options for writing files.
struct WriteOptions {
  /// Also accepts targets that are not regular files, such as pipes and /dev/stdout, to which it appends, and files
  /// that cannot be replaced by renaming (a mount point, or another user's file in a shared folder). Those are written
  /// in place, and the old content is lost if writing fails midway. If the program's own output goes to the same file,
  /// flush it first and write nothing afterwards: that would overwrite it. False: only regular files that can be
  /// replaced.
  bool anything = true;
  bool makes_folders = true;  ///< creates missing parent folders; false: throws if one is missing
  bool flush_to_disk = true;  ///< calls fsync before renaming, so that the file survives a power failure
};

/// Replaces a file's content atomically: writes to a temporary file in the same folder, which `commit` renames. If an
/// exception is thrown before that, the old file is unchanged and the temporary file is deleted. Keeps the old file's
/// permissions; a symbolic link is kept and its target replaced. All functions throw ArgumentError with the system's
/// error message on failure.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& file, const WriteOptions& rules = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void commit();  ///< call once, after the last write

 private:
  void write_out(std::string_view bytes);
  void copy_in_place();
  [[noreturn]] void refuse(int error) const;

  std::filesystem::path file_;
  const WriteOptions rules_;
  std::string name_;  ///< name of the temporary file; empty: written in place
  int number_ = -1;
  bool cut_ = false;  ///< in place: truncate the old content before the first write
  std::string buffer_;
  const std::uint32_t generation_;  ///< a forked child must not delete its parent's file
};

/// Replaces a regular file's content by `text`; see AtomicFile.
void replace_text(const std::filesystem::path& file, std::string_view text);
/// Same for any writable target.
void write_text(const std::filesystem::path& file, std::string_view text, const WriteOptions& rules = {});
/// Throws ArgumentError if `file` could not be written with these options. Does not change the file.
void require_writable(const std::filesystem::path& file, const WriteOptions& rules = {});

/// Appends whole records, such as lines. If a record cannot be written completely, it is removed again and
/// ArgumentError is thrown.
class AppendFile {
 public:
  /// Replaces the file's content by `first`; see `write_text`.
  explicit AppendFile(const std::filesystem::path& file, std::string_view first = {});
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  void append(std::string_view piece);

 private:
  std::filesystem::path file_;
  int number_ = -1;
};

}  // namespace tessera::os
