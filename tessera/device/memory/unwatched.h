// SPDX-License-Identifier: Apache-2.0
// Writes to memory of which no task has said anything. Tasks are behind it (task/), which this layer does not know.
#pragma once

namespace tessera {

class Storage;

using BeforeUnwatchedWrite = void (*)(Storage& storage);
/// Called before the calling thread changes memory that had contents and has no Elsewhere; it may give it one. Null,
/// unless the thread runs a task.
extern constinit thread_local BeforeUnwatchedWrite before_unwatched_write;

}  // namespace tessera
