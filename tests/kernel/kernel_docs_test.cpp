// SPDX-License-Identifier: Apache-2.0
// Tests docs/kernels.md. Every C++ block of the page is contained in this file, where it is compiled and run. The
// errors that the page shows are compared with the actual errors.
#include <gtest/gtest.h>
#include <tessera/report/report.h>
#include <tessera/tessera.h>
#include <tessera/testing/testing.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tessera/device/launch/launch_arguments.h"
#include "tests/support/docs_page.h"

using namespace tessera;
namespace tt = tessera::testing;

namespace {

const tessera::test::DocsPage& page() {
  static const tessera::test::DocsPage one("docs/kernels.md");
  return one;
}
template <class F>
void expect_on_page(F f) {
  page().expect_error(f);
}

TEST(KernelDocs, EveryCodeBlockIsCompiled) { page().expect_blocks_in("tests/kernel/kernel_docs_test.cpp", 20); }

// The code below must be identical to the code on the page.
// clang-format off

// The first kernel.

auto saxpy = kernel("saxpy", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
  auto i = global_id();
  y[i] = a * x[i] + y[i];
});

TEST(KernelDocs, FirstKernelExampleRuns) {
  const DeviceScope scope({Backend::interp, 0});
  std::vector<float> ones(1000, 1.0f), twos(1000, 2.0f);
  DeviceBuffer<float> x(ones), y(twos);
  saxpy.launch({1000}, x, y, 2.0f);
  std::vector<float> result = y.to_vector();  // waits; 4, 4, 4, ...

  EXPECT_EQ(result, std::vector<float>(1000, 4.0f));
}

// Index.

auto transpose = kernel("transpose", [](Buffer<const float> in, Buffer<float> out, Val<Index> width, Val<Index> height) {
  auto x = global_id(0), y = global_id(1);
  out[x * height + y] = in[y * width + x];
});

auto gather = kernel("gather", [](Buffer<const float> table, Buffer<const int> rows, Buffer<float> out, Val<Index> width) {
  auto column = global_id(0), i = global_id(1);
  auto row = cast<Index>(rows[i]);  // Val<int> and Val<Index> do not mix
  out[i * width + column] = table[row * width + column];
});

TEST(KernelDocs, IndexExamplesRun) {
  tt::for_each_device([](Device) {
    const int width = 70, height = 33;
    tt::Random random;
    const auto host = random.values<float>(width * height);
    std::vector<double> expected(host.size());
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) expected[x * height + y] = host[y * width + x];
    const DeviceBuffer<float> in(host);
    tt::Poisoned<float> out(host.size());
    transpose.launch({width, height}, in, out, width, height);
    out.expect(expected);

    const DeviceBuffer<int> rows{7, 0, 7};
    tt::Poisoned<float> picked(3 * width);
    gather.launch({width, 3}, in, rows, picked, width);
    const auto got = picked.values();
    EXPECT_EQ(got[5], host[7 * width + 5]);
    EXPECT_EQ(got[width + 5], host[5]);
  });
}

// Values, variables and literals.

auto newton = kernel("newton_sqrt", [](Buffer<const float> x, Buffer<float> y) {
  auto i = global_id();
  auto a = x[i];            // Val<float>: the value read here, even if x[i] changes later
  Var<float> guess = a;     // a variable, which may change
  for (int round = 0; round < 4; ++round)
    guess = 0.5 * (guess + a / guess);
  y[i] = guess;
});

auto power(int n) {
  return kernel("power_" + std::to_string(n), [n](Buffer<float> x) {
    auto i = global_id();
    Var<float> p = 1.0f;
    for (int k = 0; k < n; ++k) p *= x[i];
    x[i] = p;
  });
}

// Strided arrays.

auto subtract_row = kernel("subtract_row", [](View<const float, 1> row, View<float, 2> x) {
  auto column = global_id(0), i = global_id(1);
  x(i, column) -= row(column);
});

