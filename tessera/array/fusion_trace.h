// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::detail {

/// True if evaluations of pending expressions are printed, because of trace_fusion(true) or TESSERA_TRACE_FUSION.
bool fusion_traced();

}  // namespace tessera::detail
