// SPDX-License-Identifier: Apache-2.0
// Files that are read whole and replaced whole, so that no reader ever sees half of one.
// Part of the operating system's seam.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::os {

/// Why this user should not go by what a file says: "it belongs to another user (number 1000)", "it is not a regular
/// file". Nothing for a regular file, or a link to one, that belongs to this user or to root, and for one that is not
/// there.
std::optional<std::string> why_not_trusted(const std::filesystem::path& file);

/// The text of a trusted file; nothing if there is no such file. ArgumentError, with the system's words or the above,
/// if it cannot be read, is not trusted or is larger than `limit` bytes. Never waits, also if it is a pipe.
std::optional<std::string> read_trusted_text(const std::filesystem::path& file, std::size_t limit);

/// Writes all bytes to a descriptor, also in several pieces; 0, or the system's number for what went wrong.
int write_all(int number, std::string_view bytes);

/// What a file may be that is written, and how it is kept.
struct WriteOptions {
  /// Also what is no file, like a pipe or /dev/stdout, which is appended to, and a file beside which no other can be
  /// made, or that no other can replace (mounted by itself, or another user's in a shared folder): it is written in
  /// place, and its old content is lost if that fails midway. Where the program's own output goes to a file, flush it
  /// before, and write nothing to it later: that would go over it. False: regular files that can be replaced only.
  bool anything = true;
  bool makes_folders = true;  ///< those that are missing; else their lack is an error
  bool flush_to_disk = true;  ///< before it takes the old one's place, so that it survives a power failure
};

/// New content that takes a file's place in one step: it is written to another file of the same folder, which `commit`
/// renames. Before that, and if anything throws, the old file is as it was, and what was written is removed. Keeps the
/// permissions of the file that was there; a symbolic link stays one, its target is replaced.
/// All functions throw ArgumentError with the system's words if something cannot be written.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& file, const WriteOptions& rules = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void commit();  ///< once, after all is written

 private:
  void write_out(std::string_view bytes);
  void copy_in_place();
  [[noreturn]] void refuse(int error) const;

  std::filesystem::path file_;
  const WriteOptions rules_;
  std::string name_;  ///< of the new file; empty: written in place
  int number_ = -1;
  bool cut_ = false;  ///< in place: the old content is to be cut off before the new is written
  std::string buffer_;
  const std::uint32_t generation_;  ///< a child of fork removes nothing of its parent's
};

/// Replaces a regular file's content by `text`, as AtomicFile does.
void replace_text(const std::filesystem::path& file, std::string_view text);
/// The same for anything that can be written.
void write_text(const std::filesystem::path& file, std::string_view text, const WriteOptions& rules = {});
/// Throws ArgumentError if `file` could not be written by these now. Leaves what is there as it is.
void require_writable(const std::filesystem::path& file, const WriteOptions& rules = {});

/// A file that grows by whole pieces, such as lines: if a piece cannot be written, what was written of it is cut off
/// again, and ArgumentError is thrown.
class AppendFile {
 public:
  /// Replaces what is there by `first`, as `write_text` does.
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
