// SPDX-License-Identifier: Apache-2.0
// Pairs of Tessera workloads, which run alternately: kernel tasks and launches, tasks with and without tracing,
// and block arrays and the operations that they use. Also checks that many tasks do not accumulate memory.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <latch>
#include <thread>

#include "benchmarks/tasks.h"
#include "tessera/array/functions.h"
#include "tessera/kernel/kernel.h"
#include "tessera/ops/product.h"
#include "tessera/task/block_array.h"
#include "tessera/task/region.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/trace.h"

namespace tessera::bench {

namespace {

using Clock = std::chrono::steady_clock;

double at(std::vector<double> v, double q) {
  std::ranges::sort(v);
  return v[static_cast<std::size_t>(q * static_cast<double>(v.size() - 1))];
}

struct Timed {
  std::vector<double> first, second;  // seconds per round
};
Timed in_turn(int rounds, const std::function<void()>& first, const std::function<void()>& second) {
  Timed t;
  for (int i = -1; i < rounds; ++i) {
    const double a = seconds_of(first), b = seconds_of(second);
    if (i >= 0) t.first.push_back(a), t.second.push_back(b);
  }
  return t;
}
/// Prints the median and quartiles of `f` over the rounds.
void print(const char* name, const char* what, const Timed& t, const std::function<double(double, double)>& f) {
  std::vector<double> all;
  for (std::size_t i = 0; i < t.first.size(); ++i) all.push_back(f(t.first[i], t.second[i]));
  std::printf("%-30s %-44s %8.3f (%.3f to %.3f)\n", name, what, at(all, 0.5), at(all, 0.25), at(all, 0.75));
  std::fflush(stdout);
}

// Compares kernel tasks of 1,000 elements with the same number of launches. Both use 64 pairs of arrays in round-robin
// order.
void kernel_tasks(const char* name, int rounds) {
  constexpr int tasks = 20'000, pairs = 64;
  auto axpy = kernel("axpy", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
    auto i = global_id();
    y[i] += a * x[i];
  });
  std::vector<Array> x, y;
  for (int i = 0; i < pairs; ++i) x.push_back(Array::ones({1000}).copy()), y.push_back(Array::zeros({1000}).copy());
  for (int i = 0; i < pairs; ++i) x[i].eval(), y[i].eval();
  const Timed t = in_turn(
      rounds,
      [&] {
        for (int i = 0; i < tasks; ++i) axpy.launch(Extent{1000}, x[i % pairs], y[i % pairs], 0.5f);
      },
      [&] {
        Region r;
        for (int i = 0; i < tasks; ++i) r.spawn(axpy, Extent{1000}, x[i % pairs], y[i % pairs], 0.5f);
        r.wait();
      });
  print(name, "us a launch", t, [](double a, double) { return a / tasks * 1e6; });
  print(name, "us a task", t, [](double, double b) { return b / tasks * 1e6; });
  print(name, "us that a task takes longer", t, [](double a, double b) { return (b - a) / tasks * 1e6; });
}

void work_for_10_us() {
  const auto until = Clock::now() + std::chrono::microseconds(10);
  while (Clock::now() < until) {}
}

void traces(const char* name, int rounds) {
  constexpr int tasks = 5'000;
  std::vector<Array> data;
  for (int i = 0; i < 64; ++i) data.push_back(Array::zeros({16}).copy());
  for (Array& a : data) a.eval();
  const auto work = [&] {
    Region r;
    for (int i = 0; i < tasks; ++i) r.spawn([](const Array&) { work_for_10_us(); }, inout(data[i % 64]));
    r.wait();
  };
  const Timed t = in_turn(rounds, work, [&] {
    const auto seen = trace();
    work();
  });
  print(name, "time with a trace over that without", t, [](double a, double b) { return b / a; });
}

// Compares tasks on overlapping row ranges of a matrix with tasks on single rows, while all of them are pending. Then
// runs one task at a time, on a matrix whose rows have been used by separate tasks and on an unused matrix.
void row_ranges(const char* name, int rounds) {
  constexpr std::int64_t rows = 20'000;
  constexpr int live = 4'000, ended = 20'000, alone = 2'000;
  const auto nothing = [](Array&) {};
  const auto matrix = [] { return Array::zeros({rows, 4}).copy().eval(); };
  const auto spawn_rows = [&](Region& r, const Array& m, std::int64_t begin, std::int64_t count) {
    Array range = m.slice(0, begin, std::min(begin + count, rows));
    r.spawn(nothing, inout(range));
  };
  const auto held = [&](auto&& spawn_one) {
    Array m = matrix();
    std::latch go(1);
    Region r;
    r.spawn([&](Array&) { go.wait(); }, inout(m));
    for (int i = 0; i < live; ++i) spawn_one(r, m, i);
    go.count_down();
    r.wait();
  };
  Timed t = in_turn(
      rounds, [&] { held([&](Region& r, const Array& m, int i) { spawn_rows(r, m, i, 1); }); },
      [&] {
        held([&](Region& r, const Array& m, int i) { spawn_rows(r, m, i * std::int64_t{617} % rows, 1 + i * 7 % 30); });
      });
  print(name, "us a task of one row", t, [](double a, double) { return a / live * 1e6; });
  print(name, "us a task of some rows", t, [](double, double b) { return b / live * 1e6; });
  const auto one_at_a_time = [&](const Array& of) {
    Region r;
    for (int i = 0; i < alone; ++i) spawn_rows(r, of, i * std::int64_t{617} % rows, 2 + i * 7 % 29), r.wait();
  };
  t = Timed();
  for (int i = -1; i < rounds; ++i) {
    const Array fresh = matrix(), used = matrix();
    {
      Region r;
      for (int k = 0; k < ended; ++k) spawn_rows(r, used, k, 1);
    }
    const double a = seconds_of([&] { one_at_a_time(fresh); }), b = seconds_of([&] { one_at_a_time(used); });
    if (i >= 0) t.first.push_back(a), t.second.push_back(b);
  }
  print(name, "us a task alone", t, [](double a, double) { return a / alone * 1e6; });
  print(name, "us a task alone after 20,000 of one row", t, [](double, double b) { return b / alone * 1e6; });
}

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  statm >> all >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

void memory(const char* name) {
  std::vector<Array> data;
  for (int i = 0; i < 64; ++i) data.push_back(Array::zeros({16}).copy());
  for (Array& a : data) a.eval();
  const auto nothing = [](const auto&...) {};
  double early = 0, late = 0;
  Region r;
  for (int i = 1; i <= 1'000'000; ++i) {
    r.spawn(nothing, in(data[i * 7 % 64]), inout(data[i % 64 == i * 7 % 64 ? (i + 1) % 64 : i % 64]));
    if (i == 100'000) early = resident_mib();
    if (i == 1'000'000) late = resident_mib();
  }
  r.wait();
  std::printf("%-30s %-44s %8.1f and %.1f: %+.1f\n", name, "MiB after 1e5 and 1e6 tasks of a region", early, late,
              late - early);
  for (int i = 1; i <= 1'000'000; ++i) {
    spawn(nothing);
    if (i == 100'000) early = resident_mib();
    if (i == 1'000'000) late = resident_mib();
  }
  synchronize();
  std::printf("%-30s %-44s %8.1f and %.1f: %+.1f\n", name, "MiB after 1e5 and 1e6 plain tasks", early, late,
              late - early);
}

bool product(const char* name, int rounds) {
  constexpr std::int64_t n = 4096, tile = 512;
  const Array a = random_uniform({n, n}, 1).eval(), b = random_uniform({n, n}, 2).eval();
  const BlockArray p = BlockArray::from(a, {tile, tile}), q = BlockArray::from(b, {tile, tile});
  BlockArray r = BlockArray::empty({n, n}, {tile, tile});
  Array c;
  const Timed t = in_turn(
      std::min(rounds, 11), [&] { c = matmul(a, b).eval(); }, [&] { matmul_into(r, p, q, 1, 0); });
  print(name, "GFLOP/s of matmul", t, [](double x, double) { return 2e-9 * n * n * n / x; });
  print(name, "GFLOP/s of tasks", t, [](double, double x) { return 2e-9 * n * n * n / x; });
  print(name, "speed of tasks over matmul's", t, [](double x, double y) { return x / y; });
  const float wrong = max(abs(r.gather() - c)).item<float>();
  if (wrong > 1e-2f) std::printf("%-30s WRONG RESULT: %g\n", name, static_cast<double>(wrong));
  return wrong <= 1e-2f;
}

bool stencils(const char* name, int rounds) {
  constexpr std::int64_t n = 8192, tile = 1024;
  const Array whole = random_uniform({n, n}, 1).eval();
  const BlockArray a = BlockArray::from(whole, {tile, tile});
  BlockArray b = a;
  const auto bytes = static_cast<std::size_t>(n * n) * sizeof(float);
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes);
  const auto copy = [&] {
    std::thread other([&] { std::memcpy(to.data(), from.data(), bytes / 2); });
    std::memcpy(to.data() + bytes / 2, from.data() + bytes / 2, bytes - bytes / 2);
    other.join();
  };
  auto copying = kernel("copying", [](Buffer<const float> x, Buffer<float> y) {
    auto i = global_id();
    y[i] = x[i];
  });
  Array into = Array::zeros({n, n}).copy().eval();
  const auto step = [](const Neighbours& s) { return s(-1, 0) + s(1, 0) + s(0, -1) + s(0, 1) - 4 * s(0, 0); };
  const auto ours = [&] { b = stencil(a, {.edge = Edge::wrap}, step); };
  const auto gigabytes = [&](double s) { return 2e-9 * static_cast<double>(bytes) / s; };
  Timed t = in_turn(std::min(rounds, 15), copy, ours);
  print(name, "GB/s of memcpy by two threads", t, [&](double x, double) { return gigabytes(x); });
  print(name, "GB/s of the stencil", t, [&](double, double y) { return gigabytes(y); });
  print(name, "the stencil's speed over memcpy's", t, [&](double x, double y) { return x / y; });
  t = in_turn(
      std::min(rounds, 15), [&] { copying.launch(Extent{n * n}, whole, into); }, ours);
  print(name, "the stencil's speed over a copying kernel's", t, [&](double x, double y) { return x / y; });
  const auto row = [&](std::int64_t i) { return whole.slice(0, i, i + 1).copy().to_vector<float>(); };
  const std::vector<float> above = row(4), here = row(5), below = row(6),
                           found = b.slice({5, 0}, {6, n}).gather().to_vector<float>();
  float wrong = 0;
  for (std::size_t i = 0; i < here.size(); ++i)
    wrong = std::max(wrong, std::abs(found[i] - (above[i] + below[i] + here[(i + here.size() - 1) % here.size()] +
                                                 here[(i + 1) % here.size()] - 4 * here[i])));
  if (wrong > 1e-5f) std::printf("%-30s WRONG RESULT: %g\n", name, static_cast<double>(wrong));
  return wrong <= 1e-5f;
}

}  // namespace

int rows_of_pairs(const std::string& only, int rounds) {
  int count = 0;
  bool right = true;
  const auto row = [&](const char* name, auto&& f) {
    if (std::string(name).find(only) == std::string::npos) return;
    ++count;
    f(name);
  };
  row("kernel tasks", [&](const char* name) { kernel_tasks(name, rounds); });
  row("trace of 10 us tasks", [&](const char* name) { traces(name, rounds); });
  row("row ranges", [&](const char* name) { row_ranges(name, rounds); });
  row("memory", [&](const char* name) { memory(name); });
  row("product of 4096, tile 512", [&](const char* name) { right = product(name, rounds) && right; });
  row("stencil of 8192, tile 1024", [&](const char* name) { right = stencils(name, rounds) && right; });
  return right ? count : -1;
}

}  // namespace tessera::bench