TEST(KernelDocs, ViewsOfStridedArraysRun) {
  for (const Device device : {Device{Backend::interp, 0}, Device{Backend::cpu, 0}}) {
    const DeviceScope scope(device);
    Array x = Array::arange(6).reshape({2, 3});
    Array columns = x.transpose();                               // shares the memory of x
    subtract_row.launch({2, 3}, x.select(1, 0).copy(), columns);  // x[:, i] -= x[:, 0]

    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(subtract_row.text().find("arg1_stride1") != std::string::npos, true);
    subtract_row.launch({3, 2}, Array::ones({3}), x);  // adjacent elements: the other kernel
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{-1, 0, 1, -1, 0, 1}));

    const auto count = kernel("count_positive", [](View<const float, 3> from, View<int, 1> counts) {
      const auto i = global_id(0), j = global_id(1), k = global_id(2);
      if_(from(i, j, k) > 0 && i < from.extent(0), [&] { atomic_add(counts.buffer(), counts.index(k), 1); });
    });
    Array counts = Array::zeros({2, 2}, DType::i32), every_second = counts.slice(1, 0, 1).reshape({2});
    const Array cube = Array::from<float>({1, -1, 2, 3, -4, -5, -6, 7}, Shape{2, 2, 2});
    count.launch({2, 2, 2}, cube, every_second);
    count.launch({2, 2, 2}, cube.permute({1, 0, 2}), every_second);
    EXPECT_EQ(counts.to_vector<int>(), (std::vector{4, 0, 4, 0}));
    count.launch({2, 2, 1}, cube.slice(2, 1, 2), every_second);
    EXPECT_EQ(counts.to_vector<int>(), (std::vector{6, 0, 4, 0}));

    const auto fails = [&](const auto& f, const char* part) {
      try {
        f();
        ADD_FAILURE() << part;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      }
    };
    fails([&] { subtract_row.launch({1, 1}, x, x); }, "dimensions");
    Array wide = Array::zeros({1}).broadcast_to({3});
    Array matrix = Array::zeros({1, 2}).broadcast_to({3, 2});
    subtract_row.launch({2, 3}, wide.slice(0, 0, 2), x.transpose().slice(1, 0, 2));
    fails([&] { subtract_row.launch({2, 3}, wide, matrix); }, "share memory");
    fails([&] { subtract_row.launch({2, 3}, wide.astype(DType::f64), x); }, "f64");
    fails([] { kernel("wrong", [](View<float, 1> v) { v(0) = cast<float>(v.extent(1)); }); }, "does not have this");
  }
}

TEST(KernelDocs, ValueAndVariableExamplesRun) {
  tt::for_each_device([](Device) {
    tt::Random random;
    const auto host = random.values<float>(100, 0.5, 2);
    std::vector<double> roots, cubes;
    for (const float v : host) roots.push_back(std::sqrt(static_cast<double>(v))), cubes.push_back(std::pow(static_cast<double>(v), 3));
    const DeviceBuffer<float> in(host);
    tt::Poisoned<float> out(100);
    newton.launch({100}, in, out);
    out.expect(roots, {.relative = 1e-6});
    DeviceBuffer<float> cubed(host);
    power(3).launch({100}, cubed);
    tt::expect_close(cubed.to_vector(), cubes, {.relative = 1e-6});
  });
}

// Control flow.

auto collatz = kernel("collatz", [](Buffer<const int> start, Buffer<int> steps) {
  auto i = global_id();
  Var<int> n = start[i], count = 0;
  while_([&] { return n > 1; }, [&] {
    if_(n % 2 == 0, [&] { n = n / 2; }, [&] { n = 3 * n + 1; });
    ++count;
  });
  steps[i] = count;
});

auto row_sums = kernel("row_sums", [](Buffer<const float> x, Buffer<float> y, Val<Index> width) {
  auto row = global_id();
  Var<float> sum = 0.0f;
  for_(0, width, [&](Val<Index> j) { sum += x[row * width + j]; });
  y[row] = sum;
});

auto multiply_by_vector = kernel("multiply_by_vector", [](Buffer<const float> m, Buffer<const float> x, Buffer<float> y, Val<Index> width) {
  auto row = global_id();
  Var<float> sum = 0.0f;
  for_(0, width, unroll(8), [&](Val<Index> j) { sum += m[row * width + j] * x[j]; });
  y[row] = sum;
});

auto clamp_negative = kernel("clamp_negative", [](Buffer<float> x) {
  auto i = global_id();
  if_(x[i] >= 0, [] { return_(); });
  x[i] = select(x[i] > -1, 0.0f, -1.0f);
});

auto shift_left = kernel("shift_left", [](Buffer<const float> x, Buffer<float> y) {
  auto i = global_id();
  y[i] = x.load_if(i + 1 < x.size(), i + 1, 0);
});

auto scale_groups = kernel("scale_groups", [](Buffer<const float> x, Buffer<float> y, Val<float> factor) {
  aligned_vectors();
  auto i = global_id() * 4;
  auto v = x.load<4>(i);  // one access of 16 bytes
  y.store(i, Vec<float, 4>(v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor));
});

TEST(KernelDocs, ControlFlowExamplesRun) {
  tt::for_each_device([](Device) {
    const DeviceBuffer<int> start{1, 2, 3, 7, 27};
    tt::Poisoned<int> steps(5);
    collatz.launch({5}, start, steps);
    steps.expect(std::vector<int>{0, 1, 7, 16, 111});

    const DeviceBuffer<float> x{1, 2, 3, 4, 5, 6};
    tt::Poisoned<float> sums(2), shifted(6);
    row_sums.launch({2}, x, sums, 3);
    sums.expect(std::vector<double>{6, 15});
    multiply_by_vector.launch({2}, x, DeviceBuffer<float>{1, 0, 2}, sums, 3);
    sums.expect(std::vector<double>{7, 16});
    shift_left.launch({6}, x, shifted);
    tt::Poisoned<float> scaled(4);
    scale_groups.launch({1}, x, scaled, 2.0f);
    scaled.expect(std::vector<double>{2, 4, 6, 8});
    shifted.expect(std::vector<double>{2, 3, 4, 5, 6, 0});

    DeviceBuffer<float> some{2, -0.5f, -3};
    clamp_negative.launch({3}, some);
    EXPECT_EQ(some.to_vector(), (std::vector<float>{2, 0, -1}));
  });
}

