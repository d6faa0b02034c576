// SPDX-License-Identifier: Apache-2.0
// Evaluates deferred expressions before the memory that they read is written (Storage::flush_readers). Internal.
#pragma once

namespace tessera::detail {

/// True while this thread does so. Its reads then see the old contents, even if another thread is about to write: no
/// writer has started, or the expression would have been computed before.
bool is_flushing() noexcept;

}  // namespace tessera::detail
