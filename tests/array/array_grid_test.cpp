// SPDX-License-Identifier: Apache-2.0
// Elementwise operations and strided copies with outer dimensions that exceed the maximum grid of CUDA or HIP in y and
// z. The fake drivers reject such grids, like real drivers. Each case runs in its own process, because drivers are
// loaded once per process.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tessera/array/array.h"
#include "tessera/testing/testing.h"
#include "tests/support/fake_gpus.h"

namespace tessera {
namespace {

// The number of rows that always fits in y and in z, with 65,535 blocks, regardless of the registers that a kernel
// needs.
constexpr std::int64_t most_y = 65535 * 256, most_z = 65535 * 64;

class LargeGrids : public ::testing::TestWithParam<Device> {
 protected:
  static void run(const std::function<void()>& body) {
    test::in_process(test::four_gpus({{"TESSERA_FAKE_DEVICES", "1"}}), [&] {
      const DeviceScope scope(GetParam());
      body();
    });
  }
  static std::vector<std::uint8_t> bytes(std::int64_t n) {
    std::mt19937_64 random(testing::seed());
    std::vector<std::uint8_t> out(static_cast<std::size_t>(n));
    std::uint64_t drawn = 0;
    for (std::size_t i = 0; i < out.size(); ++i, drawn >>= 8) {
      if (i % 8 == 0) drawn = random();
      out[i] = static_cast<std::uint8_t>(drawn);
    }
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, LargeGrids,
                         ::testing::Values(Device{Backend::cpu, 0}, Device{Backend::cuda, 0}, Device{Backend::rocm, 0}),
                         [](const auto& info) { return std::string(backend_name(info.param.backend)); });

/// Returns the first position at which `got` is wrong, or -1.
std::int64_t wrong_at(const std::vector<std::uint8_t>& got, std::size_t size, const auto& want) {
  if (got.size() != size) return static_cast<std::int64_t>(got.size());
  for (std::size_t i = 0; i < size; ++i)
    if (got[i] != static_cast<std::uint8_t>(want(i))) return static_cast<std::int64_t>(i);
  return -1;
}

TEST_P(LargeGrids, StridedCopiesCanExceedTheGridLimitInZ) {
  run([] {
    // The same expression with little data runs before and after, because its kernel has two forms.
    for (const std::int64_t n : {std::int64_t{3}, most_z, most_z + 1, std::int64_t{1000}}) {
      const auto data = bytes(n * 4);
      const auto got = Array::from(data, Shape{n, 2, 2}).permute({0, 2, 1}).as_contiguous().to_vector<std::uint8_t>();
      const auto from = [](std::size_t i) { return i / 4 * 4 + i % 2 * 2 + i / 2 % 2; };
      EXPECT_EQ(wrong_at(got, data.size(), [&](std::size_t i) { return data[from(i)]; }), -1) << n;
    }
  });
}

TEST_P(LargeGrids, CombinedOuterDimensionsCanExceedTheGridLimitInZ) {
  run([] {
    const std::int64_t n = most_z / 4 + 1;
    const auto data = bytes(n * 16);
    const auto got =
        Array::from(data, Shape{n, 2, 2, 2, 2}).permute({0, 4, 2, 1, 3}).as_contiguous().to_vector<std::uint8_t>();
    const auto from = [](std::size_t i) { return i / 16 * 16 + i / 8 % 2 + i / 4 % 2 * 4 + i / 2 % 2 * 8 + i % 2 * 2; };
    EXPECT_EQ(wrong_at(got, data.size(), [&](std::size_t i) { return data[from(i)]; }), -1);
  });
}

// On GPUs, a thread computes several elements of long rows. The number depends on the dtypes.
TEST_P(LargeGrids, ThreadsComputeSeveralElements) {
  run([] {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, (1 << 20) + 3}, {1025, 1027}})
      for (const DType t : {DType::f32, DType::f16, DType::u8, DType::i64}) {
        SCOPED_TRACE(std::string(dtype_name(t)) + ", " + std::to_string(columns) + " columns");
        const auto n = static_cast<std::size_t>(rows * columns);
        const auto data = bytes(rows * columns);
        const Array x = Array::from(data, Shape{rows, columns}).astype(t), row = x.slice(0, 0, 1).copy();
        const auto got = (x + row).astype(DType::i32).to_vector<std::int32_t>();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const int sum = data[i] + data[i % static_cast<std::size_t>(columns)];
          wrong += got[i] != (t == DType::u8 ? sum % 256 : sum);
        }
        EXPECT_EQ(wrong, 0u);
        Array in_place = x.copy();
        in_place += 1;
        in_place.assign(in_place.slice(1, 0, columns) + in_place);  // the output is also an input
        const auto doubled = in_place.astype(DType::i32).to_vector<std::int32_t>();
        for (std::size_t i = 0; i < n; ++i)
          wrong += doubled[i] != (t == DType::u8 ? 2 * (data[i] + 1) % 256 : 2 * (data[i] + 1));
        EXPECT_EQ(wrong, 0u);
      }
  });
}

TEST_P(LargeGrids, BroadcastsCanExceedTheGridLimitInY) {
  run([] {
    const std::int64_t refused = 65535 * 1024 + 1;  // too many for blocks of any size
    for (const std::int64_t n : {std::int64_t{5}, most_y, most_y + 1, refused}) {
      const auto data = bytes(n * 2);
      const std::vector<std::uint8_t> bias = {3, 250};
      const auto got = (Array::from(data, Shape{n, 2}) + Array::from(bias)).to_vector<std::uint8_t>();
      EXPECT_EQ(wrong_at(got, data.size(), [&](std::size_t i) { return data[i] + bias[i % 2]; }), -1) << n;
    }
  });
}

}  // namespace
}  // namespace tessera
