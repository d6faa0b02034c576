// SPDX-License-Identifier: Apache-2.0
// Block arrays and regions over ranks: results have the same bits as in one process, and tiles are sent once.
#include <gmock/gmock.h>

#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "tessera/dist/array_collectives.h"
#include "tessera/dist/map.h"
#include "tessera/dist/rank_trace.h"
#include "tessera/dist/tile_exchange.h"
#include "tessera/task/block_access.h"
#include "tessera/task/trace.h"
#include "tests/dist/worlds.h"
#include "tests/support/folder.h"
#include "tests/task/trace_events.h"

using namespace tessera;
using testing::HasSubstr;

namespace {

/// The scope of block arrays in these tests: the device of each rank.
Scope places(dist::World& world) {
  const Backend backend = test::device_of(world.rank()).backend;
  return world.all(BackendScope{backend});
}

std::vector<std::byte> bits(const Array& a) {
  std::vector<std::byte> out(a.bytes());
  if (a.size() != 0) a.download(out.data());
  return out;
}

/// Computes f(scope) on one process, and on several ranks, and compares the bits of the gathered results on each rank.
void expect_same_bits(const Callback<std::vector<Array>(const Scope&)>& f) {
  const DeviceScope scope(test::device_of(0));
  const std::vector<Array> expected = f(Scope(current_device()));
  for (const int n : test::rank_counts()) {
    SCOPED_TRACE(std::to_string(n) + " ranks");
    test::on_ranks(n, [&](dist::World& world) {
      const std::vector<Array> got = f(places(world));
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].shape(), expected[i].shape()) << "result " << i;
        EXPECT_EQ(got[i].dtype(), expected[i].dtype()) << "result " << i;
        EXPECT_EQ(bits(got[i]), bits(expected[i])) << "result " << i << ", rank " << world.rank();
      }
    });
  }
}

BlockArray positive_definite(std::int64_t n, std::int64_t tile, const Scope& scope) {
  const BlockArray a = BlockArray::random_uniform({n, n}, {tile, tile}, 3, scope);
  return matmul(a, transpose(a)) + static_cast<double>(n) * BlockArray::identity(n, {tile, tile}, DType::f32, scope);
}

TEST(RankBlocks, FactoriesAndCopies) {
  expect_same_bits([](const Scope& s) {
    const BlockArray a = BlockArray::random_normal({23, 17}, {5, 4}, 7, s);
    BlockArray b = BlockArray::full({23, 17}, {5, 4}, 3, DType::i64, s);
    b.assign({4, 3}, BlockArray::from(Array::arange(60, 0, 1, DType::i64).reshape({6, 10}), {4, 4}, s));
    BlockArray c = a.copy();
    c.fill(2);
    c.for_each_tile([](Array& t) { t += 1; });
    return std::vector<Array>{a.gather(),
                              b.gather(),
                              c.gather(),
                              a.slice({2, 1}, {19, 16}).gather(),
                              a.retile({7, 9}).gather(),
                              a.retile({30, 30}).gather(),
                              a.transpose().gather(),
                              a.to(s, by_rows()).gather(),
                              a.to(s, by_columns()).gather(),
                              a.to(Scope(current_device())).gather(),
                              BlockArray::identity(9, {4, 4}, DType::f64, s).gather(),
                              BlockArray::zeros({0, 4}, {2, 2}, DType::f32, s).gather(),
                              BlockArray::ones({}, {}, DType::f32, s).gather()};
  });
}

TEST(RankBlocks, FilesAreWrittenByRankZero) {
  const test::Folder folder;
  const DeviceScope scope(test::device_of(0));
  const Array expected =
      BlockArray::random_normal({23, 17}, {5, 4}, 7, Scope(current_device())).gather(Device{Backend::cpu, 0});
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      const std::string path = world.broadcast(folder / "a.npy");  // processes have folders of their own
      const Scope s = places(world);
      BlockArray::random_normal({23, 17}, {5, 4}, 7, s).save_npy(path);
      const BlockArray a = BlockArray::load_npy(path, {6, 7}, s);
      EXPECT_EQ(bits(a.gather()), bits(expected)) << n << " ranks";  // all ranks have read their tiles
      BlockArray::zeros({0, 4}, {2, 2}, DType::f32, s).save_npy(path);
      EXPECT_EQ(load_npy(path).shape(), (Shape{0, 4}));
      EXPECT_THROW(a.save_npy("/dev/full"), ArgumentError);
    });
}

