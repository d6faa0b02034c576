// SPDX-License-Identifier: Apache-2.0
// Generated CPU kernels beside the loops that a C++ programmer would write (plain_loops.cpp): saxpy, softmax, products
// of floats and of 8-bit weights. Pairs are timed in turn, so that what else the machine does falls on both; below 1 is
// faster.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/plain_loops.h"
#include "tessera/backend/cpu/cpu.h"
#include "tests/support/cpu_benchmark_kernels.h"

namespace {

using namespace tessera;
using namespace tessera::ir;
using namespace tessera::test;
using Clock = std::chrono::steady_clock;

// With one thread its own processor time counts, which other programs' work does not lengthen; with several the wall's.
bool one_thread = false;
double now_us() {
  if (!one_thread) return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

double largest_difference(const float* a, const float* b, std::size_t n) {
  double most = 0, scale = 1e-3;
  for (std::size_t i = 0; i < n; ++i) scale = std::max(scale, double(std::abs(b[i])));
  for (std::size_t i = 0; i < n; ++i) most = std::max(most, double(std::abs(a[i] - b[i])) / scale);
  return most;
}

/// `ours` is written by the kernel, and by the plain loop too once both are checked: where the written array lies to
/// the one that is read makes a short loop up to four times as slow, whoever wrote it. `plain` holds at first what
/// `ours` does, and is what the plain loop makes of it.
struct Result {
  float *ours, *plain;
  std::size_t n;
};

class Bench {
 public:
  Bench() : driver_(make_cpu_driver()), device_(driver_->open(0)), queue_(device_->make_queue()) {
    const DeviceInfo& info = device_->info();
    std::printf("%s, %s, %u threads%s\n", info.name.c_str(), info.driver_version.c_str(), info.compute_units,
                info.reason.c_str());
    std::printf("%-22s %10s %10s %8s %8s..%-8s %10s\n", "kernel", "plain us", "ours us", "ratio", "quartile",
                "quartile", "compile ms");
  }
  template <class T>
  T* memory(std::size_t n) {
    allocations_.push_back(std::make_unique<Allocation>(device_->allocate(n * sizeof(T), MemoryKind::device)));
    return reinterpret_cast<T*>(allocations_.back()->host);
  }
  template <class T>
  Argument buffer(const T* p, std::size_t n) {
    for (auto& a : allocations_)
      if (a->host == reinterpret_cast<const std::byte*>(p)) return {.allocation = a.get(), .elements = n};
    std::abort();
  }
  /// Times both in turn, in the same memory; true if ours takes at most `limit` times the plain loop's time.
  bool pair(const char* name, const Function& f, std::array<std::uint64_t, 3> shape, std::vector<Argument> arguments,
            Result result, const std::function<void(float*)>& plain_loop) {
    const CompileRequest request{&f, {}};
    double compile = 1e9;
    std::unique_ptr<LoadedKernel> kernel;
    for (int i = 0; i < 3; ++i) {
      const double start = now_us();
      kernel = std::move(device_->compile(std::span(&request, 1))[0]);
      compile = std::min(compile, (now_us() - start) / 1000);
    }
    auto ours = [&] { queue_->launch(*kernel, shape, arguments); };
    auto plain = [&] { plain_loop(result.ours); };
    ours();
    plain_loop(result.plain);
    const double wrong = largest_difference(result.ours, result.plain, result.n);
    auto timed = [](auto&& f, int times) {
      const double start = now_us();
      for (int i = 0; i < times; ++i) f();
      return (now_us() - start) / times;
    };
    auto enough = [&](auto&& f) { return std::max(1, static_cast<int>(1000 / std::max(0.05, timed(f, 3)))); };
    const int plain_times = enough(plain), our_times = enough(ours);
    std::vector<double> ratios;
    double best_plain = 1e30, best_ours = 1e30;
    const auto end = Clock::now() + std::chrono::milliseconds(1500);
    while (ratios.size() < 15 || (Clock::now() < end && ratios.size() < 400)) {
      const double p = timed(plain, plain_times), o = timed(ours, our_times);
      best_plain = std::min(best_plain, p), best_ours = std::min(best_ours, o);
      ratios.push_back(o / p);
    }
    std::sort(ratios.begin(), ratios.end());
    auto at = [&](double q) { return ratios[static_cast<std::size_t>(q * static_cast<double>(ratios.size() - 1))]; };
    std::printf("%-22s %10.1f %10.1f %8.2f %8.2f..%-8.2f %10.1f%s\n", name, best_plain, best_ours, at(0.5), at(0.25),
                at(0.75), compile, wrong > 1e-3 ? "  WRONG RESULT" : "");
    return at(0.5) <= limit && wrong <= 1e-3;
  }

 private:
  static constexpr double limit = 3;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<DriverDevice> device_;
  std::unique_ptr<DriverQueue> queue_;
  std::vector<std::unique_ptr<Allocation>> allocations_;
};

bool run() {
  Bench bench;
  std::mt19937 random(7);
  auto fill = [&](float* p, std::size_t n) {
    std::uniform_real_distribution<float> d(-1, 1);
    for (std::size_t i = 0; i < n; ++i) p[i] = d(random);
    return p;
  };
  auto bits = [](float v) { return Argument{.bits = std::bit_cast<std::uint32_t>(v)}; };
  auto number = [](std::uint64_t v) { return Argument{.bits = v}; };
  bool good = true;

  for (std::size_t n : {std::size_t{4096}, std::size_t{262144}, std::size_t{4} << 20}) {
    float *x = fill(bench.memory<float>(n), n), *y = fill(bench.memory<float>(n), n), *z = bench.memory<float>(n);
    std::memcpy(z, y, n * sizeof(float));
    good &= bench.pair(("saxpy " + std::to_string(n / 1024) + "Ki").c_str(), saxpy(), {n, 1, 1},
                       {bench.buffer(x, n), bench.buffer(y, n), bits(1e-9f)}, {y, z, n},
                       [=](float* out) { plain::saxpy(x, out, 1e-9f, n); });
  }
  {
    const std::size_t rows = 256, columns = 1024, n = rows * columns;
    float *x = fill(bench.memory<float>(n), n), *y = bench.memory<float>(n), *z = bench.memory<float>(n);
    good &= bench.pair("softmax 256x1024", softmax(64), {rows, 1, 1},
                       {bench.buffer(x, n), bench.buffer(y, n), number(columns)}, {y, z, n},
                       [=](float* out) { plain::softmax(x, out, rows, columns); });
  }
  {
    const std::size_t n = 512;
    float *a = fill(bench.memory<float>(n * n), n * n), *b = fill(bench.memory<float>(n * n), n * n);
    float *c = bench.memory<float>(n * n), *d = bench.memory<float>(n * n);
    const Result result{c, d, n * n};
    auto loop = [=](float* out) { plain::product(a, b, out, n); };
    const std::vector<Argument> arguments = {bench.buffer(a, n * n), bench.buffer(b, n * n), bench.buffer(c, n * n),
                                             number(n)};
    good &= bench.pair("product 512 16x16", tiled_product(16), {n / 16, n / 16, 1}, arguments, result, loop);
    good &= bench.pair("product 512 4x4 each", register_tiled_product(), {n / 64, n / 64, 1}, arguments, result, loop);
  }
  for (auto [rows, columns] : {std::pair<std::size_t, std::size_t>{256, 2048}, {4096, 2048}}) {
    const std::size_t blocks = columns / 32;
    auto *w = bench.memory<plain::Block8>(rows * blocks), *x = bench.memory<plain::Block8>(blocks);
    auto* packed = bench.memory<std::uint32_t>(rows * blocks * 8);
    auto* scales = bench.memory<std::uint16_t>(rows * blocks);
    auto* x_packed = bench.memory<std::uint32_t>(blocks * 8);
    float *x_scales = bench.memory<float>(blocks), *y = bench.memory<float>(rows), *z = bench.memory<float>(rows);
    auto draw = [&](plain::Block8& b) {
      b.scale = half_value(half_bits(0.01f * static_cast<float>(random() % 100 + 1)));
      for (auto& q : b.q) q = static_cast<std::int8_t>(random() % 255 - 127);
    };
    for (std::size_t b = 0; b < blocks; ++b) {
      draw(x[b]);
      x_scales[b] = x[b].scale;
      std::memcpy(x_packed + 8 * b, x[b].q, 32);
    }
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t b = 0; b < blocks; ++b) {
        draw(w[r * blocks + b]);
        const std::size_t at = r / 16 * blocks + b;
        scales[at * 16 + r % 16] = half_bits(w[r * blocks + b].scale);
        for (std::size_t q = 0; q < 8; ++q)
          std::memcpy(packed + (at * 8 + q) * 16 + r % 16, w[r * blocks + b].q + 4 * q, 4);
      }
    good &= bench.pair(
        ("q8_0 " + std::to_string(rows) + "x" + std::to_string(columns)).c_str(), product_q8(), {rows / 16, 1, 1},
        {bench.buffer(packed, rows * blocks * 8), bench.buffer(x_packed, blocks * 8),
         bench.buffer(scales, rows * blocks), bench.buffer(x_scales, blocks), bench.buffer(y, rows), number(blocks)},
        {y, z, rows}, [=, rows = rows](float* out) { plain::product_q8(w, x, out, rows, blocks); });
  }
  return good;
}

}  // namespace

// usage: cpu_kernels [--all]: with one thread, then (a second process) with all; exit status 1 if a kernel takes more
// than three times the plain loop's time. The plain loops have one thread always.
int main(int argc, char** argv) {
  const bool all = argc > 1 && std::string(argv[1]) == "--all";
  if (!all && !std::getenv("TESSERA_THREADS")) ::setenv("TESSERA_THREADS", "1", 1);
  one_thread = std::getenv("TESSERA_THREADS") && std::string(std::getenv("TESSERA_THREADS")) == "1";
  const bool good = run();
  std::fflush(stdout);
  if (!good) return 1;
  if (!all && one_thread) {
    ::unsetenv("TESSERA_THREADS");
    char flag[] = "--all";
    char* arguments[] = {argv[0], flag, nullptr};
    ::execv("/proc/self/exe", arguments);
  }
  return 0;
}