// Structs.

struct Particle {
  float height, speed;
  std::int32_t bounces;
};

auto fall = kernel("fall", [](Buffer<Particle> particles, Val<float> dt) {
  auto p = particles[global_id()];
  p[&Particle::speed] -= 9.81 * dt;
  p[&Particle::height] += dt * p[&Particle::speed];
  if_(p[&Particle::height] < 0, [&] {
    p[&Particle::height] = -p[&Particle::height];
    p[&Particle::speed] = -p[&Particle::speed];
    p[&Particle::bounces] += 1;
  });
});

TEST(KernelDocs, StructExamplesRun) {
  tt::for_each_device([](Device) {
    std::vector<Particle> host(1000, {.height = 2, .speed = 0, .bounces = 0});
    DeviceBuffer<Particle> particles(host);
    for (int step = 0; step < 100; ++step) fall.launch({1000}, particles, 0.01f);
    host = particles.to_vector();

    double height = 2, speed = 0;
    int bounces = 0;
    for (int step = 0; step < 100; ++step) {
      speed -= 9.81 * 0.01f;
      height += 0.01f * speed;
      if (height < 0) height = -height, speed = -speed, ++bounces;
    }
    EXPECT_EQ(bounces, 1);
    for (const Particle& p : host) {
      EXPECT_EQ(p.bounces, bounces);
      EXPECT_NEAR(p.height, height, 1e-3);
      EXPECT_NEAR(p.speed, speed, 1e-3);
    }
  });
}

// Helper functions.

auto silu(Val<float> x) { return x / (1 + exp(-x)); }

struct Matrix {
  Buffer<const float> data;
  Val<Index> width;
  auto operator()(Val<Index> row, Val<Index> column) const { return data[row * width + column]; }
};

auto gate = kernel("gate", [](Buffer<const float> up, Buffer<float> out, Val<Index> width) {
  Matrix m{up, width};
  auto column = global_id(0), row = global_id(1);
  out[row * width + column] = silu(m(row, column));
});

TEST(KernelDocs, HelperFunctionExamplesRun) {
  tt::for_each_device([](Device) {
    tt::Random random;
    const auto host = random.values<float>(40, -5, 5);
    std::vector<double> expected;
    for (const float v : host) expected.push_back(v / (1 + std::exp(-static_cast<double>(v))));
    const DeviceBuffer<float> up(host);
    tt::Poisoned<float> out(40);
    gate.launch({8, 5}, up, out, 8);
    out.expect(expected, {.absolute = 1e-6, .relative = 1e-5});
  });
}

// Blocks.

auto reverse_blocks = kernel("reverse_blocks", block(64), [](Buffer<const float> x, Buffer<float> y) {
  Shared<float> tile(64);
  auto t = thread_id();
  auto i = global_id();
  tile[t] = x.load_if(i < x.size(), i, 0);
  barrier();                                       // all threads have written before any reads
  if_(i < y.size(), [&] { y[i] = tile[63 - t]; });
});

auto transpose_tiles = kernel("transpose_tiles", block(32, 8), [](Buffer<const float> in, Buffer<float> out, Val<Index> width,
                                                                  Val<Index> height) {
  Shared<float> tile(32, 33);  // an extra column avoids bank conflicts
  auto x = thread_id(0), left = block_id(0) * 32, top = block_id(1) * 32;
  for_(thread_id(1), 32, 8, [&](Val<Index> y) {
    if_(left + x < width && top + y < height, [&] { tile(y, x) = in[(top + y) * width + left + x]; });
  });
  barrier();
  for_(thread_id(1), 32, 8, [&](Val<Index> y) {
    if_(top + x < height && left + y < width, [&] { out[(left + y) * height + top + x] = tile(x, y); });
  });
});

auto softmax_rows = kernel("softmax_rows", block(256), [](Buffer<const float> x, Buffer<float> y, Val<Index> width) {
  auto begin = block_id() * width;  // a block for each row
  Var<float> highest = -std::numeric_limits<float>::infinity();
  for_(thread_id(), width, block_size(), [&](Val<Index> j) { highest = max(highest, x[begin + j]); });
  auto top = block_max(highest);
  Var<float> sum = 0.0f;
  for_(thread_id(), width, block_size(), [&](Val<Index> j) { sum += exp(x[begin + j] - top); });
  auto total = block_sum(sum);
  for_(thread_id(), width, block_size(), [&](Val<Index> j) { y[begin + j] = exp(x[begin + j] - top) / total; });
});

auto halve_until_small = kernel("halve_until_small", block(64), [](Buffer<float> x) {
  auto i = block_id() * block_size() + thread_id();
  Var<bool> busy = true;
  while_([&] { return block_uniform(busy); }, [&] {
    auto largest = block_max(abs(x[i]));
    if_(largest > 1, [&] { x[i] *= 0.5; });
    busy = largest > 1;
  });
});

