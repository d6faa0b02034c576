// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/products.h"

#include "tessera/base/error.h"
#include "tessera/ops/linear_algebra.h"

namespace tessera {
namespace {

/// Returns the function of a product task.
auto product_of(const Accessed& c, const Accessed& a, const Accessed& b) {
  check_product_modes(c.mode, a.mode, b.mode);
  return [how = Update{.beta = c.mode == Access::out ? 0.0 : 1.0}](Array& to, const Array& left, const Array& right) {
    multiply_into(to, left, right, how);
  };
}

}  // namespace

void check_product_modes(Access c, Access a, Access b) {
  const auto refuse = [](const char* operand, Access mode, const char* wanted) {
    fail<ArgumentError>({.operation = "matmul of tasks",
                         .with = {{operand, to_string(mode)}},
                         .wrong = std::string("expected ") + wanted});
  };
  if (c != Access::out && c != Access::inout) refuse("c", c, "out(c) for c = a b, or inout(c) for c = c + a b");
  if (a != Access::in) refuse("a", a, "in(a)");
  if (b != Access::in) refuse("b", b, "in(b)");
}

Task<void> matmul(Region& region, const Accessed& c, const Accessed& a, const Accessed& b) {
  return region.spawn({.name = "matmul"}, product_of(c, a, b), c, a, b);
}
Task<void> matmul(const Accessed& c, const Accessed& a, const Accessed& b) {
  return spawn({.name = "matmul"}, product_of(c, a, b), c, a, b);
}

}  // namespace tessera
