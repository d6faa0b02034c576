// SPDX-License-Identifier: Apache-2.0
#include "interrupts.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

#include "command.h"

namespace tessera::app {
namespace {

std::atomic<bool> asked = false, keeps = false, overwrites_line = false, marked = false;
std::atomic<const char*> says = "";
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

extern "C" void on_interrupt(int) {
  if (!keeps) {  // nothing here but what a signal handler may call
    const auto put = [](std::string_view text) {
      if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
    };
    if (overwrites_line) put("\r\x1b[K");
    put(says.load());
    put("\n");
    ::_exit(interrupted);
  }
  asked = true;
  std::signal(SIGINT, SIG_DFL);
}

extern "C" void on_marked_interrupt(int) {
  if (marked.exchange(true)) ::_exit(interrupted);
}

}  // namespace

void catch_interrupts(const char* nothing, bool overwrites) {
  struct sigaction now {};
  if (::sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) return;
  says = nothing;
  overwrites_line = overwrites;
  std::signal(SIGINT, on_interrupt);
}

void something_to_keep() { keeps = true; }
bool asked_to_end() { return asked; }

void mark_interrupts() {
  struct sigaction now {};
  if (::sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) return;
  struct sigaction marks {};  // no SA_RESTART: a read of standard input ends
  marks.sa_handler = on_marked_interrupt;
  ::sigaction(SIGINT, &marks, nullptr);
}

bool interrupt_marked() { return marked; }
bool take_interrupt() { return marked.exchange(false); }

}  // namespace tessera::app
