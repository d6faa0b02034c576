// SPDX-License-Identifier: Apache-2.0
// Jobs that tests start with script/cluster: their processes and their number.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/os/process_tree.h"
#include "tests/app/app_program.h"

namespace tessera::test {

constexpr int job_ranks = 3;

/// Number of repetitions in a long test; 0: a short one. TESSERA_TEST_LONG=1 means 100; other numbers are repetitions.
inline int repetitions() {
  const char* const text = std::getenv("TESSERA_TEST_LONG");
  const int number = text == nullptr ? 0 : std::atoi(text);
  return number == 1 ? 100 : number;
}

inline double seconds_since_boot() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline bool can_use_namespaces() {
  if (::getuid() != 0) return false;
  const std::string name = fmt::format("tessera-try-{}", ::getpid());
  const auto ip = [&](const std::vector<std::string>& words) {
    return run(words, {.program = "/usr/sbin/ip"}).code == 0;
  };
  if (!ip({"netns", "add", name})) return false;
  const bool usable = ip({"netns", "exec", name, "true"});  // false in a chroot
  ip({"netns", "delete", name});
  return usable;
}

/// Calls f(i) for i from 0 to count, on five threads, because jobs mostly wait.
inline void for_each_job(std::size_t count, const std::function<void(std::size_t)>& f) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int k = 0; k < 5; ++k)
    threads.emplace_back([&] {
      for (std::size_t i = 0; (i = next++) < count;) f(i);
    });
  for (std::thread& t : threads) t.join();
}

/// A job of three ranks. Its processes are found by a variable in their environment.
class ClusterJob {
 public:
  /// `program` is that of the ranks. `hosts` is the number of network namespaces; 0: none.
  ClusterJob(std::string mpi, int hosts, std::string program, std::map<std::string, std::string> environment)
      : mpi_(std::move(mpi)), hosts_(hosts), program_(std::move(program)), environment_(std::move(environment)) {
    static std::atomic<int> jobs = 0;
    environment_["TESSERA_TEST_JOB"] = name_ = fmt::format("{}-{}", ::getpid(), ++jobs);
    environment_["TESSERA_DEVICE"] = "cpu", environment_["TESSERA_KERNEL_CACHE"] = "1";
    if (const char* const cache = std::getenv("TESSERA_CACHE_DIR")) environment_["TESSERA_CACHE_DIR"] = cache;
  }

  Outcome run(const std::vector<std::string>& command, RunOptions options) const {
    std::vector<std::string> arguments = {std::to_string(job_ranks), "--mpi", mpi_};
    if (hosts_ != 0) arguments.insert(arguments.end(), {"--hosts", std::to_string(hosts_)});
    arguments.insert(arguments.end(), command.begin(), command.end());
    options.environment = environment_;
    return test::run(arguments, options);
  }
  /// Returns all processes, including those of the launcher.
  std::vector<pid_t> processes() const { return os::processes_with("TESSERA_TEST_JOB=" + name_); }
  /// Returns the processes of the ranks.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> out = processes();
    std::erase_if(out, [&](pid_t process) {
      std::error_code gone;
      return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), gone) != program_;
    });
    return out;
  }
  /// Waits until no process is left. Kills those that are left after so many seconds, and returns false.
  bool wait(double seconds) const {
    for (const double limit = seconds_since_boot() + seconds; !processes().empty();) {
      if (seconds_since_boot() > limit) {
        for (const pid_t process : processes()) ::kill(process, SIGKILL);
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

 private:
  const std::string mpi_;
  const int hosts_;
  const std::string program_;
  std::map<std::string, std::string> environment_;
  std::string name_;
};

}  // namespace tessera::test
