// SPDX-License-Identifier: Apache-2.0
// Block arrays as arguments of tasks.
#include <cmath>

#include <gtest/gtest.h>

#include "tessera/array/functions.h"
#include "tessera/kernel/kernel.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/task/block_array.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
Floats values_of(const BlockArray& a) { return a.gather(Device{}).to_vector<float>(); }
/// Returns the device under test, the CPU and interpreters.
Scope several() { return Scope(current_device()) | cpu() | interp({0, 1}); }

TEST_P(OnEveryDevice, BlockArraysCanBeTaskArguments) {
  BlockArray a = BlockArray::full({5, 7}, {2, 3}, 2, DType::f32, several());
  BlockArray b = BlockArray::zeros({5, 7}, {2, 3}, DType::f32, several());
  Region r({.scope = Scope(GetParam())});
  for (int i = 0; i < 3; ++i) {
    r.spawn(
        [](const BlockArray& x, BlockArray& y) {
          for (const Tile& t : y.tiles()) EXPECT_EQ(t.device(), this_task::device());
          y.for_each_tile([](Array& t) { t += 1; });
          y.assign({0, 0}, (y + x));
        },
        in(a), inout(b));
    Array tile = a.tile(1, 1).array();  // another task also writes one of the tiles
    r.spawn([](Array& t) { t += 1; }, inout(tile));
  }
  const Task<float> total = r.spawn([](const BlockArray& y) { return sum(y).item<float>(); }, b);
  BlockArray c = BlockArray::empty({5, 7}, {2, 3}, DType::f32, several());
  r.spawn([](BlockArray& z) { z.fill(4); }, out(c));
  r.wait();
  // Tile (1, 1) has 2 x 3 elements; its values in `a` were 2, then 3, then 4. All other elements of `a` were 2 each
  // time.
  EXPECT_EQ(total.fetch(), 29 * (3 + 3 * 2) + 6 * (3 + 2 + 3 + 4));
  EXPECT_EQ(values_of(c), Floats(35, 4));
  EXPECT_EQ(values_of(b)[0], 9);
  EXPECT_EQ(values_of(b)[2 * 7 + 3], 12);
}

TEST_P(OnEveryDevice, TilesCanBeTaskArguments) {
  BlockArray a = BlockArray::full({6, 6}, {3, 3}, 2, DType::f32, several());
  const Tile first = a.tile(0, 0);
  Region r({.scope = Scope(GetParam())});
  const auto total = r.spawn([](const Array& t) { return sum(t).item<float>(); }, first);  // only read
  for (int i = 0; i < 4; ++i) r.spawn([](Array& t) { t += 1; }, commute(a.tile(1, 1)));  // tiles are temporary objects
  for (int i = 0; i < 4; ++i) r.spawn([i](Array& t) { t += i; }, reduce(Combine::sum, a.tile(0, 1)));
  r.spawn([](Array& t) { t.slice(0, 0, 1) += 5; }, inout(upper(a.tile(1, 0))));
  r.spawn([](Array& t) { t.slice(0, 2, 3).slice(1, 0, 2) += 7; }, inout(unit_lower(a.tile(1, 0))));
  const auto doubled = kernel("double_tile", [](Buffer<float> t) { t[global_id()] *= 2; });
  r.spawn(doubled, Extent{9}, first);  // the kernel's signature shows that it is written
  r.wait();
  EXPECT_EQ(total.fetch(), 18);
  const auto values = [&](std::int64_t i, std::int64_t j) {
    return a.tile(i, j).array().to(Device{}).to_vector<float>();
  };
  EXPECT_EQ(values(0, 0), Floats(9, 4));
  EXPECT_EQ(values(1, 1), Floats(9, 6));
  EXPECT_EQ(values(0, 1), Floats(9, 2 + 0 + 1 + 2 + 3));
  EXPECT_EQ(values(1, 0), (Floats{7, 7, 7, 2, 2, 2, 9, 9, 2}));
  EXPECT_EQ(sum(first).to(Device{}).item<float>(), 36) << "and of array functions";
  // A task that declared only a read may not write.
  const auto writes = r.spawn(
      {.scope = first.device()}, [](const Array& t) { Array(t) += 1; }, first);
  expect_throw<TaskError>([&] { writes.wait(); }, {"was passed as in"});
  EXPECT_THROW(r.wait(), TaskError);
}

