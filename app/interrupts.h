// SPDX-License-Identifier: Apache-2.0
// Handling of Ctrl-C and SIGTERM for commands that have results to save. The first signal requests a stop at the next
// safe point, and the second one ends the program. As long as there is nothing to save, the first one ends the program,
// because the next safe point may be seconds away while a driver compiles kernels.
#pragma once

namespace tessera::app {

/// Installs the handler. `nothing` is printed if Ctrl-C ends the program before there is anything to save. `overwrites`
/// is true if the terminal may show a progress line. Does nothing if the program was started with Ctrl-C ignored
/// (nohup, background jobs of scripts).
void catch_interrupts(const char* nothing, bool overwrites);
void enable_graceful_stop();  ///< Call this as soon as there is something to save.
bool stop_requested();
/// The exit code of a program that was ended by the signal: 130 for Ctrl-C, 143 for SIGTERM. 130 if another process of
/// the job received it.
int interrupt_code();

/// Installs a different handler: Ctrl-C sets a flag and wakes wait_for_input(). A second Ctrl-C before take_interrupt()
/// ends the program. Does nothing if Ctrl-C is ignored.
void mark_interrupts();
bool interrupt_marked();
bool take_interrupt();  ///< returns the flag and clears it
/// While an object of this class exists, the terminal of standard input sends pasted text between ESC [200~ and
/// ESC [201~ ("bracketed paste", https://invisible-island.net/xterm/ctlseqs/ctlseqs.html). Signals that end the program
/// switch this off, too, and restore the settings that the terminal had when the object was created. Call
/// mark_interrupts() first. There may be one object at a time.
class BracketedPaste {
 public:
  BracketedPaste();
  ~BracketedPaste();
  BracketedPaste(const BracketedPaste&) = delete;
};

/// Waits until `descriptor` is readable or the flag is set. Returns false if the flag is set. A Ctrl-C just before the
/// call is not missed.
bool wait_for_input(int descriptor);

}  // namespace tessera::app
