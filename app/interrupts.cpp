// SPDX-License-Identifier: Apache-2.0
#include "interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "command.h"
#include "terminal.h"

namespace tessera::app {
namespace {

std::atomic<bool> asked = false, keeps = false, overwrites_line = false, marked = false;
std::atomic<const char*> says = "";
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

std::atomic<int> received = SIGINT;

extern "C" void on_interrupt(int signal) {
  received = signal;
  if (!keeps) {  // a signal handler may only call async-signal-safe functions
    const auto put = [](std::string_view text) {
      if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
    };
    if (overwrites_line) put("\r\x1b[K");
    put(says.load());
    put("\n");
    ::_exit(128 + signal);
  }
  asked = true;
  std::signal(signal, SIG_DFL);
}

// The handler writes a byte to this pipe to wake poll(). A signal alone would not always wake it: it may arrive just
// before poll() is called, or on another thread.
int mark_out = -1, mark_in = -1;

constexpr std::string_view paste_on = "\x1b[?2004h", paste_off = "\x1b[?2004l";
std::atomic<bool> changes_terminal = false;  // `saved_modes` is valid
termios saved_modes{};

// Called by signal handlers. Both functions are async-signal-safe.
void restore_terminal() {
  if (!changes_terminal.exchange(false)) return;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &saved_modes);
  if (::write(STDERR_FILENO, paste_off.data(), paste_off.size()) < 0) return;
}

extern "C" void on_deadly_signal(int signal) {
  restore_terminal();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

extern "C" void on_marked_interrupt(int) {
  if (marked.exchange(true)) {
    restore_terminal();
    ::_exit(interrupted);
  }
  const int before = errno;
  if (::write(mark_in, "", 1) < 0) errno = before;
}

void drain_marks() {
  char some[16];
  while (mark_out >= 0 && ::read(mark_out, some, sizeof some) > 0) {}
}

}  // namespace

void catch_interrupts(const char* nothing, bool overwrites) {
  says = nothing;
  overwrites_line = overwrites;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) std::signal(signal, on_interrupt);
  }
}

void enable_graceful_stop() { keeps = true; }
bool stop_requested() { return asked; }
int interrupt_code() { return 128 + received; }

void mark_interrupts() {
  struct sigaction now {};
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT})
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) std::signal(signal, on_deadly_signal);
  if (::sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) return;
  int ends[2];
  if (::pipe(ends) == 0) {
    mark_out = ends[0], mark_in = ends[1];
    for (const int end : ends) ::fcntl(end, F_SETFL, O_NONBLOCK), ::fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  struct sigaction marks {};
  marks.sa_handler = on_marked_interrupt;
  marks.sa_flags = SA_RESTART;  // writes in progress are not interrupted
  ::sigaction(SIGINT, &marks, nullptr);
}

BracketedPaste::BracketedPaste() {
  changes_terminal = ::tcgetattr(STDIN_FILENO, &saved_modes) == 0;
  eprint("{}", paste_on);
}

BracketedPaste::~BracketedPaste() {
  changes_terminal = false;
  eprint("{}", paste_off);
}

bool interrupt_marked() { return marked; }

bool take_interrupt() {
  if (!marked) return false;
  drain_marks();
  return marked.exchange(false);
}

bool wait_for_input(int descriptor) {
  pollfd both[] = {{descriptor, POLLIN, 0}, {mark_out, POLLIN, 0}};
  while (!marked) {
    if (::poll(both, mark_out < 0 ? 1 : 2, -1) < 0) {
      if (errno == EINTR) continue;
      break;  // the caller's read reports the error
    }
    if (marked) break;
    if (both[0].revents != 0) return true;
    drain_marks();  // a byte of an interrupt that take_interrupt() has already handled
  }
  return !marked;
}

}  // namespace tessera::app
