// SPDX-License-Identifier: Apache-2.0
// Bisection of a box. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

/// Rounds to f32 downward (`down`) or upward.
float round_outward(double v, bool down);

/// A binary tree of sub-boxes. The halves of a box share no float, so nothing is counted twice and a box can be
/// bisected down to single inputs.
class BoxTree {
 public:
  BoxTree() : all_(1) {}
  /// Bisects a part; returns the first half, which the second follows.
  std::int32_t split(std::int32_t part, std::int32_t dimension);
  void decide(std::int32_t part, bool by_lines) { at(part).dimension = by_lines ? by_linear_bounds : by_intervals; }
  Region region(const Region& root, std::int32_t part) const;
  /// True if part numbers are exhausted.
  bool full() const { return all_.size() > (1u << 31) - 4; }
  std::size_t bytes() const { return all_.capacity() * sizeof(Part); }
  /// In pre-order, as Proof::tree.
  std::vector<std::int32_t> in_order() const;

  static constexpr std::int32_t by_intervals = -1, by_linear_bounds = -2;
  /// Replaces a region by one of its halves.
  static void halve(Region& region, std::int32_t dimension, bool upper);

 private:
  struct Part {
    std::int32_t parent = -1, child = -1, dimension = -3;
  };
  Part& at(std::int32_t part) { return all_[static_cast<std::size_t>(part)]; }
  const Part& at(std::int32_t part) const { return all_[static_cast<std::size_t>(part)]; }
  std::vector<Part> all_;
};

/// Bounds that contain those of several parts.
struct Hull {
  std::vector<double> lo, hi;
  void add(const Analysis::Bounds& bounds);
};

}  // namespace tessera::verification
