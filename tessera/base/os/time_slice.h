// SPDX-License-Identifier: Apache-2.0
// The share of a core that the scheduler gives to a thread at a time. Operating system layer.
#pragma once

namespace tessera::os {

/// Requests short time slices for the calling thread. When it wakes on an occupied core, it then runs within a fraction
/// of a millisecond instead of several. For threads that poll and mostly sleep. Has no effect on Linux before 6.12.
void request_short_slices() noexcept;

}  // namespace tessera::os
