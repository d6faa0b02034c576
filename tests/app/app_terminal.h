// SPDX-License-Identifier: Apache-2.0
// Runs the program `tessera` on a pseudo terminal and sends typed input.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::test {

class Terminal {
 public:
  /// `cache` is the folder of the kernel cache.
  Terminal(const std::string& program, const std::string& cache, const std::vector<std::string>& arguments,
           unsigned short columns = 200) {
    winsize size{};
    size.ws_row = 40, size.ws_col = columns;
    process_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (process_ != 0) return;
    ::setenv("TESSERA_KERNEL_CACHE", "1", 1);
    ::setenv("TESSERA_CACHE_DIR", cache.c_str(), 1);
    ::setenv("TERM", "xterm", 1);
    ::setenv("LANG", "C.UTF-8", 1);
    ::unsetenv("NO_COLOR");
    ::unsetenv("LC_ALL");
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ~Terminal() {
    if (!ended_) ::kill(process_, SIGKILL), ::waitpid(process_, nullptr, 0);
    ::close(fd_);
  }
  Terminal(const Terminal&) = delete;

  /// Waits until the text has been printed after the last `send`.
  bool shows(std::string_view text, double seconds = 60) {
    return wait(seconds, [&] { return out_.find(text, sent_) != std::string::npos; });
  }
  /// Waits until the output ends with a prompt and the line editor is active. Until then, the terminal itself handles
  /// keys.
  bool prompts(double seconds = 60) {
    return wait(seconds, [&] {
      termios now{};
      return out_.ends_with("> ") && ::tcgetattr(fd_, &now) == 0 && !(now.c_lflag & ICANON);
    });
  }
  void send(std::string_view keys) {
    sent_ = out_.size();
    if (::write(fd_, keys.data(), keys.size()) < 0) return;
  }
  void kill(int signal) { ::kill(process_, signal); }
  /// Waits until the program ends. Returns the exit code, or -1 if it does not end in time.
  int ends(double seconds = 60) {
    wait(seconds, [&] { return closed_; });
    int status = 0;
    for (int i = 0; i < 1000 && !ended_; ++i) {
      ended_ = ::waitpid(process_, &status, WNOHANG) == process_;
      if (!ended_) ::usleep(10000);
    }
    if (!ended_) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& out() const { return out_; }

 private:
  template <class Done>
  bool wait(double seconds, const Done& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!done()) {
      pollfd one{fd_, POLLIN, 0};
      char some[4096];
      if (closed_ || std::chrono::steady_clock::now() > end) return false;
      if (::poll(&one, 1, 50) <= 0) continue;
      const ssize_t n = ::read(fd_, some, sizeof some);
      if (n <= 0)
        closed_ = true;
      else
        out_.append(some, static_cast<std::size_t>(n));
    }
    return true;
  }

  int fd_ = -1;
  pid_t process_ = -1;
  std::string out_;
  std::size_t sent_ = 0;
  bool closed_ = false, ended_ = false;
};

}  // namespace tessera::test
