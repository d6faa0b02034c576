// SPDX-License-Identifier: Apache-2.0
// Helpers that run the program `tessera` with a time limit, and check its output and exit code.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/folder.h"

extern char** environ;

namespace tessera::test {

struct Outcome {
  int code = -1;      ///< exit code, or 128 + n if it was killed by signal n
  bool late = false;  ///< true if it was killed at the time limit
  double seconds = 0;
  int process = 0;  ///< process id; with `own_session`, also the session id
  std::string out, err;
};

/// A temporary folder that returns paths as strings, because command-line arguments are strings.
class TemporaryFolder : public Folder {
 public:
  std::string operator/(const std::string& name) const { return path() / name; }
};
inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct RunOptions {
  /// Additional environment variables. The program also inherits the test's variables, except those that start with
  /// TESSERA_.
  std::map<std::string, std::string> environment = {};
  std::string in = {};  ///< standard input
  double limit = 120;   ///< time limit in seconds
  /// Called every 10 ms with the output so far. When it returns true, `signal` is sent once.
  std::function<bool(const std::string& out, const std::string& err)> interrupt = {};
  int signal = SIGINT;
  bool ignores_interrupts = false;  ///< start the program with SIGINT ignored, as nohup does
  bool own_session = false;         ///< start a new session, so that signals to the process group do not reach the test
  std::string program = TESSERA_PROGRAM;
  long address_space = 0;  ///< limit of the address space in KiB, like `ulimit -v`; 0: the same as the test's
};

inline Outcome run(std::vector<std::string> arguments, const RunOptions& options = {}) {
  const TemporaryFolder folder;
  const std::string in = folder / "in", out = folder / "out", err = folder / "err";
  write_file(in, options.in);
  std::vector<std::string> variables;
  for (char** e = environ; *e; ++e) {
    const std::string entry = *e;
    const std::string name = entry.substr(0, entry.find('='));
    if (name.rfind("TESSERA_", 0) != 0 && name != "XDG_CONFIG_HOME" && !options.environment.count(name))
      variables.push_back(entry);
  }
  // The user's own preferences must not affect the tests.
  if (!options.environment.count("XDG_CONFIG_HOME")) variables.push_back("XDG_CONFIG_HOME=" + (folder / "config"));
  // Kernels that were compiled earlier must not affect the tests either.
  if (!options.environment.count("TESSERA_KERNEL_CACHE")) variables.push_back("TESSERA_KERNEL_CACHE=0");
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  arguments.insert(arguments.begin(), options.program);
  const bool limited = options.address_space != 0;
  if (limited)
    arguments.insert(arguments.begin(),
                     {"/bin/sh", "-c", "ulimit -v \"$0\" && exec \"$@\"", std::to_string(options.address_space)});
  std::vector<char*> argv, envp;
  for (std::string& a : arguments) argv.push_back(a.data());
  for (std::string& v : variables) envp.push_back(v.data());
  argv.push_back(nullptr), envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  // A child inherits ignored signals. Reset SIGINT, because the test itself may be started with it ignored.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t interrupts;
  sigemptyset(&interrupts);
  if (!options.ignores_interrupts) sigaddset(&interrupts, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &interrupts);
  short flags = POSIX_SPAWN_SETSIGDEF;
  if (options.own_session) flags |= POSIX_SPAWN_SETSID;
  posix_spawnattr_setflags(&attributes, flags);
  const auto before = ::signal(SIGINT, options.ignores_interrupts ? SIG_IGN : SIG_DFL);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, limited ? "/bin/sh" : options.program.c_str(), &actions, &attributes,
                                  argv.data(), envp.data());
  ::signal(SIGINT, before);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + options.program);

  Outcome outcome;
  int status = 0;
  bool asked = false;
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  outcome.process = pid;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(passed() < 0.2 ? std::chrono::microseconds(200) : std::chrono::milliseconds(10));
    if (options.interrupt && !asked && options.interrupt(text_of(out), text_of(err))) {
      asked = true;
      ::kill(pid, options.signal);
    }
    if (passed() > options.limit && !outcome.late) {
      outcome.late = true;
      ::kill(pid, SIGKILL);
    }
  }
  outcome.seconds = passed();
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = text_of(out);
  outcome.err = text_of(err);
  return outcome;
}

inline ::testing::AssertionResult holds(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << part << "\" is not in: " << text;
  return ::testing::AssertionSuccess();
}
/// Checks the exit code, the prefix of the error, and that the message contains `parts`.
inline ::testing::AssertionResult fails(const Outcome& o, int code, std::vector<std::string> parts) {
  if (o.late) return ::testing::AssertionFailure() << "did not end: " << o.out << o.err;
  if (o.code != code) return ::testing::AssertionFailure() << "exit code " << o.code << ": " << o.out << o.err;
  parts.insert(parts.begin(), "tessera: error: ");
  return holds(o.err, parts);
}
/// Checks that two files are equal and not empty. A failure reports the position of the first difference.
inline ::testing::AssertionResult same_file(const std::string& a, const std::string& b) {
  const std::string x = text_of(a), y = text_of(b);
  if (x == y && !x.empty()) return ::testing::AssertionSuccess();
  const auto at = std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin();
  return ::testing::AssertionFailure() << a << " of " << x.size() << " bytes and " << b << " of " << y.size()
                                       << " differ at byte " << at;
}

}  // namespace tessera::test
