// SPDX-License-Identifier: Apache-2.0
// Evaluates deferred expressions before the memory that they read is overwritten (Storage::flush_readers). Internal.
#pragma once

namespace tessera::detail {

/// True while this thread evaluates deferred expressions in Storage::flush_readers. Its reads see the old contents even
/// if another thread is waiting to write: that write cannot start until the expressions have been evaluated.
bool is_flushing() noexcept;

}  // namespace tessera::detail
