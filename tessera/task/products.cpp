// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/products.h"

#include "tessera/base/error.h"
#include "tessera/ops/linear_algebra.h"

namespace tessera {
namespace {

/// What the task does.
auto product_of(const Accessed& c, const Accessed& a, const Accessed& b) {
  const auto refuse = [](const char* operand, const Accessed& given, const char* wanted) {
    fail<ArgumentError>({.asked = "matmul of tasks",
                         .with = {{operand, to_string(given.mode)}},
                         .wrong = std::string("it is to be ") + wanted});
  };
  if (c.mode != Access::out && c.mode != Access::inout)
    refuse("c", c, "out(c) for c = a b, or inout(c) for c = c + a b");
  if (a.mode != Access::in) refuse("a", a, "in(a)");
  if (b.mode != Access::in) refuse("b", b, "in(b)");
  return [how = Update{.beta = c.mode == Access::out ? 0.0 : 1.0}](Array& to, const Array& left, const Array& right) {
    multiply_into(to, left, right, how);
  };
}

}  // namespace

Task<void> matmul(Region& region, const Accessed& c, const Accessed& a, const Accessed& b) {
  return region.spawn({.name = "matmul"}, product_of(c, a, b), c, a, b);
}
Task<void> matmul(const Accessed& c, const Accessed& a, const Accessed& b) {
  return spawn({.name = "matmul"}, product_of(c, a, b), c, a, b);
}

}  // namespace tessera
