// SPDX-License-Identifier: Apache-2.0
// Matrix products in the kernel language on every device, computed with fragments.
#include <array>
#include <concepts>
#include <cstring>
#include <random>

#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tests/matrix/matrix_kernels.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

template <class T>
std::vector<T> rounded(const std::vector<float>& from) {
  std::vector<T> out;
  for (float f : from) out.push_back(T(f));
  return out;
}
void expect_near(const std::vector<float>& got, const ir::ExactProduct& exact) {
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], exact.value[i], exact.bound[i]) << i;
}

/// The relative error of products of factors that the device rounds. tf32 has 10 bits of mantissa.
template <class T>
double rounding(Device device) {
  const Capabilities& can = device_info(device).can;
  return std::same_as<T, float> && can.matrix_tf32 && !can.matrix_f32 ? 0x1p-10 : 0;
}

/// Multiplies whole tiles directly from buffers. The subgroups process the tiles alternately.
template <class T>
auto tiles_kernel(bool transposed) {
  return kernel("tiles", block(96),
                [=](Buffer<const T> a, Buffer<const T> b, Buffer<float> c, Val<Index> m, Val<Index> n, Val<Index> k) {
                  const auto columns = n / 16;
                  for_(block_id() * subgroup_count() + subgroup_id(), m / 16 * columns,
                       block_count() * subgroup_count(), [&](Val<Index> tile) {
                         const auto row = tile / columns * 16, column = tile % columns * 16;
                         MatrixAccumulator sum;
                         MatrixLeft<T> left;
                         MatrixRight<T> right;
                         sum.load(c, row * n + column, n);
                         for_(0, k, matrix_side, [&](Val<Index> at) {
                           left.load(a, row * k + at, k);
                           if (transposed)
                             right.load_transposed(b, column * k + at, k);
                           else
                             right.load(b, at * n + column, n);
                           sum.multiply_add(left, right);
                         });
                         sum.store(c, row * n + column, n);
                       });
                });
}

template <class T, class F>
void test_tiles(Device device, F&& numbers) {
  for (const bool transposed : {false, true}) {
    const auto product = tiles_kernel<T>(transposed);
    for (const auto [m, n, k] : {std::array{16, 16, 16}, {48, 32, 80}, {80, 112, 32}}) {
      const auto a = rounded<T>(numbers(m * k)), b = rounded<T>(numbers(k * n));
      const std::vector<float> start = numbers(m * n);
      DeviceBuffer<T> on_a(a), on_b(b);
      DeviceBuffer<float> on_c(start);
      product.launch(blocks(2), on_a, on_b, on_c, m, n, k);
      const auto size = [](int v) { return static_cast<std::size_t>(v); };
      expect_near(on_c.to_vector(),
                  ir::ExactProduct(a, b, start, size(m), size(n), size(k), transposed, rounding<T>(device)));
    }
  }
}
TEST_P(OnEveryDevice, MultipliesTilesOfHalf) {
  test_tiles<half>(GetParam(), [&](int n) { return numbers(n); });
}
// Numbers of 8 bits, four in each word. The product replaces what the sums were.
TEST_P(OnEveryDevice, MultipliesTilesOfBytes) {
  const auto product = kernel(
      "bytes", block(64),
      [](Buffer<const std::uint32_t> a, Buffer<const std::uint32_t> b, Buffer<float> c, Val<Index> k) {
        constexpr int row = matrix_depth<std::int8_t> / 4;
        Shared<std::uint32_t> words(matrix_side * row);
        MatrixAccumulator sum;
        MatrixLeft<std::int8_t> left;
        MatrixRight<std::int8_t> right;
        for_(0, k / 4, row, [&](Val<Index> at) {
          for_(thread_id(), matrix_side * row, 64,
               [&](Val<Index> e) { words[e] = a[e / row * (k / 4) + at + e % row]; });
          barrier();
          left.load(words, 0, row);
          right.load_transposed(b, at, k / 4);
          if_(
              at == 0, [&] { sum.fill(12.0f), sum.multiply(left, right); }, [&] { sum.multiply_add(left, right); });
          barrier();
        });
        if_(subgroup_id() == 0, [&] { sum.store(c, 0, matrix_side); });
      });
  constexpr int k = 96;
  const auto factor = [&] {
    std::vector<std::int8_t> out;
    for (const float x : numbers(16 * k)) out.push_back(static_cast<std::int8_t>(x * 60));
    out[0] = -128;
    return out;
  };
  const std::vector<std::int8_t> a = factor(), b = factor();
  const auto words = [](const std::vector<std::int8_t>& bytes) {
    std::vector<std::uint32_t> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  };
  DeviceBuffer<std::uint32_t> on_a(words(a)), on_b(words(b));
  DeviceBuffer<float> on_c(std::vector<float>(256, 99.0f));
  product.launch(blocks(1), on_a, on_b, on_c, k);
  const std::vector<float> c = on_c.to_vector();
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 16; ++j) {
      int sum = 0;
      for (std::size_t p = 0; p < k; ++p) sum += a[i * k + p] * b[j * k + p];
      ASSERT_EQ(c[i * 16 + j], static_cast<float>(sum)) << i << ", " << j;
    }
}
TEST_P(OnEveryDevice, MultipliesTilesOfBfloat16) {
  test_tiles<bfloat16>(GetParam(), [&](int n) { return numbers(n); });
}