TEST(RankBlocks, ElementwiseAndReductions) {
  expect_same_bits([](const Scope& s) {
    const BlockArray a = BlockArray::random_normal({19, 13}, {4, 5}, 1, s),
                     b = BlockArray::random_normal({19, 13}, {6, 2}, 2, s);
    const BlockArray row = BlockArray::random_uniform({1, 13}, {1, 5}, 4, s);
    const BlockArray integers = (a * 10).astype(DType::i32);
    BlockArray c = a + b * 2 - row;
    c += a;
    c *= row;
    c -= b.retile({3, 3});
    c += Array::ones({19, 1});
    BlockArray plain = BlockArray::ones({19, 13}, {4, 5});
    plain += a;
    return std::vector<Array>{c.gather(),
                              plain.gather(),
                              where(a > 0, b, 1).gather(),
                              map([](const Array& t) { return exp(t); }, a).gather(),
                              (a + Array::ones({13})).gather(),
                              sum(a),
                              mean(a),
                              max(a),
                              min(b),
                              any(a > 2),
                              all(a < 100),
                              mean(integers),
                              sum(a, 0).gather(),
                              mean(a, 1, false).gather(),
                              max(a, {0, 1}).gather(),
                              mean(integers, 0).gather(),
                              sum(a.astype(DType::f16), 1).gather(),
                              (a - mean(a, 1)).gather()};
  });
}

TEST(RankBlocks, LinearAlgebra) {
  expect_same_bits([](const Scope& s) {
    const BlockArray a = BlockArray::random_normal({50, 34}, {16, 8}, 5, s),
                     b = BlockArray::random_normal({34, 40}, {8, 9}, 6, s);
    BlockArray c = BlockArray::ones({50, 40}, {16, 9}, DType::f32, s);
    matmul_into(c, a, b, 0.5, 2);
    BlockArray d = BlockArray::zeros({50, 50}, {16, 16}, DType::f32, s);
    syrk_into(d, a);
    const BlockArray p = positive_definite(60, 16, s), l = cholesky(p);
    const BlockArray v = BlockArray::random_normal({34}, {8}, 9, s);
    return std::vector<Array>{matmul(a, b).gather(),
                              matmul(a, b.retile({5, 7})).gather(),
                              matmul(a, v).gather(),
                              c.gather(),
                              d.gather(),
                              l.gather(),
                              solve_triangular(l, p).gather(),
                              solve_triangular(l, p, true).gather()};
  });
}

TEST(RankBlocks, ProductOfTilesThatOneProcessPacks) {
  expect_same_bits([](const Scope& s) {
    const BlockArray a = BlockArray::random_normal({1600, 384}, {384, 384}, 5, s),
                     b = BlockArray::random_normal({384, 384}, {384, 384}, 6, s);
    return std::vector<Array>{matmul(a, b).gather()};
  });
}

TEST(RankBlocks, Stencils) {
  expect_same_bits([](const Scope& s) {
    std::vector<Array> all;
    for (const Edge edge : {Edge::wrap, Edge::clamp, Edge::pad}) {
      BlockArray a = BlockArray::random_uniform({30, 26}, {8, 9}, 8, s);
      for (int step = 0; step < 3; ++step)
        a = stencil(a, {.edge = edge, .value = 2},
                    [](const Neighbours& n) { return n(-1, 0) + n(1, 0) + n(0, -1) + n(0, 1) - 3.5 * n(0, 0); });
      all.push_back(a.gather());
    }
    return all;
  });
}

/// Random tasks on tiles: each reads some tiles and writes others.
TEST(RankBlocks, RandomPrograms) {
  const unsigned seed = test::shared_seed();
  for (unsigned k = 0; k < (std::getenv("TESSERA_TEST_LONG") != nullptr ? 100u : 8u); ++k) {
    SCOPED_TRACE("seed " + std::to_string(seed + k));
    expect_same_bits([&](const Scope& s) {
      std::mt19937 random(seed + k);
      const auto below = [&](std::size_t n) { return static_cast<std::int64_t>(random() % n); };
      const Shape tile{1 + below(40), 1 + below(40)};
      const BlockArray a =
          BlockArray::random_normal({3 * tile[0], 3 * tile[1]}, tile, k, s, below(2) != 0 ? by_rows() : Distribution());
      const Array total = Array::zeros(tile);
      const auto any_tile = [&] { return a.tile(below(3), below(3)); };
      Region r;
      for (int task = 0; task < 60; ++task) {
        const Tile x = any_tile(), y = any_tile();
        switch (below(6)) {
          case 0: r.spawn([](const Array& from, Array& to) { to.assign(from * 2); }, in(x), out(y)); break;
          case 1: r.spawn([](const Array& from, Array& to) { to.assign(to * 0.5 + from); }, in(x), inout(y)); break;
          case 2: r.spawn([](Array& to) { to += 1; }, inout(y)); break;
          case 3: r.spawn([](const Array& from, Array& sum) { sum += from; }, in(x), inout(total)); break;
          case 4: r.spawn([](Array& to) { to.assign(to * 0.25); }, inout(upper(y))); break;
          default:
            r.spawn([](const std::vector<Array>& from, Array& to) { to.assign(from[0] - from[1] * 0.5); },
                    std::vector<Accessed>{in(x), in(any_tile())}, inout(y));
        }
        if (below(20) == 0) r.wait();
      }
      r.wait();
      return std::vector<Array>{a.gather(), total};
    });
  }
}

