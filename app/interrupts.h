// SPDX-License-Identifier: Apache-2.0
// Ctrl-C handling for commands that have results to save: the first Ctrl-C requests a stop at the next safe point, the
// second ends the program. Before there is anything to save the first one ends it, since a driver may be compiling for
// seconds.
#pragma once

namespace tessera::app {

/// Installs the handler. `nothing` is the line printed if Ctrl-C comes before there is anything to save; `overwrites`:
/// the terminal may show a progress line. Does nothing if the program was started with Ctrl-C ignored (nohup, a
/// script's background job).
void catch_interrupts(const char* nothing, bool overwrites);
void enable_graceful_stop();  ///< call when there is something to save
bool stop_requested();

/// From now on Ctrl-C only sets a mark and ends wait_for_input(); a second Ctrl-C before take_interrupt() ends the
/// program. An ignored Ctrl-C stays ignored.
void mark_interrupts();
bool interrupt_marked();
bool take_interrupt();  ///< returns and clears the mark
/// Waits until `descriptor` is readable or Ctrl-C is marked, even if it came just before. Returns false if it is
/// marked.
bool wait_for_input(int descriptor);

}  // namespace tessera::app
