// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "tessera/ops/catalogue/check.h"
#include "tessera/ops/top_k.h"

namespace tessera::ops {
namespace {

enum Contents : std::uint8_t { random_, ties_, special_, infinite_ };
constexpr const char* contents_names[] = {"random", "ties", "with NaN", "only -inf"};

std::vector<double> contents(Contents kind, std::int64_t n, Random& random) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (kind == infinite_) return std::vector<double>(static_cast<std::size_t>(n), -infinity);
  if (kind == random_) return rounded(random.numbers(n, -9, 9), DType::f32);
  std::vector<double> x = random.integers(n, -3, 2);
  for (double& v : x) {
    if (v == -3) v = -infinity;
    if (v == 0 && random.integer(0, 1) == 0) v = -0.0;
    if (kind == special_ && random.integer(0, 20) == 0)
      v = random.integer(0, 1) == 0 ? infinity : std::numeric_limits<double>::quiet_NaN();
  }
  return x;
}

/// k = 0: checks finite_argmax.
double check_top_k(std::int64_t n, std::int64_t k, Contents kind, Device device, std::uint64_t seed) {
  Random random(seed);
  const std::vector<double> x = contents(kind, n, random);
  std::vector<std::int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int64_t i) {
    const double v = x[static_cast<std::size_t>(i)];
    return v != v ? std::numeric_limits<double>::infinity() : v;
  };
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return at(a) > at(b); });
  const Array row = array_of(x, {n}, DType::f32, device);
  const auto bits = [&](std::int64_t i) {
    return static_cast<double>(std::bit_cast<std::int32_t>(static_cast<float>(x[static_cast<std::size_t>(i)])));
  };
  std::vector<double> wanted, got;
  if (k == 0) {
    const auto first = static_cast<double>(order[0]);
    wanted = {std::abs(at(order[0])) <= std::numeric_limits<float>::max() ? first : -1, bits(order[0]), first};
    got = poisoned(device, 12, [&] { return finite_argmax(row); });
  } else {
    k = std::min({k, n, most_top_k(device)});
    order.resize(static_cast<std::size_t>(k));
    std::ranges::sort(order);
    for (const std::int64_t i : order) wanted.push_back(bits(i)), wanted.push_back(static_cast<double>(i));
    got = poisoned(device, static_cast<std::uint64_t>(8 * k), [&] { return top_k(row, k); });
  }
  return worst(got, wanted, 0, 0);
}

}  // namespace

void add_top_k_checks(Checks& checks) {
  for (const std::int64_t n : {1, 7, 4095, 4097, 33000})
    for (const std::int64_t k : {0, 1, 2, 41, 512})
      for (const Contents kind : {random_, ties_, special_, infinite_})
        checks.push_back({k == 0 ? "finite_argmax" : "top_k",
                          std::to_string(k) + " of " + std::to_string(n) + " " + contents_names[kind],
                          [=](Device device, std::uint64_t seed) { return check_top_k(n, k, kind, device, seed); }});
}

}  // namespace tessera::ops