TEST(RankBlocks, TilesHaveOwners) {
  test::on_ranks(test::launched_world != nullptr ? test::launched_world->size() : 3, [](dist::World& world) {
    const BlockArray a = BlockArray::zeros({4, 6}, {2, 2}, DType::f32, places(world), by_rows());
    for (const Tile& t : a.tiles()) {
      EXPECT_EQ(t.owner(), t.index()[0] * world.size() / 2);
      EXPECT_EQ(t.here(), t.owner() == world.rank());
      EXPECT_EQ(t.shape(), (Shape{2, 2}));
      if (t.here()) {
        EXPECT_EQ(t.array().shape(), (Shape{2, 2}));
        continue;
      }
      try {
        t.array();
        ADD_FAILURE();
      } catch (const ArgumentError& e) {
        EXPECT_THAT(e.what(), HasSubstr("owner = rank " + std::to_string(t.owner())));
      }
      EXPECT_THROW(spawn([](const Array&) {}, t), ArgumentError);
    }
    EXPECT_THAT(a.where(), HasSubstr("rank 0 "));
    EXPECT_THAT(to_string(places(world)), HasSubstr(" of ranks 0, 1"));
    world.barrier();
  });
}

/// Number of bytes that block Cholesky sends: each tile of a panel once to each rank that needs it.
std::uint64_t cholesky_bytes(const BlockArray& a) {
  std::uint64_t bytes = 0;
  const std::int64_t n = a.grid()[0];
  const auto send = [&](const Tile& t, const std::set<int>& to) {
    bytes += (to.size() - to.count(t.owner())) * static_cast<std::uint64_t>(element_count(t.shape())) * 4;
  };
  for (std::int64_t k = 0; k < n; ++k) {
    std::set<int> column;
    for (std::int64_t i = k + 1; i < n; ++i) column.insert(a.tile(i, k).owner());
    send(a.tile(k, k), column);
    for (std::int64_t i = k + 1; i < n; ++i) {
      std::set<int> to;
      for (std::int64_t j = k + 1; j <= i; ++j) to.insert(a.tile(i, j).owner());
      for (std::int64_t j = i; j < n; ++j) to.insert(a.tile(j, i).owner());
      send(a.tile(i, k), to);
    }
  }
  return bytes;
}

/// The bytes that a product sends: a tile of a to the other ranks of its row of the grid, and a tile of b to those of
/// its column.
std::uint64_t product_bytes(const BlockArray& a, const BlockArray& b, const BlockArray& c) {
  std::uint64_t total = 0;
  const auto tiles = [](const BlockArray& x, int axis) { return x.shape()[axis] / x.tile_shape()[axis]; };
  for (std::int64_t k = 0; k < tiles(a, 1); ++k) {
    for (std::int64_t i = 0; i < tiles(a, 0); ++i) {
      std::set<int> readers;
      for (std::int64_t j = 0; j < tiles(c, 1); ++j) readers.insert(c.tile(i, j).owner());
      readers.erase(a.tile(i, k).owner());
      total += readers.size() * static_cast<std::uint64_t>(a.tile_shape()[0] * a.tile_shape()[1] * 4);
    }
    for (std::int64_t j = 0; j < tiles(b, 1); ++j) {
      std::set<int> readers;
      for (std::int64_t i = 0; i < tiles(c, 0); ++i) readers.insert(c.tile(i, j).owner());
      readers.erase(b.tile(k, j).owner());
      total += readers.size() * static_cast<std::uint64_t>(b.tile_shape()[0] * b.tile_shape()[1] * 4);
    }
  }
  return total;
}

TEST(RankBlocks, TilesAreSentOnce) {
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      BlockArray a = positive_definite(96, 8, places(world));
      const auto sent_by_all = [&] {
        const std::vector<std::uint64_t> each = world.gather(world.sent_tile_bytes());
        return std::accumulate(each.begin(), each.end(), std::uint64_t{0});
      };
      const std::uint64_t before = sent_by_all();
      BlockArray copy = a.copy();
      EXPECT_EQ(sent_by_all(), before);
      cholesky_into(copy);
      const std::uint64_t extra = n == 1 ? 0 : static_cast<std::uint64_t>(n - 1) * 12 * 4;  // the failures are gathered
      EXPECT_EQ(sent_by_all() - before, (n == 1 ? 0 : cholesky_bytes(a)) + extra);
      const BlockArray left = BlockArray::ones({72, 48}, {8, 8}, DType::f32, places(world));
      const BlockArray right = BlockArray::ones({48, 40}, {8, 4}, DType::f32, places(world));
      const std::uint64_t before_product = sent_by_all();
      const BlockArray product = matmul(left, right);
      EXPECT_EQ(sent_by_all() - before_product, n == 1 ? 0 : product_bytes(left, right, product));
    });
}

