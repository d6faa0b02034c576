// SPDX-License-Identifier: Apache-2.0
// A timeline in Chrome's trace event format (Perfetto reads it). Internal.
#pragma once

#include <ostream>

#include "tessera/task/timeline.h"

namespace tessera::detail::tracing {

/// What happened from `since` on; times count from there.
void write_trace(std::ostream& to, const Timeline& timeline, std::int64_t since, std::uint64_t dropped);

}  // namespace tessera::detail::tracing
