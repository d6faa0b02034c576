// SPDX-License-Identifier: Apache-2.0
// Times the operations that dominate the speed of a model on the device in TESSERA_DEVICE. Compares them with the
// memory bandwidth of the machine and with a plain C++ loop (compiled here with -O3 -march=native).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace {

using namespace tessera;

std::vector<float> numbers(std::size_t n) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(n);
  for (float& x : v) x = uniform(engine);
  return v;
}

struct BlockQ8 {
  half d;
  std::int8_t q[32];
};
struct BlockQ4 {
  half d;
  std::uint8_t q[16];
};
template <class Block>
std::vector<Block> blocks(std::size_t n) {
  std::mt19937 engine(2);
  std::vector<Block> v(n);
  for (Block& b : v) {
    b.d = half(0.01f);
    for (auto& q : b.q) q = static_cast<std::remove_reference_t<decltype(q)>>(engine());
  }
  return v;
}

std::vector<std::byte> file_weight(WeightFormat f, std::size_t count) {
  auto bytes = [](const auto& v) {
    std::vector<std::byte> out(v.size() * sizeof v[0]);
    std::memcpy(out.data(), v.data(), out.size());
    return out;
  };
  if (f == WeightFormat::q8_0) return bytes(blocks<BlockQ8>(count / 32));
  if (f == WeightFormat::q4_0) return bytes(blocks<BlockQ4>(count / 32));
  const auto v = numbers(count);
  if (f == WeightFormat::f32) return bytes(v);
  std::vector<half> h(v.begin(), v.end());
  return bytes(h);
}

// Reads memory as fast as possible. This is the upper bound for a product with one column.
void read_memory(benchmark::State& state) {
  const auto megabytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::uint64_t> memory(megabytes << 17, 3);
  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  for (auto _ : state) {
    std::vector<std::thread> all;
    for (std::size_t t = 0; t < threads; ++t)
      all.emplace_back([&, t] {
        std::uint64_t sum[8] = {};
        for (std::size_t i = memory.size() / threads * t; i + 8 <= memory.size() / threads * (t + 1); i += 8)
          for (std::size_t j = 0; j < 8; ++j) sum[j] += memory[i + j];
        for (std::uint64_t& s : sum) benchmark::DoNotOptimize(s);
      });
    for (auto& t : all) t.join();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0) << 20);
}

void linear(benchmark::State& state, WeightFormat format) {
  const std::int64_t rows = state.range(0), columns = state.range(1), tokens = state.range(2);
  const Device device = current_device();
  const Weight weight =
      Weight::pack(format, file_weight(format, static_cast<std::size_t>(rows * columns)), rows, columns, device);
  const Array x = Array::from(numbers(static_cast<std::size_t>(tokens * columns)), Shape{tokens, columns}, device);
  for (auto _ : state) {
    tessera::linear(x, weight).eval();
    Queue::of(device).finish();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * weight.bytes()));
  state.counters["GMAC/s"] = benchmark::Counter(static_cast<double>(rows * columns * tokens) * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

// The product of one row of 8-bit activations with Q8_0 weights in the format of model files, with one thread.
void plain_q8_0(benchmark::State& state) {
  const auto rows = static_cast<std::size_t>(state.range(0)), columns = static_cast<std::size_t>(state.range(1));
  const auto weight = blocks<BlockQ8>(rows * columns / 32), x = blocks<BlockQ8>(columns / 32);
  std::vector<float> y(rows);
  for (auto _ : state) {
    for (std::size_t r = 0; r < rows; ++r) {
      float sum = 0;
      for (std::size_t b = 0; b < columns / 32; ++b) {
        const BlockQ8 &w = weight[r * (columns / 32) + b], &v = x[b];
        int dot = 0;
        for (int i = 0; i < 32; ++i) dot += w.q[i] * v.q[i];
        sum += static_cast<float>(dot) * static_cast<float>(w.d) * static_cast<float>(v.d);
      }
      y[r] = sum;
    }
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * rows * columns / 32 * sizeof(BlockQ8)));
}

void product(benchmark::State& state, bool transposed) {
  const std::int64_t n = state.range(0);
  const Device device = current_device();
  const Array a = Array::from(numbers(static_cast<std::size_t>(n * n)), Shape{n, n}, device);
  const Array b = transposed ? a.transpose() : a;
  for (auto _ : state) {
    matmul(a, b).eval();
    Queue::of(device).finish();
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(n * n * n), benchmark::Counter::kIsIterationInvariantRate);
}

void plain_product(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto a = numbers(n * n), b = numbers(n * n);
  std::vector<float> c(n * n);
  for (auto _ : state) {
    std::fill(c.begin(), c.end(), 0.0f);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
    benchmark::DoNotOptimize(c.data());
    benchmark::ClobberMemory();
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(n * n * n), benchmark::Counter::kIsIterationInvariantRate);
}

void attention(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), past = state.range(1), heads = 8, key_heads = 2, size = 64;
  const Device device = current_device();
  const Array q = random_normal({tokens, heads, size}, 1, 0, 1, device),
              k = random_normal({key_heads, past + tokens, size}, 2, 0, 1, device);
  for (auto _ : state) {
    tessera::attention(q, k, k, past, 0.125f).eval();
    Queue::of(device).finish();
  }
}

BENCHMARK(read_memory)->Arg(16)->Arg(256)->UseRealTime();
BENCHMARK_CAPTURE(linear, q8_0, WeightFormat::q8_0)
    ->Args({256, 2048, 1})
    ->Args({8192, 2048, 1})
    ->Args({32768, 4096, 1})
    ->Args({2048, 2048, 64})
    ->UseRealTime();
BENCHMARK_CAPTURE(linear, q4_0, WeightFormat::q4_0)
    ->Args({256, 2048, 1})
    ->Args({8192, 2048, 1})
    ->Args({32768, 4096, 1})
    ->Args({2048, 2048, 64})
    ->UseRealTime();
BENCHMARK_CAPTURE(linear, f16, WeightFormat::f16)->Args({8192, 2048, 1})->Args({2048, 2048, 64})->UseRealTime();
BENCHMARK_CAPTURE(linear, f32, WeightFormat::f32)->Args({8192, 2048, 1})->Args({2048, 2048, 64})->UseRealTime();
BENCHMARK(plain_q8_0)->Args({256, 2048})->Args({8192, 2048})->UseRealTime();
BENCHMARK_CAPTURE(product, rows, false)->Arg(64)->Arg(512)->Arg(1024)->UseRealTime();
BENCHMARK_CAPTURE(product, transposed, true)->Arg(512)->UseRealTime();
BENCHMARK(plain_product)->Arg(512)->UseRealTime();
BENCHMARK(attention)->Args({1, 63})->Args({1, 1023})->Args({64, 0})->Args({64, 960})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
