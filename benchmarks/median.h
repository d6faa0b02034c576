// SPDX-License-Identifier: Apache-2.0
// Time and medians, for benchmarks of several processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace tessera {

/// Seconds since an arbitrary point.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The median of at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace tessera