auto sum_by_subgroups = kernel("sum_by_subgroups", block(256), [](Buffer<const float> x, Buffer<float> sums) {
  Shared<float> part(256);  // enough for subgroups of one thread
  auto i = global_id();
  auto mine = subgroup_sum(Val<float>(x.load_if(i < x.size(), i, 0)));
  if_(lane_id() == 0, [&] { part[subgroup_id()] = mine; });
  barrier();
  if_(thread_id() == 0, [&] {
    Var<float> sum = 0.0f;
    for_(0, subgroup_count(), [&](Val<Index> s) { sum += part[s]; });
    sums[block_id()] = sum;
  });
});

auto histogram = kernel("histogram", [](Buffer<const std::uint8_t> x, Buffer<int> counts, Buffer<int> first_of_bin_9) {
  auto i = global_id();
  auto bin = x[i];
  auto before = atomic_add(counts, bin, 1);
  if_(bin == 9 && before == 0, [&] { first_of_bin_9[0] = cast<int>(i); });
});

TEST(KernelDocs, BlockExamplesRun) {
  tt::for_each_device([](Device) {
    tt::Random random;
    const auto host = random.values<float>(1000, -3, 3);
    const DeviceBuffer<float> x(host);
    tt::Poisoned<float> y(1000);
    reverse_blocks.launch({1000}, x, y);  // 1000 threads, rounded up to 16 blocks
    const auto reversed = y.values();
    EXPECT_EQ(reversed[0], host[63]);
    EXPECT_EQ(reversed[999 - 39], 0.0f);

    tt::Poisoned<float> turned(1000);
    transpose_tiles.launch(blocks(2, 2), x, turned, 40, 25);
    std::vector<float> columns;
    for (std::size_t i = 0; i < 1000; ++i) columns.push_back(host[i % 25 * 40 + i / 25]);
    turned.expect(columns);

    tt::Poisoned<float> soft(1000);
    softmax_rows.launch(blocks(4), x, soft, 250);
    std::vector<double> expected;
    for (int row = 0; row < 4; ++row) {
      double total = 0;
      for (int j = 0; j < 250; ++j) total += std::exp(static_cast<double>(host[row * 250 + j]));
      for (int j = 0; j < 250; ++j) expected.push_back(std::exp(static_cast<double>(host[row * 250 + j])) / total);
    }
    soft.expect(expected, {.relative = 1e-5});

    std::vector<double> sums(4);
    for (std::size_t i = 0; i < 1000; ++i) sums[i / 256] += host[i];
    tt::Poisoned<float> got(4);
    sum_by_subgroups.launch({1000}, x, got);
    got.expect(sums, {.absolute = 1e-4});

    DeviceBuffer<float> halved(std::vector<float>(64, 5));
    halve_until_small.launch(blocks(1), halved);
    EXPECT_EQ(halved.to_vector()[3], 0.625f);

    const DeviceBuffer<std::uint8_t> bytes(random.values<std::uint8_t>(5000, 0, 15));
    DeviceBuffer<int> counts(16), first(1);
    counts.fill(0), first.fill(-1);
    histogram.launch({5000}, bytes, counts, first);
    const auto host_bytes = bytes.to_vector();
    EXPECT_EQ(counts.to_vector()[9], std::count(host_bytes.begin(), host_bytes.end(), 9));
    EXPECT_EQ(host_bytes[static_cast<std::size_t>(first.to_vector()[0])], 9);
  });
}

// Matrix products.

auto multiply_tiles = kernel("multiply_tiles", block(128), [](Buffer<const half> a, Buffer<const half> b, Buffer<float> c,
                                                              Val<Index> m, Val<Index> n, Val<Index> k) {
  auto columns = n / 16, tiles = m / 16 * columns;
  auto first = block_id() * subgroup_count() + subgroup_id();
  for_(first, tiles, block_count() * subgroup_count(), [&](Val<Index> tile) {  // one tile per subgroup and iteration
    auto row = tile / columns * 16, column = tile % columns * 16;
    MatrixAccumulator sum;
    MatrixLeft<half> left;
    MatrixRight<half> right;
    for_(0, k, 16, [&](Val<Index> j) {
      left.load(a, row * k + j, k);          // element (i, j) from a[index + i * stride + j]
      right.load(b, j * n + column, n);
      sum.multiply_add(left, right);
    });
    sum.store(c, row * n + column, n);
  });
});

auto linear_layer = kernel("linear_layer", block(128), [](Buffer<const half> x, Buffer<const half> weights,
                                                          Buffer<const float> bias, Buffer<half> y, Val<Index> n,
                                                          Val<Index> k) {
  Shared<float> strip(16 * 64);
  auto row = block_id(1) * 16, column = block_id(0) * 64;
  for_(subgroup_id(), 4, subgroup_count(), [&](Val<Index> tile) {
    MatrixAccumulator sum;
    MatrixLeft<half> left;
    MatrixRight<half> right;
    for_(0, k, 16, [&](Val<Index> j) {
      left.load(x, row * k + j, k);
      right.load_transposed(weights, (column + tile * 16) * k + j, k);  // one row of weights per column of y
      sum.multiply_add(left, right);
    });
    sum.store(strip, tile * 16, 64);
  });
  barrier();
  for_(thread_id(), 16 * 64, block_size(), [&](Val<Index> e) {
    auto i = e / 64, j = e % 64;
    y[(row + i) * n + column + j] = silu(strip[e] + bias[column + j]);
  });
});

