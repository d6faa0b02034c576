// SPDX-License-Identifier: Apache-2.0
// Bisects a box into parts. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

/// Rounds to f32, downward if `down` is true, otherwise upward.
float round_outward(double v, bool down);

/// A binary tree of sub-boxes. The halves of a box have no float in common, so no input is counted twice, and a box can
/// be bisected until its parts are single inputs.
class BoxTree {
 public:
  BoxTree() : all_(1) {}
  /// Bisects a part. Returns the index of the first half; the index of the second half is one greater.
  std::int32_t split(std::int32_t part, std::int32_t dimension);
  void decide(std::int32_t part, bool by_lines) { at(part).dimension = by_lines ? by_linear_bounds : by_intervals; }
  Region region(const Region& root, std::int32_t part) const;
  /// Returns true if no more parts can be numbered.
  bool full() const { return all_.size() > (1u << 31) - 4; }
  std::size_t bytes() const { return all_.capacity() * sizeof(Part); }
  /// Returns the tree in pre-order, in the format of Proof::tree.
  std::vector<std::int32_t> in_order() const;

  static constexpr std::int32_t by_intervals = -1, by_linear_bounds = -2;
  /// Replaces a region by its lower or upper half.
  static void halve(Region& region, std::int32_t dimension, bool upper);

 private:
  struct Part {
    std::int32_t parent = -1, child = -1, dimension = -3;
  };
  Part& at(std::int32_t part) { return all_[static_cast<std::size_t>(part)]; }
  const Part& at(std::int32_t part) const { return all_[static_cast<std::size_t>(part)]; }
  std::vector<Part> all_;
};

/// The smallest bounds that contain the bounds of several parts.
struct Hull {
  std::vector<double> lo, hi;
  void add(const Analysis::Bounds& bounds);
};

}  // namespace tessera::verification
