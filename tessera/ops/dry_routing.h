// SPDX-License-Identifier: Apache-2.0
// Internal. How a dry run divides tokens among experts (experts.h).
#pragma once

#include <cstdint>
#include <span>

namespace tessera::ops {

/// While this object exists, dry runs of this thread assume that the second expert of a layer and those after it have
/// these numbers of rows, and the first one all others. Without it, the first expert has all rows, which needs the most
/// memory. The numbers must outlive the object.
class DryRouting {
 public:
  explicit DryRouting(std::span<const std::int64_t> rows);
  DryRouting(const DryRouting&) = delete;
  ~DryRouting();
  /// The numbers of the object that exists, or none.
  static std::span<const std::int64_t> rows();
};

}  // namespace tessera::ops
