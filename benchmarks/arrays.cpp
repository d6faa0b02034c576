// SPDX-License-Identifier: Apache-2.0
// Times array operations on the CPU in pairs (pairs.h). Summing a lazy expression is compared with evaluating the
// expression before summing it. scatter_add, sorting of rows and small operations are compared with plain loops.
// tools/compare_array_times_with_numpy.py compares Tessera with NumPy.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "benchmarks/pairs.h"
#include "benchmarks/plain_loops.h"
#include "tessera/array/functions.h"
#include "tessera/device/context.h"

namespace {

using namespace tessera;

bool one_thread = true, good = true;

template <class Ours, class Theirs>
void pair(const std::string& name, double limit, Ours&& ours, Theirs&& theirs) {
  const bench::Pair p = bench::time_pair(one_thread, ours, theirs, 0.6, false);
  std::printf("%-44s %10.2f %10.2f %8.2f %8.2f..%-8.2f%s\n", name.c_str(), p.theirs_us, p.ours_us, p.median, p.low,
              p.high, p.median > limit ? "  slow" : "");
  std::fflush(stdout);
  good = good && p.median <= limit;
}

std::vector<float> numbers(std::int64_t count) {
  static std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(static_cast<std::size_t>(count));
  for (float& x : v) x = uniform(engine);
  return v;
}
Array array(Shape shape) { return Array::from(numbers(element_count(shape)), shape).eval(); }

/// Compares summing a lazy expression with evaluating the expression before summing it.
void sums() {
  const auto both = [](const std::string& name, const std::function<Array()>& expression) {
    pair(
        "sum of " + name, 1, [&] { sum(expression()).eval(); },
        [&] {
          Array computed = expression();
          computed.eval();
          sum(computed).eval();
        });
  };
  for (const std::int64_t width : {3, 10, 16, 40, 100, 1000}) {
    const std::int64_t rows = 1000000 / width;
    const Array m = array({rows, width}), row = array({width}), column = array({rows, 1});
    const std::string of = " (" + std::to_string(rows) + ", " + std::to_string(width) + ")";
    both("m * row" + of, [&] { return m * row; });
    both("m * column" + of, [&] { return m * column; });
    both("row == column" + of, [&] { return row == column; });
    both("m[::2] * 2" + of, [&] { return m.slice(0, 0, rows, 2) * 2; });
  }
  const Array cube = array({100, 100, 100}), side = array({100, 1});
  both("cube * side (100, 100, 100)", [&] { return cube * side; });
}

void scatters() {
  std::mt19937 engine(2);
  for (const auto& [count, bins, width] : {std::array<std::int64_t, 3>{1000, 16, 1},
                                           {1000000, 16, 1},
                                           {1000000, 1000000, 1},
                                           {1000, 1000, 1000},
                                           {100000, 1000, 8}}) {
    std::vector<std::int64_t> at(static_cast<std::size_t>(count));
    for (auto& i : at) i = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(bins));
    const std::vector<float> table = numbers(bins * width), updates = numbers(count * width);
    const auto shape = [&, w = width](std::int64_t n) { return w == 1 ? Shape{n} : Shape{n, w}; };
    const Array a = Array::from(table, shape(bins)), indices = Array::from(at), u = Array::from(updates, shape(count));
    std::vector<float> out(table.size());
    pair(
        "scatter_add " + std::to_string(count) + " into " + std::to_string(bins) + " rows of " + std::to_string(width),
        1.5, [&] { scatter_add(a, indices, u).eval(); },
        [&, w = static_cast<std::size_t>(width)] {
          std::copy(table.begin(), table.end(), out.begin());
          plain::scatter_add(out.data(), at.data(), updates.data(), at.size(), w);
        });
  }
}

void sorts() {
  for (const std::int64_t n : {33, 100, 129, 500, 1000}) {
    const std::vector<float> x = numbers(200000 / n * n);
    const Array rows = Array::from(x, Shape{200000 / n, n});
    std::vector<float> out(x.size());
    pair(
        "sort of rows of " + std::to_string(n) + ", std::sort", 1, [&] { sort(rows).eval(); },
        [&] {
          out = x;
          for (auto row = out.begin(); row != out.end(); row += n) std::sort(row, row + n);
        });
  }
}

/// Compares small elementwise operations with a small reduction. Both use cached launches (array/cached_operation.h).
void small() {
  const Array x = array({10}), y = array({10});
  Array into = array({10});
  pair(
      "x + y of 10, sum(x) of 10", 4, [&] { (x + y).eval(); }, [&] { sum(x).eval(); });
  pair(
      "x += y of 10, sum(x) of 10", 4, [&] { into += y; }, [&] { sum(x).eval(); });
  pair(
      "flip(x) of 10, sum(x) of 10", 4, [&] { flip(x).eval(); }, [&] { sum(x).eval(); });
}

}  // namespace

// usage: arrays. The exit status is 1 if a sum takes more than 1.1 times as long as evaluating the expression first, or
// if another operation exceeds its limit.
int main() {
  ::setenv("TESSERA_THREADS", "1", 1);
  const DeviceScope scope(Device{Backend::cpu, 0});
  std::printf("%-44s %10s %10s %8s %8s..%-8s\n", "operation", "theirs us", "ours us", "ratio", "quartile", "quartile");
  sums();
  scatters();
  sorts();
  small();
  return good ? 0 : 1;
}
