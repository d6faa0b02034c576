// SPDX-License-Identifier: Apache-2.0
// Shared code of hostile drivers, which misbehave in tests. An environment variable selects the mode in the form
// ACT_PLACE. For example, a driver with the mode "crash_build" crashes when a program is built. A process that hangs
// exits after two minutes, so that a failed test leaves no processes behind.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace tessera::hostile {

/// Every process of a test case has this environment variable, so that the test can find leftover processes.
inline constexpr const char* mark = "TESSERA_HOSTILE_MARK";

class Mode {
 public:
  explicit Mode(const char* variable) : name_(std::getenv(variable) != nullptr ? std::getenv(variable) : "") {}
  bool is(std::string_view name) const { return name_ == name; }
  /// Returns true if the act is delayed by TESSERA_HOSTILE_AFTER and the delay has passed.
  bool is_late() const { return after_ >= 0 && launches > after_; }
  /// Returns the act at this place, or an empty string if there is none. If TESSERA_HOSTILE_AFTER is set, returns an
  /// empty string before this number of launches.
  std::string act_at(std::string_view place) const {
    if (launches <= after_) return "";
    const std::string end = "_" + std::string(place);
    return name_.ends_with(end) ? name_.substr(0, name_.size() - end.size()) : "";
  }

  static inline std::atomic<int> launches = 0;

 private:
  std::string name_;
  const int after_ =
      std::getenv("TESSERA_HOSTILE_AFTER") != nullptr ? std::atoi(std::getenv("TESSERA_HOSTILE_AFTER")) : -1;
};

inline bool in_probe() {
  char path[4096] = {};
  if (::readlink("/proc/self/exe", path, sizeof path - 1) <= 0) return false;
  return std::string_view(path).substr(std::string_view(path).rfind('/') + 1).find("probe") != std::string_view::npos;
}
/// Returns true if the test started this process. Other processes must not be signalled.
inline bool of_this_test(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const char* own = std::getenv(mark);
  return process > 1 && own != nullptr && all.find(std::string(mark) + "=" + own) != std::string::npos;
}

[[noreturn]] inline void wait_for_ever() {
  for (const std::time_t start = std::time(nullptr); std::time(nullptr) - start < 120;) ::usleep(100000);
  ::_exit(99);
}
[[noreturn]] inline void spin() {
  for (const std::time_t start = std::time(nullptr); std::time(nullptr) - start < 120;) {}
  ::_exit(99);
}
[[noreturn]] inline void crash() {
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
  std::abort();
}
/// Recurses until the stack overflows.
inline int recurse(const volatile int* above) {
  volatile int frame[1024];
  frame[0] = *above + 1;
  return frame[0] < 0 ? 0 : recurse(frame) + frame[0];
}
/// Writes `bytes` bytes in lines to a file descriptor. The size is limited, so that a failing test does not fill the
/// disk.
inline void flood(int descriptor, std::size_t bytes) {
  const std::string line(4095, 'x');
  for (std::size_t done = 0; done < bytes; done += 4096)
    if (::write(descriptor, (line + "\n").c_str(), 4096) <= 0) return;
}
/// Starts a process that outlives its parent. It inherits the file descriptors, or becomes a daemon in a new session
/// without open files. Tests expect such processes of the program, but not of its probe, so their names differ.
inline void leave_process(bool daemon) {
  const bool probe = in_probe();
  const pid_t child = ::fork();
  if (child != 0) {
    if (daemon && child > 0) ::waitpid(child, nullptr, 0);
    return;
  }
  if (!probe) ::prctl(PR_SET_NAME, "hostile-own");
  if (daemon) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    for (int d = 0; d < 64; ++d) ::close(d);
  }
  wait_for_ever();
}

/// Performs an act that is possible at any place. Returns false if the act is unknown.
inline bool perform(const std::string& act) {
  if (act == "crash") crash();
  if (act == "abort") std::abort();
  if (act == "hang") wait_for_ever();
  if (act == "spin") spin();
  if (act == "exit") std::exit(0);
  if (act == "_exit") ::_exit(0);
  if (act == "thread_exit") {
    std::thread([] { std::exit(0); }).detach();
    wait_for_ever();
  }
  if (act == "recursion") {
    const int start = 0;
    return recurse(&start) == 0;
  }
  if (act == "print") return std::printf("hostile says hello\n") > 0 && std::fflush(stdout) == 0;
  if (act == "flood_stdout") return flood(1, std::size_t{8} << 20), true;
  if (act == "flood_stderr") return flood(2, std::size_t{8} << 20), true;
  if (act == "flood_endless") {
    flood(1, std::size_t{512} << 20);
    wait_for_ever();
  }
  if (act == "close_fds") {
    for (int d = 0; d < 1024; ++d) ::close(d);
    return true;
  }
  if (act == "fake_name") return ::prctl(PR_SET_NAME, "kworker/0:0") == 0;
  if (act == "kill") return ::kill(::getpid(), SIGKILL) == 0;
  if (act == "kill_group") return ::kill(0, SIGKILL) == 0;
  if (act == "kill_parent") {
    if (of_this_test(::getppid())) ::kill(::getppid(), SIGKILL);
    return true;
  }
  if (act == "stop") return ::raise(SIGSTOP) == 0;
  if (act == "fork") return leave_process(false), true;
  if (act == "daemon") return leave_process(true), true;
  if (act == "fork_hang") {
    leave_process(false);
    wait_for_ever();
  }
  if (act == "flood_forks") {
    for (int i = 0; i < 40; ++i) leave_process(false);
    return true;
  }
  if (act == "flood_threads") {
    for (int i = 0; i < 200; ++i) std::thread(wait_for_ever).detach();
    return true;
  }
  return act.empty();
}

}  // namespace tessera::hostile
