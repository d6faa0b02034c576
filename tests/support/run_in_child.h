// SPDX-License-Identifier: Apache-2.0
// Runs work in a child process with its own environment. For work that a process can do only once (loading a driver) or
// that may crash.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tessera::test {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Forks a child. Returns what it writes to the file passed to `work`, and its wait status. The calling process must
/// not have used drivers or threads that the child uses, because they do not survive a fork.
inline std::pair<std::string, int> written_by_child(const std::function<void(int file)>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    work(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {out, status};
}

/// Runs `work` in a forked child with these variables and returns its result. If it throws, returns "exception: ...".
/// If it crashes, returns "the child died of signal ..."; signal 14 is the timeout after `seconds`.
inline std::string run_in_child(const Variables& variables, const std::function<std::string()>& work,
                                unsigned seconds = 100) {
  const auto [out, status] = written_by_child([&](int file) {
    alarm(seconds);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    std::string answer;
    try {
      answer = work();
    } catch (const std::exception& e) {
      answer = std::string("exception: ") + e.what();
    }
    for (std::size_t at = 0; at < answer.size();) {
      const ssize_t n = write(file, answer.data() + at, answer.size() - at);
      if (n <= 0) break;
      at += static_cast<std::size_t>(n);
    }
  });
  return WIFEXITED(status) ? out : "the child died of signal " + std::to_string(WTERMSIG(status)) + "\n" + out;
}

/// Runs `body` in a child that exits normally. Returns its output on standard error and its exit code. An exit code of
/// 128 + n means signal n.
inline std::pair<std::string, int> errors_at_exit(const std::function<void()>& body) {
  const auto [text, status] = written_by_child([&](int file) {
    dup2(file, 2);
    close(file);
    alarm(180);  // PoCL may take half a minute for its first kernel
    body();
    std::exit(0);
  });
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

}  // namespace tessera::test