/// The product and the factorisation need the copies of at most two steps, also if tasks are slower than planning.
TEST(RankBlocks, CopiesOfFewStepsExist) {
  const int n = test::launched_world != nullptr ? test::launched_world->size() : 4;
  test::on_ranks(n, [&](dist::World& world) {
    BlockArray a = positive_definite(128, 4, places(world));
    const BlockArray b = a.copy();
    const std::size_t panel = 32;
    matmul(a, b);
    EXPECT_LE(BlockArrayAccess::ranks(a)->most_copies() + BlockArrayAccess::ranks(b)->most_copies(), 4 * panel);
    BlockArray c = a.copy();
    cholesky_into(c);
    EXPECT_LE(BlockArrayAccess::ranks(c)->most_copies(), 4 * panel);
    EXPECT_GT(BlockArrayAccess::ranks(c)->most_copies(), 0u);
  });
}

/// Data that arrive early are limited; the rest stays with the sender. Nothing is lost.
TEST(RankBlocks, EarlyArrivalsAreBounded) {
  if (std::getenv("TESSERA_TEST_LONG") == nullptr) GTEST_SKIP() << "needs 700 MB and 5 s; set TESSERA_TEST_LONG=1";
  const int n = test::launched_world != nullptr ? test::launched_world->size() : 2;
  test::on_ranks(n, [&](dist::World& world) {
    const std::int64_t rows = 512, count = 300 * n;
    const BlockArray a = BlockArray::full({count * rows, 600}, {rows, 600}, 1, DType::f32, places(world), by_rows());
    const BlockArray total = BlockArray::zeros({n, 1}, {1, 1}, DType::f64, places(world), by_rows());
    if (world.rank() == world.size() - 1) std::this_thread::sleep_for(std::chrono::seconds(5));
    Region r;
    for (std::int64_t i = 0; i < count; ++i)
      r.spawn([](const Array& x, Array& t) { t += sum(x.astype(DType::f64)); }, in(a.tile(i, 0)),
              inout(total.tile(n - 1, 0)));
    r.wait();
    EXPECT_EQ(total.gather().to_vector<double>().back(), static_cast<double>(count * rows * 600));
    EXPECT_LE(dist::WorldAccess::tiles(world).largest_early_bytes(), dist::TileExchange::most_early_bytes);
    if (world.rank() == world.size() - 1 && n > 1) {
      EXPECT_GT(dist::WorldAccess::tiles(world).largest_early_bytes(), dist::TileExchange::most_early_bytes / 2);
    }
  });
}

TEST(RankBlocks, ScopesSelectTheRank) {
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      const BlockArray a = BlockArray::full({6, 2}, {2, 2}, 1, DType::f32, places(world), by_rows());
      const int last = world.size() - 1;
      Region r;
      std::atomic<int> ran = 0;
      Task<int> where = r.spawn({.scope = world.on(last)}, [&] { return ++ran, world.rank(); });
      // The first tile belongs to rank 0. The task runs on the last rank, and the result is sent back.
      r.spawn(
          {.scope = world.on(last)}, [&](Array& t) { t += world.rank() + 1; }, inout(a.tile(0, 0)));
      Task<Array> doubled = r.spawn([](const Array& t) { return t * 2; }, a.tile(0, 0));
      EXPECT_EQ(where.fetch(), last);
      EXPECT_EQ(where.fetch(), last);
      EXPECT_EQ(doubled.fetch().to_vector<float>(), std::vector<float>(4, 2.f * static_cast<float>(last + 2)));
      r.wait();
      EXPECT_EQ(ran, world.rank() == last ? 1 : 0);
      EXPECT_EQ(a.gather().to_vector<float>()[0], static_cast<float>(last + 2));
      EXPECT_THROW(world.on(world.size()), ArgumentError);
    });
}

TEST(RankBlocks, ErrorsAreTheSameOnAllRanks) {
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      const BlockArray a = BlockArray::full({8, 2}, {2, 2}, 1, DType::f32, places(world), by_rows());
      for (int round = 0; round < 3; ++round) {
        Region r;
        const std::int64_t broken = 3 - round;
        for (int repeat = 0; repeat < 2; ++repeat)
          for (std::int64_t i = 3; i >= 0; --i)
            r.spawn(
                {.name = "update " + std::to_string(i)},
                [i, broken](const Array&, Array& t) {
                  if (i <= broken) throw std::runtime_error("tile " + std::to_string(i));
                  t += 1;
                },
                in(a.tile((i + 1) % 4, 0)), inout(a.tile(i, 0)));
        try {
          r.wait();
          ADD_FAILURE() << "no error";
        } catch (const TaskError& e) {
          EXPECT_THAT(e.what(),
                      HasSubstr("[task update " + std::to_string(broken) + "] tile " + std::to_string(broken)));
          EXPECT_THROW(e.rethrow_cause(), std::exception);
        }
        // The World and the array can be used again.
        a.to(places(world)).gather();
        BlockArray b = a;
        b.fill(1);
        EXPECT_EQ(sum(b).item<float>(), 16);
      }
    });
}