TEST(KernelDocs, MatrixExamplesRun) {
  tt::for_each_device([](Device) {
    tt::Random random;
    const std::size_t m = 48, n = 128, k = 80;
    auto product = [&](const std::vector<half>& x, const std::vector<half>& y, std::size_t columns, bool transposed) {
      std::vector<double> out(m * columns);
      for (std::size_t i = 0; i < out.size(); ++i)
        for (std::size_t p = 0; p < k; ++p)
          out[i] += double(float(x[i / columns * k + p])) *
                    float(y[transposed ? i % columns * k + p : p * columns + i % columns]);
      return out;
    };
    const auto host_a = random.values<half>(m * k), host_b = random.values<half>(k * 32);
    DeviceBuffer<half> a(host_a), b(host_b);
    tt::Poisoned<float> c(m * 32);
    multiply_tiles.launch(blocks(4), a, b, c, 48, 32, 80);
    c.expect(product(host_a, host_b, 32, false), {.absolute = 1e-4});

    const auto host_weights = random.values<half>(n * k);
    const auto host_bias = random.values<float>(n);
    DeviceBuffer<half> weights(host_weights);
    DeviceBuffer<float> bias(host_bias);
    tt::Poisoned<half> y(m * n);
    linear_layer.launch(blocks(n / 64, m / 16), a, weights, bias, y, n, k);
    std::vector<double> expected = product(host_a, host_weights, n, true);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += host_bias[i % n];
      expected[i] /= 1 + std::exp(-expected[i]);
    }
    y.expect(expected, {.absolute = 1e-3, .relative = 1e-3});
  });
}

auto attend = kernel("attend", block(128), [](Buffer<const half> q, Buffer<const half> k, Buffer<const half> v,
                                              Buffer<float> y, Val<Index> tiles) {
  auto tile = block_id() * subgroup_count() + subgroup_id();
  if_(tile < tiles, [&] {
    MatrixLeft<half> left;
    MatrixRight<half> right;
    MatrixAccumulator scores, out;
    left.load(q, tile * 256, 16);
    right.load_transposed(k, 0, 16);
    scores.multiply_add(left, right);
    MatrixRows largest, total;
    largest.set_maxima(scores);
    for_each_element([&](MatrixElement e) { scores.set(e, exp(scores[e] - largest[e])); });
    total.set_sums(scores);
    for_each_row([&](MatrixRow r) { total.set(r, 1 / total[r]); });
    left.convert(scores);  // without memory
    right.load(v, 0, 16);
    out.multiply_add(left, right);
    for_each_element([&](MatrixElement e) { y[tile * 256 + e.row * 16 + e.column] = out[e] * total[e]; });
  });
});

TEST(KernelDocs, ElementsAndRowsExampleRuns) {
  tt::for_each_device([](Device) {
    tt::Random random;
    constexpr std::size_t tiles = 3;
    const auto q = random.values<half>(tiles * 256), k = random.values<half>(256),
               v = random.values<half>(256);
    const auto value = [](half h) { return static_cast<double>(static_cast<float>(h)); };
    std::vector<double> expected(tiles * 256);
    for (std::size_t i = 0; i < tiles * 16; ++i) {
      double p[16], total = 0;
      for (std::size_t j = 0; j < 16; ++j) {
        double sum = 0;
        for (std::size_t d = 0; d < 16; ++d) sum += value(q[i * 16 + d]) * value(k[j * 16 + d]);
        total += p[j] = std::exp(sum);
      }
      for (std::size_t d = 0; d < 16; ++d)
        for (std::size_t j = 0; j < 16; ++j) expected[i * 16 + d] += p[j] / total * value(v[j * 16 + d]);
    }
    DeviceBuffer<half> on_q(q), on_k(k), on_v(v);
    DeviceBuffer<float> y(tiles * 256);
    attend.launch(blocks(4), on_q, on_k, on_v, y, tiles);
    tt::expect_close(y.to_vector(), expected, {.absolute = 2e-3, .relative = 2e-3});
  });
}

// Asynchronous copies.

auto sums = kernel("sums", block(64), [](Buffer<const half> x, Buffer<float> y, Val<Index> tiles) {
  aligned_vectors();
  Shared<half> stages(2, 512);  // two stages of 64 threads x 8 elements
  auto start = [&](Val<Index> tile) {
    if_(tile < tiles, [&] {
      copy_async<8>(stages, tile % 2 * 512 + thread_id() * 8, x, (block_id() * tiles + tile) * 512 + thread_id() * 8);
    });
    async_commit();
  };
  Var<float> sum = 0.0f;
  start(Val<Index>(0));
  for_(0, tiles, [&](Val<Index> tile) {
    start(tile + 1);  // while the previous tile is used
    async_wait(1);    // for all groups but the newest
    barrier();
    for_(0, 8, [&](Val<Index> i) { sum += cast<float>(stages[tile % 2 * 512 + i * 64 + thread_id()]); });
    barrier();  // before the stage is copied to again
  });
  y[block_id() * 64 + thread_id()] = sum;
});

