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

/// Returns why the content of a file must not be trusted: "it belongs to another user (uid 1000)", "it is not a regular
/// file". Returns std::nullopt if the file does not exist, if it is a regular file that this user or root owns, or if
/// it is a link to such a file.
std::optional<std::string> why_not_trusted(const std::filesystem::path& file);

/// Reads a trusted file. Returns std::nullopt if it does not exist. Throws ArgumentError with the cause if it cannot be
/// read, is not trusted or is larger than `limit` bytes. Never blocks, even if the file is a pipe.
std::optional<std::string> read_trusted_text(const std::filesystem::path& file, std::size_t limit);

/// Writes all bytes to a file descriptor, retrying partial writes. Returns 0 or errno.
int write_all(int number, std::string_view bytes);

/// Options for writing files.
struct WriteOptions {
  /// Also accepts files that cannot be replaced: pipes, /dev/stdout, mount points, and another user's file in a shared
  /// folder. They are written in place, so the old content is lost if writing fails midway. Data is appended to files
  /// that are not regular. If the program's output goes to the same file, flush it first and write nothing afterwards,
  /// because that would overwrite the new content. If false, only regular files that can be replaced are accepted.
  bool anything = true;
  bool makes_folders = true;  ///< creates missing parent folders; if false, throws if one is missing
  bool flush_to_disk = true;  ///< calls fsync before renaming, so that the file survives a power failure
};

/// Replaces the content of a file atomically. The new content is written to a temporary file in the same folder, and
/// `commit` renames this file. If an exception is thrown before `commit`, the old file is unchanged and the temporary
/// file is deleted. The old file's permissions are kept. If the file is a symbolic link, its target is replaced. On
/// failure, all functions throw ArgumentError with the system's error message.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& file, const WriteOptions& rules = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void commit();  ///< must be called once, after the last write

 private:
  void write_out(std::string_view bytes);
  void copy_in_place();
  [[noreturn]] void refuse(int error) const;

  std::filesystem::path file_;
  const WriteOptions rules_;
  std::string name_;  ///< name of the temporary file; empty if the file is written in place
  int number_ = -1;
  bool cut_ = false;  ///< only when writing in place: truncate the old content before the first write
  std::string buffer_;
  const std::uint32_t generation_;  ///< detects a forked child, which must not delete its parent's file
};

/// Replaces the content of a regular file by `text`, using AtomicFile.
void replace_text(const std::filesystem::path& file, std::string_view text);
/// Like replace_text, but accepts any writable target.
void write_text(const std::filesystem::path& file, std::string_view text, const WriteOptions& rules = {});
/// Throws ArgumentError if `file` cannot be written with these options. Does not change the file.
void require_writable(const std::filesystem::path& file, const WriteOptions& rules = {});

/// Appends whole records, such as lines. If a record cannot be written completely, its written part is removed again
/// and ArgumentError is thrown.
class AppendFile {
 public:
  /// Replaces the content of the file by `first`, like `write_text`.
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
