// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

extern char** environ;

namespace tessera::os {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr std::size_t most_answer = std::size_t{16} << 20, most_words = 4096;

/// One end of a pipe; closed with the object.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  int number() const { return number_; }

 private:
  int number_ = -1;
};

/// Both ends closed in children, and above the numbers that a child is given.
bool make_pipe(Descriptor& reads, Descriptor& writes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const Descriptor low[2] = {Descriptor(ends[0]), Descriptor(ends[1])};
  reads = Descriptor(::fcntl(ends[0], F_DUPFD_CLOEXEC, answer_descriptor + 1));
  writes = Descriptor(::fcntl(ends[1], F_DUPFD_CLOEXEC, answer_descriptor + 1));
  if (reads.number() >= 0) ::fcntl(reads.number(), F_SETFL, O_NONBLOCK);
  return reads.number() >= 0 && writes.number() >= 0;
}

/// What can be read now; closes at the end of the stream.
void take(Descriptor& from, std::string& into) {
  char bytes[4096];
  while (from.number() >= 0) {
    const ssize_t n = ::read(from.number(), bytes, sizeof bytes);
    if (n > 0)
      into.append(bytes, static_cast<std::size_t>(n));
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
      from.close();
    else if (errno == EAGAIN)
      return;
  }
}

struct Spawned {
  pid_t pid = 0;
  int error = 0;
};

Spawned spawn(std::span<const std::string> command, int answer, int words) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, words, 1);
  ::posix_spawn_file_actions_adddup2(&actions, words, 2);
  ::posix_spawn_file_actions_adddup2(&actions, answer, answer_descriptor);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
  ::posix_spawn_file_actions_addclosefrom_np(&actions, answer_descriptor + 1);
#endif
#endif
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  Spawned child;
  child.error = ::posix_spawn(&child.pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return child;
}

/// Whether the child has ended; `status` as waitpid gives it, nothing known if others waited for it.
bool ended(pid_t child, int& status, bool& known) {
  const pid_t got = ::waitpid(child, &status, WNOHANG);
  if (got == child) return known = true;
  return got < 0 && errno == ECHILD;
}

}  // namespace

ChildOutcome run_child(std::span<const std::string> command, std::chrono::milliseconds limit) {
  ChildOutcome outcome;
  Descriptor answers, answer, words, word;
  if (!make_pipe(answers, answer) || !make_pipe(words, word)) {
    outcome.reason = std::string("no pipe: ") + std::strerror(errno);
    return outcome;
  }
  const Clock::time_point deadline = Clock::now() + limit;
  const Spawned child = spawn(command, answer.number(), word.number());
  answer.close();
  word.close();
  if (child.error != 0) {
    outcome.reason = command[0] + ": " + std::strerror(child.error);
    return outcome;
  }
  int status = 0;
  bool known = false, over = false, late = false;
  auto pause = 1ms;
  while (!(over = ended(child.pid, status, known))) {
    if (Clock::now() >= deadline || outcome.answer.size() > most_answer) {
      late = true;
      break;
    }
    // Until both pipes end the child wakes us by what it writes; a child that closed them is looked at now and then. So
    // is one whose own children hold them.
    pollfd ends[2] = {{answers.number(), POLLIN, 0}, {words.number(), POLLIN, 0}};
    if (answers.number() < 0 && words.number() < 0) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, 20ms);
    } else {
      ::poll(ends, 2, 20);
    }
    take(answers, outcome.answer);
    take(words, outcome.words);
    if (outcome.words.size() > 2 * most_words) outcome.words.erase(0, outcome.words.size() - most_words);
  }
  if (late) {
    ::kill(child.pid, SIGKILL);
    // A process inside a driver's call that cannot be interrupted does not even die: it is not waited for longer.
    for (const auto until = Clock::now() + 2s; !(over = ended(child.pid, status, known)) && Clock::now() < until;)
      std::this_thread::sleep_for(2ms);
  }
  take(answers, outcome.answer);
  take(words, outcome.words);
  if (outcome.words.size() > most_words) outcome.words.erase(0, outcome.words.size() - most_words);
  if (late) {
    outcome.end = ChildOutcome::End::timed_out;
  } else if (known && WIFSIGNALED(status)) {
    outcome.end = ChildOutcome::End::signalled;
    outcome.code = WTERMSIG(status);
  } else {
    outcome.end = ChildOutcome::End::exited;
    outcome.code = known ? WEXITSTATUS(status) : -1;
  }
  return outcome;
}

std::string signal_name(int signal) {
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 32)
  if (const char* name = ::sigabbrev_np(signal)) return std::string("SIG") + name;
#endif
#endif
  return "signal " + std::to_string(signal);
}

int process_number() { return static_cast<int>(::getpid()); }

void live_as_child(int parent) {
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) leave(1);  // it has ended already; in a container a living one may well be process 1
}

bool write_answer(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void leave(int code) { std::_Exit(code); }

}  // namespace tessera::os