TEST(KernelDocs, AsynchronousCopiesExampleRuns) {
  tt::for_each_device([](Device) {
    constexpr std::size_t count = 2, tiles = 5;
    std::vector<half> x(count * tiles * 512);
    std::vector<double> expected(count * 64);
    for (std::size_t e = 0; e < x.size(); ++e) {
      x[e] = half(static_cast<float>(e * 7 % 11));
      expected[e / (tiles * 512) * 64 + e % 64] += static_cast<double>(e * 7 % 11);
    }
    DeviceBuffer<half> on_x(x);
    DeviceBuffer<float> y(count * 64);
    sums.launch(blocks(count), on_x, y, tiles);
    tt::expect_close(y.to_vector(), expected, {.absolute = 1e-6, .relative = 1e-6});
  });
}

// 16-bit floats, vectors, packed bytes and print.

auto scale_half = kernel("scale_half", [](Buffer<half> x, Val<float> factor) {
  auto i = global_id();
  auto scaled = x[i] * factor;  // Val<float>
  x[i] = scaled + 1;            // rounds to half here
});

auto dot_rows = kernel("dot_rows", [](Buffer<const std::uint32_t> a, Buffer<const std::uint32_t> b, Buffer<int> out, Val<Index> n) {
  auto row = global_id();
  Var<int> sum = 0;
  for_(0, n, 4, [&](Val<Index> j) {
    auto x = a.load<4>(row * n + j), y = b.load<4>(j);
    for (int k = 0; k < 4; ++k) sum = dot4(x[k], y[k], sum);
  });
  out[row] = sum;
});

auto talk = kernel("talk", [](Buffer<const float> x) {
  auto i = global_id();
  if_(x[i] < 0, [&] { print("x[{}] is {:.4}", i, x[i]); });
});

// Reductions, scans and compactions.

auto largest = reduction("largest", -INFINITY, [](Val<float> a, Val<float> b) { return max(a, b); });
auto running = prefix_scan("running", -INFINITY, [](Val<float> a, Val<float> b) { return max(a, b); });
auto positive = compaction("positive", [](Val<float> v) { return v > 0.0f; });

TEST(KernelDocs, ReductionScanAndCompactionExamplesRun) {
  DeviceBuffer<float> samples({3, -1, 4, -1, 5}), out(5);
  float most = largest(samples);                    // waits; largest(samples, one) writes to a buffer without waiting
  running(samples, out);                            // 3, 3, 4, 4, 5
  running.exclusive(samples, out);                  // -inf, 3, 3, 4, 4
  std::uint64_t count = positive(samples, out);     // 3: out begins with 3, 4, 5

  EXPECT_EQ(most, 5);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(out.to_vector(), (std::vector<float>{3, 4, 5, 4, 4}));
  running(samples, out);
  EXPECT_EQ(out.to_vector(), (std::vector<float>{3, 3, 4, 4, 5}));
}

TEST(KernelDocs, HalfVectorAndPrintExamplesRun) {
  tt::for_each_device([](Device) {
    DeviceBuffer<half> x{half(1), half(2), half(0.1f)};
    scale_half.launch({3}, x, 3.0f);
    const auto h = x.to_vector();
    EXPECT_EQ(h[1], half(7));
    EXPECT_EQ(h[2], half(static_cast<float>(half(0.1f)) * 3 + 1));

    tt::Random random;
    const auto a = random.values<std::int8_t>(2 * 32, -128, 127), b = random.values<std::int8_t>(32, -128, 127);
    auto packed = [](const std::vector<std::int8_t>& bytes) {
      std::vector<std::uint32_t> words(bytes.size() / 4);
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::int8_t*>(words.data()));
      return words;
    };
    std::vector<int> expected(2);
    for (std::size_t i = 0; i < 64; ++i) expected[i / 32] += a[i] * b[i % 32];
    const DeviceBuffer<std::uint32_t> pa(packed(a)), pb(packed(b));
    tt::Poisoned<int> out(2);
    dot_rows.launch({2}, pa, pb, out, 8);
    out.expect(expected);

    const DeviceBuffer<float> quiet{1, 2};
    talk.launch({2}, quiet);
  });
}

// The same code as in docs/devices.md.
TEST(KernelDocs, ReplayUsesTheNewValueOfASlot) {
  tt::for_each_device([](Device device) {
    Queue& queue = Queue::of(device);
    auto scale = kernel("scale", [](Buffer<float> y, Val<float> a, Val<Index> n) {
      auto i = global_id();
      if_(i < n, [&] { y[i] *= a; });
    });
    DeviceBuffer<float> y{1, 1, 1};
    Sequence scaled = Sequence::record(queue, [&] { scale.launch(3, y, slot(0, 2.f), slot(1, 2)); });
    EXPECT_EQ(y.to_vector(), (std::vector<float>{2, 2, 1}));
    scaled.set(0, LaunchArgument::scalar(3.f)), scaled.set(1, LaunchArgument::index(3)), scaled.replay();
    EXPECT_EQ(y.to_vector(), (std::vector<float>{6, 6, 3}));
  });
}