TEST_P(OnEveryDevice, BlockAlgorithmsRunInsideTasks) {
  const BlockArray a = BlockArray::random_uniform({12, 12}, {4, 4}, 1, several());
  const BlockArray spd = matmul(a, transpose(a)) + 12 * BlockArray::identity(12, {4, 4}, DType::f32, several());
  const BlockArray right = BlockArray::random_uniform({12, 4}, {4, 4}, 2, several());
  BlockArray c = BlockArray::zeros({12, 12}, {4, 4}, DType::f32, several());
  Region r({.scope = Scope(GetParam())});
  const Task<float> products =
      r.spawn([](const BlockArray& x, const BlockArray& y) { return sum(matmul(x, y) + matmul(y, x)).item<float>(); },
              in(a), in(spd));
  const Task<float> wrong = r.spawn(
      [](const BlockArray& m, const BlockArray& b) {
        const BlockArray l = cholesky(m);
        const BlockArray x = solve_triangular(l, b);
        const BlockArray off = matmul(l, x) - b, off_l = matmul(l, transpose(l)) - m;
        return max(off * off).item<float>() + max(off_l * off_l).item<float>();
      },
      in(spd), in(right));
  r.spawn([](BlockArray& to, const BlockArray& x) { to.assign({0, 0}, matmul(x, x)); }, inout(c), in(a));
  r.wait();
  EXPECT_LE(wrong.fetch(), 1e-8f);
  const Array whole = a.gather(Device{}), s = spd.gather(Device{});
  const float expected = sum(matmul(whole, s) + matmul(s, whole)).item<float>();
  EXPECT_NEAR(products.fetch(), expected, 1e-5f * std::abs(expected));
  EXPECT_LE(max(abs(c.gather(Device{}) - matmul(whole, whole))).item<float>(), 1e-4f);
}

TEST_P(OnEveryDevice, TasksCanReturnBlockArrays) {
  BlockArray a = BlockArray::ones({4, 4}, {2, 2}, DType::f32, Scope(GetParam()));
  Region r({.scope = Scope(GetParam())});
  const Task<BlockArray> twice = r.spawn([](const BlockArray& x) { return x + x; }, in(a));
  r.spawn([](BlockArray& x) { x.fill(100); }, inout(a));  // the deferred result must be computed before this
  const Task<BlockArray> thrice = r.spawn([](const BlockArray& x) { return x + 1; }, twice);
  r.wait();
  EXPECT_EQ(values_of(twice.fetch()), Floats(16, 2));
  EXPECT_EQ(values_of(thrice.fetch()), Floats(16, 3));
}

TEST_P(OnEveryDevice, BlockProductAddsItsTasksToTheRegion) {
  const BlockArray a = BlockArray::random_uniform({7, 5}, {3, 2}, 1, several()),
                   b = BlockArray::random_uniform({5, 6}, {2, 4}, 2, several());
  BlockArray c = BlockArray::full({7, 6}, {3, 4}, std::nan(""), DType::f32, several());
  Region r;
  matmul(r, out(c), in(a), in(b));
  matmul(r, inout(c), in(a), in(b));
  r.spawn([](BlockArray& x) { x.for_each_tile([](Array& t) { t *= 2; }); }, inout(c));
  r.wait();
  const Floats once = matmul(a.gather(Device{}), b.gather(Device{})).to_vector<float>(), got = values_of(c);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], 4 * once[i], 1e-4f);
  expect_throw<ArgumentError>([&] { matmul(r, in(c), in(a), in(b)); }, {"c = in", "out(c)"});
  BlockArray wrong = BlockArray::zeros({7, 6}, {2, 4}, DType::f32, several());
  expect_throw<ShapeError>([&] { matmul(r, out(wrong), in(a), in(b)); }, {"do not match", "retile((2, 2))"});
  expect_throw<ShapeError>([&] { matmul(r, out(c), in(b), in(a)); }, {"(7, 6)", "(5, 6)"});
}

}  // namespace
}  // namespace tessera
