// SPDX-License-Identifier: Apache-2.0
// A timeline in Chrome's trace event format (Perfetto reads it). Internal.
#pragma once

#include <ostream>

#include "tessera/task/timeline.h"

namespace tessera::detail::tracing {

/// Writes the events from `since` on; times are relative to it.
void write_trace(std::ostream& to, const Timeline& timeline, std::int64_t since, std::uint64_t dropped);

}  // namespace tessera::detail::tracing