TEST(RankBlocks, ARankThatLeavesARegionEndsItOnAll) {
  for (const int n : test::rank_counts()) {
    if (n == 1) continue;
    test::on_ranks(n, [&](dist::World& world) {
      const BlockArray a = BlockArray::full({8, 256}, {2, 256}, 1, DType::f32, places(world), by_rows());
      struct Own : std::runtime_error {
        using std::runtime_error::runtime_error;
      };
      for (int round = 0; round < 3; ++round) {
        try {
          Region r;
          for (int i = 0; i < 40; ++i) {
            if (world.rank() == round % n && i == 17) throw Own("stop");
            r.spawn([](const Array& x, Array& t) { t.assign(x); }, in(a.tile(i % 4, 0)), inout(a.tile((i + 1) % 4, 0)));
          }
          r.wait();
          ADD_FAILURE() << "no error";
        } catch (const Own&) {
          EXPECT_EQ(world.rank(), round % n);
        } catch (const TaskError& e) {
          EXPECT_NE(world.rank(), round % n);
          EXPECT_THAT(e.what(), HasSubstr("rank " + std::to_string(round % n)));
        }
        EXPECT_EQ(sum(BlockArray::ones({4, 4}, {1, 4}, DType::f32, places(world))).item<float>(), 16);
      }
    });
  }
}

TEST(RankBlocks, TilesAreSentAgainAfterARelease) {
  expect_same_bits([](const Scope& s) {
    const BlockArray a = BlockArray::random_normal({24, 24}, {8, 8}, 5, s, by_rows());
    BlockArray c = BlockArray::zeros({24, 24}, {8, 8}, DType::f32, s),
               d = BlockArray::zeros({24, 24}, {8, 8}, DType::f32, s);
    Region r;
    matmul(r, out(c), in(a), in(a));
    matmul(r, inout(d), in(a), in(c));
    a.release();
    matmul(r, inout(d), in(a), in(a));
    r.wait();
    return std::vector<Array>{matmul(a, a).gather(), c.gather(), d.gather()};
  });
}

TEST(RankBlocks, OperationsInAnOpenRegion) {
  expect_same_bits([](const Scope& s) {
    const BlockArray a = BlockArray::random_normal({24, 24}, {8, 8}, 5, s);
    BlockArray other = BlockArray::ones({9, 9}, {4, 4}, DType::f32, s);
    Region r;
    Array total;
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 3; ++j)
        r.spawn([](const Array& x, Array& y) { y += x; }, in(a.tile(j, i)), inout(a.tile(i, j)));
      total = sum(other);
      other += other;
    }
    r.wait();
    return std::vector<Array>{a.gather(), total, other.gather()};
  });
}

TEST(RankBlocks, ResultsAndLoops) {
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      const BlockArray a = BlockArray::full({8, 2}, {2, 2}, 1, DType::f32, places(world), by_rows());
      const int last = world.size() - 1;
      Region r;
      const Task<int> seven = r.spawn({.scope = world.on(last)}, [] { return 7; });
      const Task<int> eight = r.spawn([](int x) { return x + 1; }, seven);   // where `seven` is
      r.spawn([](int x, Array& t) { t += x; }, seven, inout(a.tile(3, 0)));  // the last rank's tile
      r.parallel_for(
          10, [](std::int64_t, Array& t) { t += 1; }, inout(a.tile(0, 0)));
      if (last != 0) {
        EXPECT_THROW(r.spawn(
                         {.scope = world.on(0)}, [](int x, Array& t) { t += x; }, seven, inout(a.tile(0, 0))),
                     ArgumentError);
      }
      r.wait();
      EXPECT_EQ(eight.fetch(), 8);
      const std::vector<float> got = a.gather().to_vector<float>();
      EXPECT_EQ(got.front(), 11);
      EXPECT_EQ(got.back(), 8);
      if (n > 1) {
        EXPECT_THROW(spawn({.scope = world.on((world.rank() + 1) % n)}, [] {}), ArgumentError);
      }
      // An array of the same dtype is the array itself, so copies of its tiles are outdated together.
      BlockArray b = a.astype(DType::f32),
                 c = BlockArray::zeros({8, 2}, {2, 2}, DType::f32, places(world), by_columns());
      for (int i = 0; i < 2; ++i) {
        Region again;
        for (std::int64_t k = 0; k < 4; ++k)
          again.spawn([](const Array& x, Array& y) { y.assign(x); }, in(b.tile(k, 0)), out(c.tile((k + 1) % 4, 0)));
        again.wait();
        EXPECT_EQ(c.gather().to_vector<float>()[4], 11 + static_cast<float>(i));
        BlockArray(a) += 1;
      }
    });
}

