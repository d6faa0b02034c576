// SPDX-License-Identifier: Apache-2.0
// What is deferred on memory that is about to be written is computed before (Storage::flush_readers). Internal.
#pragma once

namespace tessera::detail {

/// Whether this thread does so now: what it reads for that is as it was meant, whoever is to write it. Nobody has begun
/// to, or it would have been computed then.
bool is_flushing() noexcept;

}  // namespace tessera::detail
