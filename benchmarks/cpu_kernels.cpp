// SPDX-License-Identifier: Apache-2.0
// Compares generated CPU kernels with plain C++ loops (plain_loops.cpp): saxpy, softmax, products of floats and of
// 8-bit weights, a histogram, edit distances, shortest paths, and a division. Kernels and loops run alternately, so
// that other load affects both. If a ratio is below 1, the generated kernel is faster.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/kernel_pairs.h"
#include "benchmarks/plain_loops.h"
#include "tests/cpu/cpu_benchmark_kernels.h"

namespace {

using namespace tessera;
using namespace tessera::ir;
using namespace tessera::test;
using bench::one_thread;
using bench::Result;

bool run() {
  bench::Bench bench(3);
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
    good &= bench.pair("saxpy " + std::to_string(n / 1024) + "Ki", saxpy(), {n, 1, 1},
                       {bench.buffer(x, n), bench.buffer(y, n), bits(1e-9f)}, Result<float>{y, z, n},
                       [=](float* out) { plain::saxpy(x, out, 1e-9f, n); });
  }
  {
    const std::size_t rows = 256, columns = 1024, n = rows * columns;
    float *x = fill(bench.memory<float>(n), n), *y = bench.memory<float>(n), *z = bench.memory<float>(n);
    good &= bench.pair("softmax 256x1024", softmax(64), {rows, 1, 1},
                       {bench.buffer(x, n), bench.buffer(y, n), number(columns)}, Result<float>{y, z, n},
                       [=](float* out) { plain::softmax(x, out, rows, columns); });
  }
  {
    const std::size_t n = 512;
    float *a = fill(bench.memory<float>(n * n), n * n), *b = fill(bench.memory<float>(n * n), n * n);
    float *c = bench.memory<float>(n * n), *d = bench.memory<float>(n * n);
    const Result<float> result{c, d, n * n};
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
        "q8_0 " + std::to_string(rows) + "x" + std::to_string(columns), product_q8(), {rows / 16, 1, 1},
        {bench.buffer(packed, rows * blocks * 8), bench.buffer(x_packed, blocks * 8),
         bench.buffer(scales, rows * blocks), bench.buffer(x_scales, blocks), bench.buffer(y, rows), number(blocks)},
        Result<float>{y, z, rows}, [=, rows = rows](float* out) { plain::product_q8(w, x, out, rows, blocks); });
  }
  {
    const std::size_t n = 1 << 20, blocks = 16;
    auto* x = bench.memory<std::uint8_t>(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<std::uint8_t>(random());
    auto *counts = bench.memory<std::int32_t>(256), *plain_counts = bench.memory<std::int32_t>(256);
    std::fill_n(counts, 256, 0), std::fill_n(plain_counts, 256, 0);
    good &= bench.pair("histogram 1Mi", histogram(), {blocks, 1, 1},
                       {bench.buffer(x, n), bench.buffer(counts, 256), number(n / blocks)},
                       Result<std::int32_t>{counts, plain_counts, 256},
                       [=](std::int32_t* out) { plain::histogram(x, out, n); });
  }
  {
    const std::size_t n = 1024, longest = 64;
    auto *a = bench.memory<std::uint8_t>(n * longest), *b = bench.memory<std::uint8_t>(n * longest);
    auto *a_length = bench.memory<std::int32_t>(n), *b_length = bench.memory<std::int32_t>(n);
    for (std::uint8_t* word : {a, b})
      for (std::size_t i = 0; i < n * longest; ++i) word[i] = static_cast<std::uint8_t>(random() % 4);
    for (std::int32_t* length : {a_length, b_length})
      for (std::size_t i = 0; i < n; ++i) length[i] = static_cast<std::int32_t>(20 + random() % 45);
    auto *y = bench.memory<std::int32_t>(n), *z = bench.memory<std::int32_t>(n);
    good &= bench.pair("levenshtein 1024 x 20-64", levenshtein(longest), {n, 1, 1},
                       {bench.buffer(a, n * longest), bench.buffer(b, n * longest), bench.buffer(a_length, n),
                        bench.buffer(b_length, n), bench.buffer(y, n)},
                       Result<std::int32_t>{y, z, n},
                       [=](std::int32_t* out) { plain::levenshtein(a, b, a_length, b_length, out, n, longest); });
  }
  {
    const std::size_t n = 512, tile = 32, tiles = n / tile;
    auto *d = bench.memory<std::int32_t>(n * n), *plain_d = bench.memory<std::int32_t>(n * n);
    for (std::size_t i = 0; i < n * n; ++i) d[i] = i % (n + 1) == 0 ? 0 : static_cast<std::int32_t>(random() % 10000);
    std::copy_n(d, n * n, plain_d);
    std::vector<Function> phases;
    for (auto phase : {PathPhase::pivot, PathPhase::row, PathPhase::column, PathPhase::rest})
      phases.push_back(shortest_paths(phase, tile));
    good &= bench.pair(
        "shortest paths 512, tiles", phases,
        [&](auto&& launch) {
          for (std::size_t k = 0; k < tiles; ++k) {
            const std::array<Argument, 3> arguments = {bench.buffer(d, n * n), number(n), number(k)};
            launch(0, {1, 1, 1}, arguments);
            launch(1, {tiles - 1, 1, 1}, arguments);
            launch(2, {1, tiles - 1, 1}, arguments);
            launch(3, {tiles - 1, tiles - 1, 1}, arguments);
          }
        },
        Result<std::int32_t>{d, plain_d, n * n}, [=](std::int32_t* out) { plain::shortest_paths(out, n); });
  }
  for (const std::size_t n : {std::size_t{1} << 12, std::size_t{1} << 18, std::size_t{1} << 20}) {
    auto *x = bench.memory<std::int32_t>(n), *y = bench.memory<std::int32_t>(n), *z = bench.memory<std::int32_t>(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<std::int32_t>(random());
    good &= bench.pair("i32 / 7 " + std::to_string(n / 1024) + "Ki", divide_by_number(), {n, 1, 1},
                       {bench.buffer(x, n), bench.buffer(y, n), number(7)}, Result<std::int32_t>{y, z, n},
                       [=](std::int32_t* out) { plain::divide(x, out, n); });
  }
  return good;
}

}  // namespace

// usage: cpu_kernels [--all]. Runs with one thread and, with --all, in a second process with all threads. The exit
// status is 1 if a kernel takes more than three times as long as the plain loop. The plain loops always use one thread.
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