TEST(RankBlocks, AnErrorOfFetchLeavesTheRegion) {
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      const BlockArray a = BlockArray::full({8, 2}, {2, 2}, 1, DType::f32, places(world), by_rows());
      for (int round = 0; round < 2; ++round) {
        try {
          Region r;
          r.spawn([](Array& t) { t += 1; }, inout(a.tile(0, 0)));
          const Task<int> bad =
              r.spawn({.scope = world.on(world.size() - 1)}, []() -> int { throw std::runtime_error("bad"); });
          r.spawn([](const Array& x, Array& t) { t += x; }, in(a.tile(0, 0)), inout(a.tile(3, 0)));
          bad.fetch();
          ADD_FAILURE() << "no error";
        } catch (const TaskError& e) {
          EXPECT_THAT(e.what(), HasSubstr("bad"));
        }
        BlockArray b = a;
        b.fill(1);
        EXPECT_EQ(sum(b).item<float>(), 16);
        Region cancelled;
        for (std::int64_t i = 0; i < 4; ++i)
          cancelled.spawn([](const Array& x, Array& t) { t += x; }, in(a.tile((i + 1) % 4, 0)), inout(a.tile(i, 0)));
        cancelled.cancel();
        cancelled.wait();
        b.fill(1);
        EXPECT_EQ(sum(b).item<float>(), 16);
      }
    });
}

/// The World of a rank ends with an exception in the middle of a region. Tasks that come later on other ranks end, too.
TEST(RankBlocks, ATaskThatCapturesABlockArrayIsAnError) {
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      const BlockArray a = BlockArray::ones({4, 4}, {1, 4}, DType::f32, places(world));
      if (n == 1) return;
      for (int kind = 0; kind < 3; ++kind) {
        const auto use = [&](int) {
          if (kind == 0) sum(a);
          if (kind == 1) transpose(a);
          if (kind == 2) BlockArray::ones({2}, {1}, DType::f32, places(world));
        };
        try {
          dist::map(world, std::vector<int>(1), use);
          ADD_FAILURE() << "no error";
        } catch (const TaskError& e) {
          EXPECT_THAT(e.what(), HasSubstr("a task uses a block array over ranks that was not passed to it"));
        }
        Region r;
        r.spawn({.scope = world.on(0)}, use, 1);
        EXPECT_THROW(r.wait(), TaskError);
        EXPECT_EQ(sum(a).item<float>(), 16);
      }
    });
}

TEST(RankBlocks, ALostRankEndsTheTasksOfOthers) {
  if (test::launched_world != nullptr) GTEST_SKIP() << "the World ends";
  EXPECT_THROW(
      dist::threads(2,
                    [](dist::World& world) {
                      const BlockArray a = BlockArray::zeros({8, 2}, {2, 2}, DType::f32, world.all(), by_rows());
                      if (world.rank() == 1) throw std::runtime_error("lost");
                      Region r;
                      for (int i = 0; i < 100; ++i)
                        r.spawn(
                            [](const Array& x, Array& t) {
                              std::this_thread::sleep_for(std::chrono::milliseconds(5));
                              t += x;
                            },
                            in(a.tile(i % 4, 0)), inout(a.tile((i + 1) % 4, 0)));
                      r.wait();
                    }),
      std::exception);
}

TEST(RankMap, ItemsAreDealtAndResultsAreInOrder) {
  for (const int n : test::rank_counts())
    test::on_ranks(n, [&](dist::World& world) {
      std::vector<int> items(57);
      std::iota(items.begin(), items.end(), 0);
      std::atomic<std::uint64_t> ran = 0;
      const auto squares = dist::map(world, items, [&](int i) {
        ++ran;
        return std::tuple(i * i, Array::full({2}, i), std::string("item ") + std::to_string(i));
      });
      ASSERT_EQ(squares.size(), items.size());
      for (int i = 0; i < 57; ++i) {
        const auto& [square, array, text] = squares[static_cast<std::size_t>(i)];
        EXPECT_EQ(square, i * i);
        EXPECT_EQ(array.to_vector<float>(), std::vector<float>(2, static_cast<float>(i)));
        EXPECT_EQ(text, "item " + std::to_string(i));
      }
      const std::vector<std::uint64_t> each = world.gather(ran);
      EXPECT_EQ(std::accumulate(each.begin(), each.end(), std::uint64_t{0}), 57u);
      dist::map(world, std::vector<int>{}, [](int) {});
      // A rank that is slow gets fewer items.
      std::atomic<int> slow = 0;
      dist::map(world, std::vector<int>(40), [&](int) {
        ++slow;
        if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(n > 1 ? 100 : 1));
      });
      if (world.rank() == 0) {
        EXPECT_LT(slow, n > 1 ? 40 : 41);
      }
      try {
        dist::map(world, items, [](int i) {
          if (i % 10 == 7) throw std::runtime_error("bad " + std::to_string(i));
          return i;
        });
        ADD_FAILURE() << "no error";
      } catch (const TaskError& e) {
        EXPECT_THAT(e.what(), HasSubstr("item 7 failed on rank"));
        EXPECT_THAT(e.what(), HasSubstr("bad 7"));
      }
    });
}