// Errors.

TEST(KernelDocs, TracingErrorsMatchThePage) {
  expect_on_page([] {
#line 1 "smooth.cpp"
    auto smooth = kernel("smooth", block(64), [](Buffer<const float> x, Buffer<float> y) {
      Shared<float> tile(64);
      auto i = global_id();
      if_(i < x.size(), [&] {
        tile[thread_id()] = x[i];
        barrier();
        y[i] = 0.5 * (tile[thread_id()] + tile[63 - thread_id()]);
      });
    });
  });
  expect_on_page([] {
#line 1 "wide.cpp"
    auto wide = kernel("wide", block(64, 32), [](Buffer<float> x) { x[global_id()] = 1; });
  });
  expect_on_page([] {
#line 1 "bytes.cpp"
    auto bytes = kernel("bytes", [](Buffer<std::uint8_t> x) { x[global_id()] = 256; });
  });
  expect_on_page([] {
#line 1 "lanes.cpp"
auto some_lanes = kernel("some_lanes", block(64), [](Buffer<float> x) {
  MatrixAccumulator sum;
  if_(lane_id() < 8, [&] { sum.store(x, 0, 16); });
});
  });
}

TEST(KernelDocs, LaunchErrorsMatchThePage) {
  const DeviceScope scope({Backend::interp, 0});
  DeviceBuffer<float> y(100);
  expect_on_page([&] {
    Array counts = Array::full({100}, 1, DType::i32);
    saxpy.launch({100}, counts, y, 2.0f);
  });
  expect_on_page([&] {
    BufferView first = y.view(), second = y.view();
    first.elements = second.elements = 60;
    second.byte_offset = 40 * sizeof(float);
    saxpy.launch({60}, first, second, 2.0f);
  });
  DeviceBuffer<std::uint32_t> words(100);
  expect_on_page([&] { fall.launch({8}, words.view(), 0.01f); });
}

#line 1 "mistakes.cpp"
auto neighbours = kernel("neighbours", [](Buffer<const float> x, Buffer<float> y) {
  auto i = global_id();
  y[i] = x[i] + x[i + 1];
});

auto rotate_block = kernel("rotate", block(64), [](Buffer<const float> x, Buffer<float> y) {
  Shared<float> tile(64);
  auto t = thread_id();
  tile[t] = x[t];
  y[t] = tile[(t + 1) % 64];
});

auto half_filled = kernel("half_filled", block(64), [](Buffer<const float> x, Buffer<float> y) {
  Shared<float> tile(64);
  auto t = thread_id();
  if_(t < 32, [&] { tile[t] = x[t]; });
  barrier();
  y[t] = tile[63 - t];
});

auto promise = kernel("promise", block(64), [](Buffer<const float> x, Buffer<float> y) {
  auto t = thread_id();
  if_(block_uniform(x[t]) > 0, [&] { barrier(); });
  y[t] = 1;
});

auto same_tile = kernel("same_tile", block(64), [](Buffer<float> y) {
  MatrixAccumulator sum;
  sum.fill(1);
  sum.store(y, 0, 16);
});

auto add_to = kernel("add_to", [](Buffer<const float> x, Buffer<float> y) {  // y is a new DeviceBuffer<float>(64)
  auto i = global_id();
  if_(i < 48, [&] { y[i] += x[i]; });
});

auto copy_to = kernel("copy_to", [](Buffer<const float> x, Buffer<float> y) {
  auto i = global_id();
  if_(i < 48, [&] { y[i] = x[i]; });
});

TEST(KernelDocs, InterpreterFindingsMatchThePage) {
  const DeviceScope scope({Backend::interp, 0});
  std::vector<float> numbers(64);
  for (std::size_t i = 0; i < 64; ++i) numbers[i] = static_cast<float>(i);
  const DeviceBuffer<float> x(numbers);
  DeviceBuffer<float> y(64);
  auto run = [&](const auto& k, const auto& shape) {
    k.launch(shape, x, y);
    y.to_vector();
  };
  expect_on_page([&] { run(neighbours, Extent(64)); });
  expect_on_page([&] { run(rotate_block, blocks(1)); });
  expect_on_page([&] { run(half_filled, blocks(1)); });
  expect_on_page([&] { run(promise, blocks(1)); });
  y = DeviceBuffer<float>(64);
  expect_on_page([&] { run(add_to, Extent(64)); });
  y = DeviceBuffer<float>(64);
  expect_on_page([&] { run(copy_to, Extent(64)); });
  DeviceBuffer<float> square(256);
  expect_on_page([&] {
    same_tile.launch(blocks(1), square);
    square.to_vector();
  });
}

// Testing your own kernel.

