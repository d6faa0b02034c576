// SPDX-License-Identifier: Apache-2.0
// Ctrl-C in commands that have something to keep: it asks for an end at the next good place. Pressed again it ends the
// program as usual, and so it does at once before there is anything to keep, since a driver may be compiling for
// seconds.
#pragma once

namespace tessera::app {

/// From now on. `nothing` is what is said, as a line of its own, where Ctrl-C comes before there is something to keep;
/// `overwrites`: a line of progress may stand there. Not where the program was started with Ctrl-C ignored (nohup, a
/// script's background job): then it stays so.
void catch_interrupts(const char* nothing, bool overwrites);
void enable_graceful_stop();  ///< there is from now on
bool stop_requested();

/// From now on Ctrl-C ends nothing but what looks at this mark, and `wait_for_input`; pressed again before somebody
/// took the mark away it ends the program. Where Ctrl-C is ignored it stays so.
void mark_interrupts();
bool interrupt_marked();
bool take_interrupt();  ///< whether there was one; from now on there is none
/// Waits until `descriptor` can be read or Ctrl-C is marked, even if it came just before; false where it is marked.
bool wait_for_input(int descriptor);

}  // namespace tessera::app