/// On one rank, one task of a random program differs. All ranks throw an error with the lines of both.
TEST(RankBlocks, DifferentTasksAreDetected) {
  const unsigned seed = test::shared_seed();
  const unsigned programs = std::getenv("TESSERA_TEST_LONG") != nullptr ? 20 : 5;
  for (const int n : test::rank_counts()) {
    if (n == 1) continue;
    for (unsigned program = 0; program < programs; ++program) {
      SCOPED_TRACE("program " + std::to_string(program) + ", seed " + std::to_string(seed + program));
      test::on_ranks(n, [&](dist::World& world) {
        const BlockArray a = BlockArray::full({8, 2}, {2, 2}, 1, DType::f32, places(world), by_rows());
        const auto add = [](const Array& x, Array& t) { t += x; };
        std::mt19937 random(seed + program);
        const auto below = [&](std::size_t count) { return static_cast<std::int64_t>(random() % count); };
        const std::int64_t other_task = below(30), other_rank = below(static_cast<std::size_t>(n)), kind = below(4);
        const std::string first = ":" + std::to_string(__LINE__ + 8), second = ":" + std::to_string(__LINE__ + 11);
        try {
          Region r;
          for (std::int64_t task = 0; task < 30; ++task) {
            const std::int64_t from = below(4), to = (from + 1 + below(3)) % 4;
            const bool differs = task == other_task && other_rank == world.rank();
            if (!differs || kind == 3) {
              static_assert(true);
              r.spawn(add, in(a.tile(from, 0)), inout(a.tile(to, 0)));
            }
            if (!differs || kind == 2) continue;  // kind 2: a task is missing
            r.spawn(add, in(a.tile(kind == 0 ? to : (from + 2) % 4, 0)), inout(a.tile(kind == 1 ? from : to, 0)));
          }
          r.wait();
          ADD_FAILURE() << "not detected";
        } catch (const MismatchError& e) {
          const std::string text = e.what();
          EXPECT_THAT(text, HasSubstr("ranks submitted different tasks"));
          EXPECT_THAT(text, HasSubstr("rank_blocks_test.cpp:"));
          // If a task is missing, the tasks of both ranks are at the same line, unless it was the last one.
          if (kind != 2 && !(kind == 3 && other_task == 29)) {
            EXPECT_THAT(text, HasSubstr("test.cpp" + first));
            EXPECT_THAT(text, HasSubstr("test.cpp" + second));
          }
        }
        // A rank that is late has not submitted tasks of the next region yet.
        if (program == 0 && world.first()) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        EXPECT_EQ(sum(BlockArray::ones({4, 4}, {1, 4}, DType::f32, places(world))).item<float>(), 16);
      });
    }
  }
}

