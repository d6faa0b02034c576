// SPDX-License-Identifier: Apache-2.0
// Collectives compared with sums that the test computes itself, on 1 to 4 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <latch>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "tessera/grad/grad.h"
#include "tests/dist/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using dist::Reduce;
using dist::World;
using test::expect_throw;
using test::on_ranks;
using test::rank_counts;

constexpr std::int64_t sizes[] = {0, 1, 2, 3, 5, 511, 1023, 4099, 100'003};

/// Returns the elements of a rank's input: small integers, or random floats.
template <class T>
std::vector<T> input(int rank, std::int64_t size, unsigned seed) {
  std::mt19937 random(seed + 977u * static_cast<unsigned>(rank));
  std::vector<T> out(static_cast<std::size_t>(size));
  for (T& x : out) {
    if constexpr (std::is_integral_v<T>)
      x = static_cast<T>(random());
    else
      x = static_cast<T>(std::ldexp(static_cast<float>(random()) - 2e9f, static_cast<int>(random() % 8) - 30));
  }
  return out;
}

template <class T>
using Sum = std::conditional_t<std::is_same_v<T, half> || std::is_same_v<T, bfloat16>, float, T>;

/// The tree over ranks [begin, begin + 2^k): the left half, then the right half. This recursion adds in the same order
/// as the library's loop.
template <class T, class Op>
Sum<T> tree(const std::vector<std::vector<T>>& inputs, std::size_t at, std::size_t begin, std::size_t width,
            const Op& op) {
  if (width == 1) return static_cast<Sum<T>>(inputs[begin][at]);
  const Sum<T> left = tree(inputs, at, begin, width / 2, op);
  if (begin + width / 2 >= inputs.size()) return left;
  return op(left, tree(inputs, at, begin + width / 2, width / 2, op));
}
template <class T, class Op>
std::vector<T> expected(const std::vector<std::vector<T>>& inputs, const Op& op, bool mean = false) {
  std::vector<T> out(inputs[0].size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    Sum<T> sum = tree(inputs, i, 0, std::bit_ceil(inputs.size()), op);
    if (mean) sum = static_cast<Sum<T>>(sum / static_cast<Sum<T>>(inputs.size()));
    out[i] = static_cast<T>(sum);
  }
  return out;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Checks all collectives for arrays of T.
template <class T>
void check_dtype(unsigned seed) {
  const auto add = [](Sum<T> a, Sum<T> b) {
    if constexpr (std::is_integral_v<Sum<T>>) {  // wraps around
      using U = std::make_unsigned_t<Sum<T>>;
      return static_cast<Sum<T>>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return static_cast<Sum<T>>(a + b);
    }
  };
  const auto least = [](Sum<T> a, Sum<T> b) { return std::min(a, b); };
  for (const int n : rank_counts())
    for (const std::int64_t size : sizes) {
      SCOPED_TRACE(std::string(dtype_name(dtype_v<T>)) + ", " + std::to_string(n) + " ranks, " + std::to_string(size));
      std::vector<std::vector<T>> inputs;
      for (int k = 0; k < n; ++k) inputs.push_back(input<T>(k, size, seed));
      const std::vector<T> sum = expected(inputs, add), minimum = expected(inputs, least);
      on_ranks(n, [&](World& world) {
        const std::vector<T>& mine = inputs[static_cast<std::size_t>(world.rank())];
        const Array x = Array::from(std::span<const T>(mine), Shape{size});
        EXPECT_TRUE(same_bits(all_reduce(world, x).to_vector<T>(), sum));
        EXPECT_TRUE(same_bits(all_reduce(world, x, Reduce::min).to_vector<T>(), minimum));
        EXPECT_TRUE(same_bits(x.to_vector<T>(), mine)) << "the input has changed";
        if (is_float(dtype_v<T>)) {
          EXPECT_TRUE(same_bits(all_reduce(world, x, Reduce::mean).to_vector<T>(), expected(inputs, add, true)));
        }
        Array y = x.copy();
        all_reduce_into(world, y);
        EXPECT_TRUE(same_bits(y.to_vector<T>(), sum));
        const int root = n - 1;
        EXPECT_TRUE(same_bits(reduce(world, x, root).to_vector<T>(), world.rank() == root ? sum : mine));
        EXPECT_TRUE(same_bits(x.to_vector<T>(), mine)) << "reduce has changed its input";
        const Array all = all_gather(world, x);
        EXPECT_EQ(all.shape(), (Shape{n, size}));
        for (int k = 0; k < n; ++k)
          EXPECT_TRUE(same_bits(all.select(0, k).to_vector<T>(), inputs[static_cast<std::size_t>(k)]));
        if (size % n == 0) {
          const std::int64_t part = size / n;
          const std::vector<T> got = reduce_scatter(world, x).to_vector<T>();
          EXPECT_TRUE(same_bits(got, {sum.begin() + world.rank() * part, sum.begin() + (world.rank() + 1) * part}));
        }
      });
    }
}

TEST(Collectives, SumsAreAFixedTreeOfAllDtypes) {
  const unsigned seed = test::shared_seed();
  check_dtype<std::int8_t>(seed);
  check_dtype<std::uint8_t>(seed);
  check_dtype<std::int16_t>(seed);
  check_dtype<std::uint16_t>(seed);
  check_dtype<std::int32_t>(seed);
  check_dtype<std::uint32_t>(seed);
  check_dtype<std::int64_t>(seed);
  check_dtype<std::uint64_t>(seed);
  check_dtype<half>(seed);
  check_dtype<bfloat16>(seed);
  check_dtype<float>(seed);
  check_dtype<double>(seed);
}

TEST(Collectives, AsynchronousResultsMatchBlockingOnes) {
  const unsigned seed = test::shared_seed();
  for (const int n : rank_counts())
    for (const std::int64_t size : {0, 5, 4099, 100'003})
      on_ranks(n, [&](World& world) {
        const Array x = Array::from(std::span<const float>(input<float>(world.rank(), n * size, seed)));
        const auto is = [&](const Array& a, const Array& b) {
          EXPECT_EQ(a.shape(), b.shape());
          EXPECT_TRUE(same_bits(a.to_vector<float>(), b.to_vector<float>())) << n << " ranks, " << size;
        };
        const Array sum = all_reduce(world, x), all = all_gather(world, x),
                    part = reduce_scatter(world, x, Reduce::max);
        Array y = x.copy();
        std::vector<dist::Pending> pending = {all_reduce_async(world, y), all_gather_async(world, y)};
        pending.push_back(reduce_scatter_async(world, y, Reduce::max));
        pending.push_back(reduce_async(world, y, n - 1));
        if (world.rank() != n - 1) is(pending[3].get(), x);
        y.fill(7);  // the collectives have copies
        is(all_reduce(world, x), sum);
        EXPECT_TRUE(std::ranges::all_of(pending, &dist::Pending::done)) << "a blocking one waits for those before it";
        if (world.rank() == n - 1) is(pending[3].get(), sum);
        is(pending[2].get(), part);
        is(pending[1].get(), all);
        is(pending[0].get(), sum);
        is(pending[0].get(), sum);
        expect_throw<DtypeError>([&] { all_reduce_async(world, Array::zeros({2}, DType::boolean)); }, {"bools"});
      });
}

TEST(Collectives, WorldCompletesAsynchronousCollectivesWhenItEnds) {
  for (const int n : {2, 3}) {
    if (test::launched_world != nullptr) continue;
    dist::threads(n, [&](World& world) {
      if (world.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      all_gather_async(world, Array::full({100}, world.rank()));
      const dist::Pending sum = all_reduce_async(world, Array::full({20'000}, world.rank() + 1));
      if (world.rank() == 0) return;
      EXPECT_EQ(sum.get().slice(0, 0, 1).item<float>(), static_cast<float>(n * (n + 1) / 2));
    });
  }
}

TEST(Collectives, InputsThatAGradientNeedsAreOnlyRead) {
  on_ranks(rank_counts().back(), [&](World& world) {
    const Array x = Array::full({4 * world.size()}, 3), w = Array::full({4 * world.size()}, 2);
    const Array adjoint = grad([&](const Array& parameters) {
      const Array y = x * parameters;
      all_gather(world, x), reduce_scatter(world, x), reduce(world, x), all_reduce(world, x);
      all_reduce_async(world, x).get();
      return sum(y);
    })(w);
    EXPECT_EQ(adjoint.to_vector<float>(), x.to_vector<float>());
    const Array rows = Array::full({1}, 1).broadcast_to({3});
    Array written = rows;
    expect_throw<ShapeError>([&] { all_reduce_into(world, written); }, {});
    EXPECT_EQ(all_reduce(world, rows).slice(0, 2, 3).item<float>(), static_cast<float>(world.size()));
  });
}

TEST(Collectives, NanAndBoolFollowTheRules) {
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const float mine = world.rank() == n - 1 ? NAN : 1;
      for (const Reduce how : {Reduce::sum, Reduce::min, Reduce::max, Reduce::mean})
        EXPECT_TRUE(std::isnan(all_reduce(world, Array::full({3}, mine), how).slice(0, 0, 1).item<float>()));
      const Array first = Array::full({2}, world.rank() == 0 ? 1.0 : 0.0, DType::boolean);
      EXPECT_EQ(all_reduce(world, first, Reduce::max).slice(0, 0, 1).item<bool>(), true);
      EXPECT_EQ(all_reduce(world, first, Reduce::min).slice(0, 0, 1).item<bool>(), n == 1);
      expect_throw<DtypeError>([&] { all_reduce(world, first); }, {"bools cannot be added", "Reduce::max"});
      expect_throw<DtypeError>([&] { all_reduce(world, Array::zeros({2}, DType::i32), Reduce::mean); },
                               {"mean", "i32"});
      expect_throw<ArgumentError>([&] { reduce(world, Array::zeros({2}), n); }, {"no such rank"});
    });
}

struct Inner {
  Array bias;
  std::vector<Array> layers;
};
struct Nested {
  Inner inner;
  std::map<std::string, Array> named;
  Array strided, empty;
};

TEST(Collectives, BroadcastCopiesNestedStructures) {
  for (const int n : rank_counts())
    for (int root = 0; root < n; ++root)
      on_ranks(n, [&](World& world) {
        const double mine = world.rank() + 1;
        Nested x{{Array::full({3}, mine), {Array::full({40, 50}, mine), Array::full({1}, mine, DType::i64)}},
                 {{"a", Array::full({2, 2}, mine, DType::f16)}},
                 Array::full({4, 6}, mine).transpose(),
                 Array::zeros({0})};
        const Array shared = x.inner.bias;
        broadcast(world, x, root);
        for_each_array(x, [&](const Array& a) {
          if (a.size() == 0) return;
          EXPECT_EQ(a.astype(DType::f64).reshape({-1}).to_vector<double>().front(), root + 1);
          EXPECT_EQ(a.astype(DType::f64).reshape({-1}).to_vector<double>().back(), root + 1);
        });
        EXPECT_EQ(shared.to_vector<float>()[0], static_cast<float>(root + 1)) << "the arrays keep their memory";
      });
}

TEST(Collectives, TextsAndNumbersAreExchanged) {
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const std::string text = std::string(static_cast<std::size_t>(world.rank()) * 5000, 'x') + "end";
      EXPECT_EQ(world.broadcast(text, n - 1).size(), static_cast<std::size_t>(n - 1) * 5000 + 3);
      const std::vector<std::uint64_t> all = world.gather(static_cast<std::uint64_t>(world.rank()) + (1ull << 40));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(n));
      for (std::size_t k = 0; k < all.size(); ++k) EXPECT_EQ(all[k], k + (1ull << 40));
      world.barrier();
      EXPECT_EQ(world.ranks().size(), static_cast<std::size_t>(n));
      EXPECT_EQ(world.ranks()[static_cast<std::size_t>(world.rank())].rank, world.rank());
    });
}

TEST(Collectives, ForkedChildCanOnlyDestroyTheWorld) {
  const bool threads = test::launched_world == nullptr;
  std::latch forked(threads ? 1 : 0);
  on_ranks(2, [&](World& world) {
    if (world.rank() == 1) forked.wait();  // until then, the asynchronous collective of threads cannot end
    std::optional<dist::Pending> pending;
    if (threads) pending = all_reduce_async(world, Array::zeros({3}));
    if (world.rank() == 0) {
      const std::string text = test::run_in_child(
          {},
          [&]() -> std::string {
            if (pending) try {
                static_cast<void>(pending->get());
                return "the collective has not ended in the parent";
              } catch (const ConnectionError&) {}
            try {
              world.barrier();
            } catch (const ConnectionError& e) {
              std::destroy_at(&world);
              return e.what();
            }
            return "no error";
          },
          20);
      test::expect_contains(text, {"barrier", "forked", "only the parent"});
      if (threads) forked.count_down();
    }
    if (pending) static_cast<void>(pending->get());
    world.barrier();
  });
}

TEST(Collectives, VolumeIsThatOfTheFormula) {
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const std::int64_t size = 300'000;
      const Array x = Array::zeros({size});
      const std::uint64_t before = world.sent_bytes();
      all_reduce(world, x);
      const double bytes = 2.0 * (n - 1) / n * static_cast<double>(size) * 4;
      EXPECT_NEAR(static_cast<double>(world.sent_bytes() - before), bytes, n == 1 ? 0 : 4096);
    });
}

/// Bytes that this machine has sent over its network.
std::uint64_t sent_by_interface() {
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == line.npos || line.find("eth0") > colon) continue;
    std::istringstream numbers(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int column = 0; column < 9; ++column) numbers >> value;
    return value;
  }
  return 0;
}

TEST(Collectives, InterfaceSendsTheCountedBytes) {
  World* const world = test::launched_world;
  if (world == nullptr || world->local_size() != 1)
    GTEST_SKIP() << "needs a machine for each rank (script/cluster --hosts)";
  const Array x = Array::zeros({1'000'000});
  all_reduce(*world, x);  // opens the connections
  world->barrier();
  const std::uint64_t counted = world->sent_bytes(), sent = sent_by_interface();
  for (int i = 0; i < 10; ++i) all_reduce(*world, x);
  const double ratio =
      static_cast<double>(sent_by_interface() - sent) / static_cast<double>(world->sent_bytes() - counted);
  EXPECT_GT(ratio, 0.95);
  EXPECT_LT(ratio, 1.05);
}

}  // namespace
}  // namespace tessera
