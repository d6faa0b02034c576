// SPDX-License-Identifier: Apache-2.0
// Writes a timeline in Chrome's trace event format, which Perfetto can read. Internal.
#pragma once

#include <ostream>

#include "tessera/task/timeline.h"

namespace tessera::detail::tracing {

/// Writes the events after `since`. Times are relative to `since`.
void write_trace(std::ostream& to, const Timeline& timeline, std::int64_t since, std::uint64_t dropped);

}  // namespace tessera::detail::tracing
