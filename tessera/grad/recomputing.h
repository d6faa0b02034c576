// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::detail {

/// True while the backward pass re-runs a recomputed function, so that side effects such as running statistics are
/// applied only once.
bool is_recomputing();

}  // namespace tessera::detail