TEST_P(OnEveryDevice, MultipliesTilesOfFloat) {
  test_tiles<float>(GetParam(), [&](int n) { return numbers(n); });
}

/// Multiplies matrices of any size, staged in shared memory. The last subgroup of a block may be incomplete.
template <class T, class F>
void test_staged(Device device, std::uint32_t threads, F&& numbers) {
  for (const bool transposed : {false, true}) {
    ir::Builder builder("staged", ir::KernelKind::block, {threads, 1, 1});
    ir::Function fn;
    {
      ir::Builder::Scope scope(builder);
      ir::matrix_product(dtype_v<T>, threads, transposed);
      fn = builder.finish();
    }
    const Kernel product(fn);
    for (const auto [m, n, k] : {std::array{16, 16, 16}, {17, 70, 33}, {33, 130, 100}}) {
      const auto a = rounded<T>(numbers(m * k)), b = rounded<T>(numbers(k * n));
      const std::vector<float> start = numbers(m * n);
      DeviceBuffer<T> on_a(a), on_b(b);
      DeviceBuffer<float> on_c(start);
      const auto index = [](int v) { return LaunchArgument::scalar(DType::index, static_cast<std::uint64_t>(v)); };
      const auto size = [](int v) { return static_cast<std::size_t>(v); };
      product.launch({(size(n) + 63) / 64, (size(m) + 15) / 16, 1},
                     {on_a.view(), on_b.view(), on_c.view(), index(m), index(n), index(k)});
      expect_near(on_c.to_vector(),
                  ir::ExactProduct(a, b, start, size(m), size(n), size(k), transposed, rounding<T>(device)));
    }
  }
}
TEST_P(OnEveryDevice, MultipliesStagedTilesOfHalf) {
  test_staged<half>(GetParam(), 128, [&](int n) { return numbers(n); });
}
TEST_P(OnEveryDevice, MultipliesStagedTilesOfHalfInTheLargestBlocks) {
  test_staged<half>(GetParam(), 1024, [&](int n) { return numbers(n); });
}
TEST_P(OnEveryDevice, MultipliesStagedTilesOfBfloat16InPartialSubgroups) {
  test_staged<bfloat16>(GetParam(), 50, [&](int n) { return numbers(n); });
}

TEST_P(OnEveryDevice, MultipliesStagedTilesOfFloat) {
  test_staged<float>(GetParam(), 128, [&](int n) { return numbers(n); });
}

TEST_P(OnEveryDevice, AccumulatorsStartAtZeroAndCanBeFilled) {
  const auto fills = kernel("fills", block(64), [](Buffer<float> y, Val<float> value) {
    for_(subgroup_id(), 6, subgroup_count(), [&](Val<Index> i) {
      MatrixAccumulator fresh;
      if_(i % 2 == 1, [&] { fresh.fill(value * cast<float>(i)); });
      fresh.store(y, i * 300 + 7, 18);
      fresh.fill(5);
    });
  });
  DeviceBuffer<float> out(std::vector<float>(1800, -1));
  fills.launch(blocks(1), out, 1.5f);
  const auto got = out.to_vector();
  for (std::size_t i = 0; i < 1800; ++i) {
    const std::size_t tile = i / 300, in = i % 300;
    const bool inside = in >= 7 && (in - 7) / 18 < 16 && (in - 7) % 18 < 16;
    const float filled = tile % 2 == 1 ? 1.5f * static_cast<float>(tile) : 0.0f;
    ASSERT_EQ(got[i], inside ? filled : -1.0f) << i;
  }
}

