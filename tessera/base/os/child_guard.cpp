// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/child_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tessera/base/os/child.h"
#include "tessera/base/os/process_tree.h"

namespace tessera::os {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = GuardReport::Kind;
using namespace std::chrono_literals;

struct Terms {
  pid_t parent = 0;
  std::uint64_t memory = 0;
};
Terms terms_of(const std::string& text) {
  Terms terms;
  char* end = nullptr;
  terms.parent = static_cast<pid_t>(std::strtol(text.c_str(), &end, 10));
  if (*end == ',') terms.memory = std::strtoull(end + 1, nullptr, 10);
  return terms;
}

/// Collects the status of ended processes. Returns true if the worker is one of them.
bool reap(pid_t worker, int& status) {
  bool found = false;
  int each = 0;
  for (pid_t ended; (ended = ::waitpid(-1, &each, WNOHANG)) > 0;)
    if (ended == worker) status = each, found = true;
  return found;
}

/// Kills all descendants. Orphans are reparented to this process, so the list is empty only after all of them have
/// ended.
void end_all(pid_t worker) {
  int ignored = 0;
  ::kill(-worker, SIGKILL);  // kills its process group even if /proc is not mounted
  for (const auto until = Clock::now() + guard_patience; Clock::now() < until;) {
    const auto left = descendants_of(::getpid());
    for (const pid_t each : left) ::kill(each, SIGKILL);
    reap(worker, ignored);
    if (left.empty() && ::waitpid(-1, &ignored, WNOHANG) < 0 && errno == ECHILD) return;
    if (!left.empty()) ::usleep(1000);
  }
}

std::uint64_t memory_of_all() {
  std::uint64_t bytes = 0;
  for (const pid_t each : descendants_of(::getpid())) bytes += resident_bytes(each);
  return bytes;
}

GuardReport watch(pid_t worker, const Terms& terms, const sigset_t& signals) {
  for (unsigned round = 1;; ++round) {
    const timespec pause = {0, 20'000'000};
    siginfo_t info{};
    const int signal = ::sigtimedwait(&signals, &info, &pause);
    int status = 0;
    if (reap(worker, status))
      return WIFSIGNALED(status) ? GuardReport{Kind::signalled, WTERMSIG(status)}
                                 : GuardReport{Kind::exited, WEXITSTATUS(status)};
    // Accept the signal only from the calling program, or if that program has ended. This ignores drivers that send
    // signals to their parent.
    if (::getppid() != terms.parent || (signal == SIGTERM && info.si_pid == terms.parent)) return {Kind::stopped, 0};
    if (terms.memory == 0) continue;
    // Check the worker in every round. Checking its descendants requires a scan of all processes, so do it only in
    // every tenth round.
    if (resident_bytes(worker) > terms.memory || (round % 10 == 0 && memory_of_all() > terms.memory))
      return {Kind::too_much_memory, 0};
  }
}

}  // namespace

std::string text_of(const GuardReport& report) {
  return std::to_string(static_cast<int>(report.kind)) + " " + std::to_string(report.code) + "\n";
}

GuardReport read_report(const std::string& text) {
  if (text.empty() || text.back() != '\n') return {};
  char* end = nullptr;
  const long kind = std::strtol(text.c_str(), &end, 10);
  if (kind <= 0 || kind > static_cast<long>(Kind::too_much_memory)) return {};
  return {static_cast<Kind>(kind), static_cast<int>(std::strtol(end, nullptr, 10))};
}

void become_supervised_child(std::string_view argument) {
  const Terms terms = terms_of(std::string(argument));
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::setsid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t signals, all, before;
  sigemptyset(&signals);
  sigfillset(&all);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_SETMASK, &all, &before);  // ignore signals from the worker
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != terms.parent)
    leave(1);  // the parent has already ended (in a container, pid 1 may be a running program)
  const pid_t guard = ::getpid();
  const pid_t worker = ::fork();
  if (worker == 0) {
    ::setsid();
    ::close(guard_descriptor);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != guard) leave(1);
    return;
  }
  const int error = errno;
  for (const int number : {0, 1, 2, answer_descriptor})
    ::close(number);  // otherwise, readers would not see the end of the file when the worker closes its descriptors
  GuardReport report{Kind::not_started, error};
  if (worker > 0) {
    report = watch(worker, terms, signals);
    end_all(worker);
  }
  write_answer(guard_descriptor, text_of(report));
  leave(0);
}

}  // namespace tessera::os
