// SPDX-License-Identifier: Apache-2.0
// Finds and runs command-line programs that are not part of Tessera, such as assemblers and disassemblers. Operating
// system layer.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace tessera::os {

/// Returns the full path of an executable file. Searches PATH, then `folders`. Returns an empty string if there is
/// none.
std::string find_program(const std::string& name, std::span<const std::filesystem::path> folders = {});

struct CommandResult {
  int status = -1;     ///< the exit status; -1 if the program could not be started or was killed
  std::string output;  ///< its standard output and standard error; if it was not started, the reason
};

/// Runs `command` (a path and arguments) without a shell and waits until it ends. It reads nothing, and is killed after
/// `seconds`. Does not throw.
CommandResult run_command(std::span<const std::string> command, int seconds);

/// A new folder for temporary files, which the destructor deletes with its contents. The constructor throws
/// ArgumentError if it cannot be created.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::os
