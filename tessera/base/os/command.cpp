// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <system_error>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/os/system.h"

extern char** environ;

namespace tessera::os {

namespace fs = std::filesystem;

std::string find_program(const std::string& name, std::span<const fs::path> folders) {
  std::vector<fs::path> places;
  std::istringstream path(environment("PATH").value_or(""));
  for (std::string folder; std::getline(path, folder, ':');)
    if (!folder.empty()) places.emplace_back(folder);
  places.insert(places.end(), folders.begin(), folders.end());
  for (const fs::path& place : places) {
    const std::string file = (place / name).string();
    std::error_code none;
    if (fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

CommandResult run_command(std::span<const std::string> command, int seconds) {
  using Clock = std::chrono::steady_clock;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {-1, std::string("pipe: ") + std::strerror(errno)};
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t child = 0;
  const int error = posix_spawn(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return {-1, command[0] + " cannot be started: " + std::strerror(error)};
  }
  CommandResult result;
  const auto deadline = Clock::now() + std::chrono::seconds(seconds);
  bool killed = false;
  for (char bytes[65536];;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{ends[0], POLLIN, 0};
    if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) == 0) {
      ::kill(child, SIGKILL);
      killed = true;
      break;
    }
    const ssize_t count = ::read(ends[0], bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    result.output.append(bytes, static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (killed) result.output += command[0] + " was killed after " + std::to_string(seconds) + " s\n";
  if (WIFEXITED(status) && !killed) result.status = WEXITSTATUS(status);
  return result;
}

TemporaryFolder::TemporaryFolder() {
  std::error_code none;
  fs::path parent = fs::temp_directory_path(none);
  if (none) parent = "/tmp";
  std::string name = (parent / "tessera-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail<ArgumentError>({.operation = "temporary folder",
                         .wrong = name + " cannot be created: " + std::strerror(errno),
                         .remedy = "Set TMPDIR to a writable folder"});
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code none;
  fs::remove_all(path_, none);
}

}  // namespace tessera::os
