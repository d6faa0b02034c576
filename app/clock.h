// SPDX-License-Identifier: Apache-2.0
#pragma once
// Time in seconds, for progress and measurements.

#include <chrono>

namespace tessera::app {

/// Seconds of the monotonic clock.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The time that a function takes, in seconds.
template <class Work>
double seconds_of(Work&& work) {
  const double start = now();
  work();
  return now() - start;
}

}  // namespace tessera::app
