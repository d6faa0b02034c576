// SPDX-License-Identifier: Apache-2.0
// A box and how it is halved, again and again. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

/// The nearest float that is not above the number (`down`), or not below it.
float round_outward(double v, bool down);

/// A tree of parts. Each half of a part has the floats that the other has not, so nothing is counted twice and a box
/// can be halved down to single inputs.
class BoxTree {
 public:
  BoxTree() : all_(1) {}
  /// Halves it; the first of two parts, one behind the other.
  std::int32_t split(std::int32_t part, std::int32_t dimension);
  void decide(std::int32_t part, bool by_lines) { at(part).dimension = by_lines ? by_linear_bounds : by_intervals; }
  Region region(const Region& root, std::int32_t part) const;
  /// No more can be numbered.
  bool full() const { return all_.size() > (1u << 31) - 4; }
  std::size_t bytes() const { return all_.capacity() * sizeof(Part); }
  /// In pre-order, as Proof::tree.
  std::vector<std::int32_t> in_order() const;

  static constexpr std::int32_t by_intervals = -1, by_linear_bounds = -2;
  /// One of the two halves.
  static void halve(Region& region, std::int32_t dimension, bool upper);

 private:
  struct Part {
    std::int32_t parent = -1, child = -1, dimension = -3;
  };
  Part& at(std::int32_t part) { return all_[static_cast<std::size_t>(part)]; }
  const Part& at(std::int32_t part) const { return all_[static_cast<std::size_t>(part)]; }
  std::vector<Part> all_;
};

/// The bounds that hold for several parts.
struct Hull {
  std::vector<double> lo, hi;
  void add(const Analysis::Bounds& bounds);
};

}  // namespace tessera::verification
