// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/box_tree.h"

#include <algorithm>
#include <cmath>

namespace tessera::verification {

float round_outward(double v, bool down) {
  const auto f = static_cast<float>(v);
  if (down) return static_cast<double>(f) > v ? std::nextafter(f, -INFINITY) : f;
  return static_cast<double>(f) < v ? std::nextafter(f, INFINITY) : f;
}

std::int32_t BoxTree::split(std::int32_t part, std::int32_t dimension) {
  const auto child = static_cast<std::int32_t>(all_.size());
  at(part).dimension = dimension, at(part).child = child;
  all_.push_back({.parent = part}), all_.push_back({.parent = part});
  return child;
}

void BoxTree::halve(Region& region, std::int32_t dimension, bool upper) {
  const auto d = static_cast<std::size_t>(dimension);
  float &lo = region.lo[d], &hi = region.hi[d];
  float middle = static_cast<float>(lo + (static_cast<double>(hi) - lo) / 2);
  if (!(middle < hi)) middle = std::nextafter(hi, -INFINITY);
  (upper ? lo : hi) = upper ? std::nextafter(middle, INFINITY) : middle;
}

Region BoxTree::region(const Region& root, std::int32_t part) const {
  std::vector<std::int32_t> path;
  for (std::int32_t p = part; at(p).parent >= 0; p = at(p).parent) path.push_back(p);
  Region out = root;
  for (auto p = path.rbegin(); p != path.rend(); ++p) {
    const Part& parent = at(at(*p).parent);
    halve(out, parent.dimension, *p != parent.child);
  }
  return out;
}

std::vector<std::int32_t> BoxTree::in_order() const {
  std::vector<std::int32_t> out, stack{0};
  while (!stack.empty()) {
    const Part& part = at(stack.back());
    stack.pop_back();
    out.push_back(part.dimension);
    if (part.child >= 0) stack.push_back(part.child + 1), stack.push_back(part.child);
  }
  return out;
}

void Hull::add(const Analysis::Bounds& bounds) {
  if (lo.empty()) lo = bounds.lo, hi = bounds.hi;
  for (std::size_t i = 0; i < lo.size(); ++i)
    lo[i] = std::min(lo[i], bounds.lo[i]), hi[i] = std::max(hi[i], bounds.hi[i]);
}

}  // namespace tessera::verification
