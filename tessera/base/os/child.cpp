// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/os/child_guard.h"
#include "tessera/base/os/library.h"
#include "tessera/base/os/process_tree.h"

extern char** environ;

namespace tessera::os {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr std::size_t most_words = 4096;
constexpr int first_own = guard_descriptor + 1;  ///< smaller descriptors are inherited by the child

/// Returns a function of the C library, or null if this machine's C library is too old to have it.
template <class F>
F* newer_function(const char* name) {
  return Library::of_program().function<F>(name);
}

/// One end of a pipe. The destructor closes it.
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

/// Creates a pipe. Both ends are close-on-exec, and their numbers are above those that the child uses.
bool make_pipe(Descriptor& reads, Descriptor& writes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const Descriptor low[2] = {Descriptor(ends[0]), Descriptor(ends[1])};
  reads = Descriptor(::fcntl(ends[0], F_DUPFD_CLOEXEC, first_own));
  writes = Descriptor(::fcntl(ends[1], F_DUPFD_CLOEXEC, first_own));
  if (reads.number() >= 0) ::fcntl(reads.number(), F_SETFL, O_NONBLOCK);
  return reads.number() >= 0 && writes.number() >= 0;
}

/// Reads available data until there are more than `most` bytes. Closes the descriptor at the end of the file.
void take(Descriptor& from, std::string& into, std::size_t most) {
  char bytes[4096];
  while (from.number() >= 0 && into.size() <= most) {
    const ssize_t n = ::read(from.number(), bytes, sizeof bytes);
    if (n > 0)
      into.append(bytes, static_cast<std::size_t>(n));
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
      from.close();
    else if (errno == EAGAIN)
      return;
  }
}

/// Returns a unique environment variable. It identifies all processes that the child starts.
std::string fresh_mark() {
  static std::atomic<unsigned> count = 0;
  return "TESSERA_CHILD_MARK=" + std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1)) + "." +
         std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
}

struct Spawned {
  pid_t pid = 0;
  int error = 0;
};

Spawned spawn(std::span<const std::string> command, const std::string& mark, int answer, int words, int guard) {
  std::vector<char*> argv, envp;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) envp.push_back(*entry);
  envp.push_back(const_cast<char*>(mark.c_str()));
  argv.push_back(nullptr), envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, words, 1);
  ::posix_spawn_file_actions_adddup2(&actions, words, 2);
  ::posix_spawn_file_actions_adddup2(&actions, answer, answer_descriptor);
  ::posix_spawn_file_actions_adddup2(&actions, guard, guard_descriptor);
  static auto* const close_from =
      newer_function<int(posix_spawn_file_actions_t*, int)>("posix_spawn_file_actions_addclosefrom_np");
  if (close_from != nullptr) close_from(&actions, first_own);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  Spawned child;
  child.error = ::posix_spawn(&child.pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return child;
}

/// Returns whether the child has ended. Stores the result of waitpid in `status`. Sets `known` to false if another call
/// of waitpid has collected the status.
bool ended(pid_t child, int& status, bool& known) {
  const pid_t got = ::waitpid(child, &status, WNOHANG);
  if (got == child) return known = true;
  return got < 0 && errno == ECHILD;
}

}  // namespace

ChildOutcome run_child(std::span<const std::string> command, const ChildLimits& limits) {
  using End = ChildOutcome::End;
  ChildOutcome outcome;
  Descriptor answers, answer, words, word, reports, report;
  if (!make_pipe(answers, answer) || !make_pipe(words, word) || !make_pipe(reports, report)) {
    outcome.reason = std::string("no pipe: ") + std::strerror(errno);
    return outcome;
  }
  std::vector<std::string> whole(command.begin(), command.end());
  whole.push_back(std::string(child_option) + std::to_string(::getpid()) + "," + std::to_string(limits.memory));
  const std::string mark = fresh_mark();
  const Clock::time_point deadline = Clock::now() + limits.time;
  const Spawned child = spawn(whole, mark, answer.number(), word.number(), report.number());
  answer.close(), word.close(), report.close();
  if (child.error != 0) {
    outcome.reason = command[0] + ": " + std::strerror(child.error);
    return outcome;
  }
  int status = 0;
  bool known = false, over = false, late = false, flood = false;
  auto pause = 1ms;
  while (!(over = ended(child.pid, status, known))) {
    late = Clock::now() >= deadline;
    flood = outcome.answer.size() > limits.answer;
    if (late || flood) break;
    // Output on either pipe wakes this thread. The child must also be checked periodically, because it may close both
    // pipes, or its own children may keep them open.
    pollfd ends[2] = {{answers.number(), POLLIN, 0}, {words.number(), POLLIN, 0}};
    if (answers.number() < 0 && words.number() < 0) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, 20ms);
    } else {
      ::poll(ends, 2, 20);
    }
    take(answers, outcome.answer, limits.answer);
    take(words, outcome.words, 2 * most_words);
    if (outcome.words.size() > 2 * most_words) outcome.words.erase(0, outcome.words.size() - most_words);
  }
  if (!over) {
    ::kill(child.pid, SIGTERM);  // the guard then ends the whole process tree
    ::kill(child.pid, SIGCONT);
    // A process in an uninterruptible system call of a driver cannot be killed. Stop waiting for it after a while.
    for (const auto until = Clock::now() + guard_patience + 500ms;
         !(over = ended(child.pid, status, known)) && Clock::now() < until;)
      std::this_thread::sleep_for(2ms);
    if (!over) {
      ::kill(child.pid, SIGKILL);
      for (const auto until = Clock::now() + 500ms; !(over = ended(child.pid, status, known)) && Clock::now() < until;)
        std::this_thread::sleep_for(2ms);
    }
  }
  std::string told;
  take(answers, outcome.answer, limits.answer);
  take(words, outcome.words, 2 * most_words);
  take(reports, told, most_words);
  if (outcome.words.size() > most_words) outcome.words.erase(0, outcome.words.size() - most_words);
  const GuardReport guarded = read_report(told);
  // If the guard was killed, the processes that it guarded are still running.
  if (guarded.kind == GuardReport::Kind::none)
    for (const pid_t left : processes_with(mark)) ::kill(left, SIGKILL);
  if (late || flood) {
    outcome.end = late ? End::timed_out : End::too_much_answer;
  } else if (guarded.kind == GuardReport::Kind::not_started) {
    outcome.reason = std::string("fork: ") + std::strerror(guarded.code);
  } else if (guarded.kind == GuardReport::Kind::too_much_memory) {
    outcome.end = End::too_much_memory;
  } else if (guarded.kind != GuardReport::Kind::none) {
    outcome.end = guarded.kind == GuardReport::Kind::signalled ? End::signalled : End::exited;
    outcome.code = guarded.code;
  } else if (known && WIFSIGNALED(status)) {
    outcome.end = End::signalled;
    outcome.code = WTERMSIG(status);
    outcome.unwatched = true;
  } else {
    outcome.end = End::exited;
    outcome.code = known ? WEXITSTATUS(status) : -1;
  }
  return outcome;
}

std::string signal_name(int signal) {
  static auto* const abbreviation = newer_function<const char*(int)>("sigabbrev_np");
  if (const char* name = abbreviation != nullptr ? abbreviation(signal) : nullptr) return std::string("SIG") + name;
  return "signal " + std::to_string(signal);
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