TEST(MyKernels, Saxpy) {
  tessera::testing::for_each_device([](Device) {
    tessera::testing::Random random;
    for (std::size_t n : tessera::testing::awkward_sizes) {
      const auto host_x = random.values<float>(n), host_y = random.values<float>(n);
      std::vector<double> expected(n);
      for (std::size_t i = 0; i < n; ++i) expected[i] = 2.0 * host_x[i] + host_y[i];

      DeviceBuffer<float> x(host_x), y(host_y);
      saxpy.launch({n}, x, y, 2.0f);
      tessera::testing::expect_close(y.to_vector(), expected, {.absolute = 1e-6, .relative = 1e-6});
    }
  });
}

// Report on a kernel.

auto long_rows = kernel("long_rows", block(64), [](Buffer<const float> x, Buffer<float> y) {
  Var<float> sum = 0.0f;
  for_(thread_id(), 4096, 64, [&](auto i) { sum = sum + x[block_id() * 4096 + i]; });
  auto total = block_sum(sum);
  if_(thread_id() == 0, [&] { y[block_id()] = total; });
});

std::string reports() {
  std::string text = to_string(report(long_rows.untyped(), {"sm_90"}));
  // Reports on all launches of a function, which runs without a GPU and computes nothing.
  for (const KernelReport& r : report_launches({"sm_90"}, [](Device gpu) {
         DeviceBuffer<float> x(4096 * 4096, gpu), y(4096, gpu);
         long_rows.launch(blocks(4096), x, y);
       }))
    text += to_string(r);
  return text;
}

// Improve a kernel with its reports.

auto row_sums_by_blocks(int threads) {
  return kernel("row_sums_" + std::to_string(threads), block(threads), [](Buffer<const float> x, Buffer<float> y, Val<Index> width) {
    auto row = block_id() * width;
    Var<float> sum = 0.0f;
    for_(thread_id(), width, block_size(), [&](Val<Index> j) { sum += x[row + j]; });
    auto total = block_sum(sum);
    if_(thread_id() == 0, [&] { y[block_id()] = total; });
  });
}

auto row_sums_32_loads = kernel("row_sums_32_loads", block(512), [](Buffer<const float> x, Buffer<float> y, Val<Index> width) {
  auto row = block_id() * width;
  Var<float> sum = 0.0f;
  for_(thread_id(), width, 32 * 512, [&](Val<Index> j) {
    std::vector<Val<float>> loaded;  // all 32 loads come before the first sum
    for (int k = 0; k < 32; ++k) loaded.push_back(x.load_if(j + 512 * k < width, row + j + 512 * k, 0));
    for (auto value : loaded) sum += value;
  });
  auto total = block_sum(sum);
  if_(thread_id() == 0, [&] { y[block_id()] = total; });
});

std::string compare_row_sums() {
  const std::size_t rows = 64, width = 1 << 18;
  std::string text;
  for (const KernelReport& r : report_launches({"sm_90"}, [&](Device gpu) {
         DeviceBuffer<float> x(rows * width, gpu), y(rows, gpu);
         row_sums.launch({rows}, x, y, width);
         row_sums_by_blocks(64).launch(blocks(rows), x, y, width);
         row_sums_by_blocks(512).launch(blocks(rows), x, y, width);
         row_sums_32_loads.launch(blocks(rows), x, y, width);
       })) {
    const LaunchReport& l = *r.launch;
    char line[200];
    std::snprintf(line, sizeof line, "%-18s %2u registers, %5.0f bytes in flight, %4.0f us, share %2.0f %%, bound by %s\n",
                  r.kernel.c_str(), r.registers, l.bytes_in_flight, 1e6 * l.seconds, 100 * l.share, bound_name(l.bound).data());
    text += line;
  }
  return text;
}

TEST(KernelDocs, RowSumsAgree) {
  tt::for_each_device([](Device) {
    tt::Random random;
    for (const std::size_t width : {1, 700, 20000}) {
      const auto host = random.values<float>(3 * width);
      std::vector<double> expected(3);
      for (std::size_t i = 0; i < host.size(); ++i) expected[i / width] += static_cast<double>(host[i]);
      const DeviceBuffer<float> x(host);
      for (const auto& k : {row_sums_by_blocks(64), row_sums_by_blocks(512), row_sums_32_loads}) {
        tt::Poisoned<float> y(3);
        k.launch(blocks(3), x, y, width);
        y.expect(expected, {.absolute = 1e-3});
      }
    }
    const DeviceBuffer<float> ones(std::vector<float>(4096, 1));
    tt::Poisoned<float> y(1);
    long_rows.launch(blocks(1), ones, y);
    y.expect(std::vector<double>{4096});
  });
}

TEST(KernelDocs, ReportsMatchThePage) {
  std::string text, comparison;
  try {
    text = reports();
    comparison = compare_row_sums();
  } catch (const DeviceError& e) {
    GTEST_SKIP() << "not installed: " << e.what();
  }
  std::printf("%s%s", text.c_str(), comparison.c_str());
  // Compilers of other versions report other figures.
  if (text.find("compiled by NVRTC 13.0") == text.npos || text.find("unknown") != text.npos) return;
  page().expect(text);
  page().expect(comparison);
}

// clang-format on

}  // namespace

int main(int argc, char** argv) {
  setenv("TESSERA_CHECK", "1", 1);  // the page shows findings of the interpreter
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