/// Computes softmax(a b) c of 16 x 16 matrices without memory for the first product. `a` has 16 rows for each block.
template <class T, class F>
void test_chain(double tolerance, F&& numbers) {
  const auto chain =
      kernel("chain", block(64), [](Buffer<const T> a, Buffer<const T> b, Buffer<const T> c, Buffer<float> y) {
        if_(subgroup_id() == 0, [&] {
          MatrixLeft<T> left;
          MatrixRight<T> right;
          MatrixAccumulator scores, out;
          left.load(a, block_id() * 256, 16);
          right.load_transposed(b, 0, 16);
          scores.multiply_add(left, right);
          MatrixRows largest, total;
          largest.set_maxima(scores);
          for_each_element([&](const MatrixElement& e) { scores.set(e, exp(scores[e] - largest[e])); });
          total.set_sums(scores);
          for_each_row([&](const MatrixRow& r) { total.set(r, 1.0f / total[r]); });
          left.convert(scores);
          right.load(c, 0, 16);
          out.multiply_add(left, right);
          for_each_element(
              [&](const MatrixElement& e) { y[block_id() * 256 + e.row * 16 + e.column] = out[e] * total[e]; });
        });
      });
  constexpr std::size_t rows = 48;
  const auto a = rounded<T>(numbers(16 * rows)), b = rounded<T>(numbers(256)), c = rounded<T>(numbers(256));
  DeviceBuffer<T> on_a(a), on_b(b), on_c(c);
  DeviceBuffer<float> on_y(std::vector<float>(16 * rows, -77));
  chain.launch(blocks(rows / 16), on_a, on_b, on_c, on_y);
  const auto got = on_y.to_vector();
  const auto value = [](T v) { return static_cast<double>(static_cast<float>(v)); };
  for (std::size_t i = 0; i < rows; ++i) {
    std::array<double, 16> p{};
    double total = 0;
    for (std::size_t j = 0; j < 16; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 16; ++k) sum += value(a[i * 16 + k]) * value(b[j * 16 + k]);
      total += p[j] = std::exp(sum);
    }
    for (std::size_t j = 0; j < 16; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 16; ++k) sum += p[k] / total * value(c[k * 16 + j]);
      ASSERT_NEAR(got[i * 16 + j], sum, tolerance) << i << ", " << j;
    }
  }
}
TEST_P(OnEveryDevice, ProductsOfAnAccumulatorNeedNoMemory) {
  test_chain<half>(2e-3, [&](std::size_t n) { return numbers(static_cast<int>(n)); });
  test_chain<bfloat16>(2e-2, [&](std::size_t n) { return numbers(static_cast<int>(n)); });
}

TEST_P(OnEveryDevice, ArraysOfFragmentsAreStoredCorrectly) {
  const auto rows = kernel("rows", block(32), [](Buffer<float> y) {
    std::array<MatrixAccumulator, 3> sums{};
    MatrixAccumulator more[2] = {};
    sums[1].fill(1), more[1].fill(2);
    if_(subgroup_id() == 0, [&] {
      for (int i = 0; i < 3; ++i) sums[static_cast<std::size_t>(i)].store(y, i * 256, 16);
      for (int i = 0; i < 2; ++i) more[i].store(y, (i + 3) * 256, 16);
    });
  });
  DeviceBuffer<float> out(std::vector<float>(5 * 256, -1));
  rows.launch(blocks(1), out);
  const auto got = out.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i / 256 == 1 ? 1 : i / 256 == 4 ? 2 : 0) << i;
}

TEST(Matrices, StoreIsCheckedForOverlappingBuffers) {
  const DeviceScope scope({Backend::interp, 0});
  const auto copy = kernel("copy_matrix", block(32), [](Buffer<const float> x, Buffer<float> y) {
    MatrixAccumulator m;
    m.load(x, 0, 16);
    m.store(y, 0, 16);
  });
  DeviceBuffer<float> x(std::vector<float>(400, 1));
  BufferView front = kernel_argument(x, ir::Access::read_write), back = front;
  front.elements = 300;
  back.byte_offset += 400, back.elements = 300;
  EXPECT_THROW(copy.launch(blocks(1), front, back), KernelError);
}

}  // namespace
}  // namespace tessera