/// More long messages between two ranks than there are tags for them.
TEST(RankBlocks, TagsDoNotRunOut) {
  if (std::getenv("TESSERA_TEST_LONG") == nullptr) GTEST_SKIP() << "sends 33,000 messages; set TESSERA_TEST_LONG=1";
  test::on_ranks(test::launched_world != nullptr ? test::launched_world->size() : 2, [](dist::World& world) {
    const BlockArray a = BlockArray::zeros({2, 1100}, {1, 1100}, DType::f32, places(world), by_rows());
    Region r;
    for (int i = 0; i < 33'000; ++i)
      r.spawn([](const Array& x, Array& y) { y.assign(x + 1); }, in(a.tile(i % 2, 0)), out(a.tile(1 - i % 2, 0)));
    r.wait();
    EXPECT_EQ(max(a).item<float>(), 33'000);
  });
}

/// With TESSERA_FAKE_FAULT, a GPU of a fake driver is lost after a while.
TEST(RankBlocks, ALostDeviceIsAnErrorOnAllRanks) {
  const char* const fault = std::getenv("TESSERA_FAKE_FAULT");
  if (fault == nullptr || std::string_view(fault).find("lost") == std::string_view::npos) GTEST_SKIP() << "no fault";
  test::on_ranks(3, [](dist::World& world) {
    bool lost = false;
    for (int round = 0; round < 1000 && !lost; ++round) try {
        const BlockArray a = BlockArray::ones({16, 4}, {1, 4}, DType::f32, places(world), by_rows());
        Region r;
        for (std::int64_t i = 0; i < 16; ++i)
          r.spawn([](const Array& x, Array& t) { t += x; }, in(a.tile((i + 5) % 16, 0)), inout(a.tile(i, 0)));
        r.wait();
      } catch (const TaskError& e) {
        EXPECT_THAT(e.what(), HasSubstr("lost"));
        lost = true;
      }
    EXPECT_TRUE(lost);
    world.barrier();  // the World can still be used
  });
}

/// Each tile of a column is read by the task of the next, so that each rank sends and receives.
void exchange_tiles(const BlockArray& column) {
  const std::int64_t tiles = column.shape()[0] / column.tile_shape()[0];
  Region r;
  for (std::int64_t i = 0; i < tiles; ++i)
    r.spawn(
        {.name = "add"}, [](const Array& x, Array& t) { t += x; }, in(column.tile((i + 1) % tiles, 0)),
        inout(column.tile(i, 0)));
  r.wait();
}

TEST(RankBlocks, SummariesCountMessagesByRank) {
  const int n = test::launched_world != nullptr ? test::launched_world->size() : 3;
  test::on_ranks(n, [&](dist::World& world) {
    const BlockArray column = BlockArray::zeros({4 * n, 2}, {2, 2}, DType::f32, places(world), by_rows());
    world.barrier();
    const Trace seen = trace();
    world.barrier();
    const std::uint64_t before = world.sent_tile_bytes();
    exchange_tiles(column);
    const std::vector<std::uint64_t> sent = world.gather(world.sent_tile_bytes() - before);
    const TaskSummary all = summary();
    world.barrier();
    // The ranks of one process have the same summary.
    const bool shared = test::launched_world == nullptr;
    std::uint64_t counted = 0, received = 0;
    for (const RankTraffic& r : all.ranks) {
      counted += r.sent_bytes, received += r.received_bytes;
      EXPECT_TRUE(shared || r.rank != world.rank());
      EXPECT_EQ(r.waited > 0, r.received > 0);
    }
    const std::uint64_t total = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
    EXPECT_EQ(counted, shared ? total : sent[static_cast<std::size_t>(world.rank())]);
    EXPECT_EQ(received, counted) << "the exchange is symmetric";
    EXPECT_EQ(total > 0, n > 1);
    EXPECT_EQ(all.made, static_cast<std::uint64_t>(shared ? 2 * n : 2)) << "messages are not counted as tasks";
    EXPECT_EQ(to_string(all).find("received") != std::string::npos, n > 1);
  });
}

TEST(RankBlocks, TracesContainAllRanks) {
  const int n = test::launched_world != nullptr ? test::launched_world->size() : 3;
  const bool shared = test::launched_world == nullptr;
  test::on_ranks(n, [&](dist::World& world) {
    const std::string file = world.broadcast(test::file_of("ranks.json").string());
    EXPECT_THROW(static_cast<void>(dist::trace(world, "/missing-folder/run.json")), ArgumentError);
    dist::RankTrace seen = dist::trace(world, file);
    const BlockArray column = BlockArray::zeros({4 * n, 2}, {2, 2}, DType::f32, places(world), by_rows());
    for (int repeats = 0; repeats < 5; ++repeats) exchange_tiles(column);
    seen.stop();
    seen.stop();
    if (!world.first()) return world.barrier();
    const std::vector<test::json> events = test::checked(test::content_of(file));
    std::set<std::string> names;
    using Times = std::vector<double>;
    std::map<std::pair<int, int>, Times> sends, receives;  // by sender and receiver
    std::map<std::string, std::set<std::uint64_t>> tasks;  // on a GPU, a row of the thread and one of the device
    for (const test::json& e : events) {
      const int rank = e.at("pid").get<int>() / 1000;
      if (e.at("name") == "process_name") names.insert(e.at("args").at("name"));
      if (e.at("ph") == "X" && e.at("cat") == "task")
        tasks[std::to_string(rank) + e.at("name").get<std::string>()].insert(
            e.at("args").at("task").get<std::uint64_t>());
      if (e.value("cat", "") != "message") continue;
      const std::string name = e.at("name");
      const int peer = std::stoi(name.substr(name.rfind(' ')));
      if (name.starts_with("send") && e.at("ph") == "b") sends[{rank, peer}].push_back(e.at("ts"));
      if (name.starts_with("receive") && e.at("ph") == "e") receives[{peer, rank}].push_back(e.at("ts"));
    }
    for (int r = 0; r < n && !shared; ++r) {
      EXPECT_TRUE(names.contains("rank " + std::to_string(r) + ": threads"));
      EXPECT_EQ(names.contains("rank " + std::to_string(r) + ": messages"), n > 1);
      EXPECT_EQ(tasks[std::to_string(r) + "add"].size(), 10u);
    }
    if (shared) {
      EXPECT_TRUE(names.contains("threads"));
      EXPECT_TRUE(names.contains("messages"));
      EXPECT_EQ(tasks["0add"].size(), static_cast<std::size_t>(10 * n));
    } else {
      EXPECT_EQ(sends.size(), receives.size());
      for (auto& [pair, begins] : sends) {
        Times& ends = receives[pair];
        ASSERT_EQ(begins.size(), ends.size()) << pair.first << " to " << pair.second;
        std::ranges::sort(begins);
        std::ranges::sort(ends);
        for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_GT(ends[i], begins[i]);
      }
    }
    std::filesystem::remove(file);
    world.barrier();
  });
}

TEST(RankBlocks, AnExceptionWritesTheTraceOfEachRank) {
  const int n = test::launched_world != nullptr ? test::launched_world->size() : 2;
  test::on_ranks(n, [&](dist::World& world) {
    const std::string file = world.broadcast(test::file_of("left.json").string());
    try {
      const dist::RankTrace seen = dist::trace(world, file);
      throw std::runtime_error("left");
    } catch (const std::runtime_error&) {}
    EXPECT_FALSE(std::filesystem::exists(file));
    if (test::launched_world != nullptr || world.first()) {
      const std::string mine = file.substr(0, file.size() - 4) + "rank" + std::to_string(world.rank()) + ".json";
      test::checked(test::content_of(mine));
      std::filesystem::remove(mine);
    }
    world.barrier();
  });
}

}  // namespace
