// SPDX-License-Identifier: Apache-2.0
// Runs all checks of the catalogue on every device. Also tests the errors of the operations, and that the catalogue is
// consistent.
#include "tessera/ops/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tessera/ops/kernels.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"
#include "tessera/testing/testing.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using test::expect_throw;

class Operation : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> operations() {
  std::vector<std::string> names;
  for (const CatalogueCheck& c : check_catalogue())
    if (std::ranges::find(names, c.operation) == names.end()) names.push_back(c.operation);
  return names;
}

// The subgroup width of the interpreter is irrelevant for kernels without subgroup operations, so one width suffices.
std::vector<Device> devices() {
  std::vector<Device> out;
  for (Device d : testing::all_devices())
    if (d.backend != Backend::interp || d.index == 0) out.push_back(d);
  return out;
}

TEST_P(Operation, IsCorrectOnEveryDevice) {
  for (Device device : devices()) {
    const DeviceScope scope(device);
    for (const CatalogueCheck& c : check_catalogue()) {
      if (c.operation != GetParam()) continue;
      SCOPED_TRACE(to_string(device) + " " + c.operation + " " + c.shape +
                   ", TESSERA_TEST_SEED=" + std::to_string(testing::seed()));
      try {
        EXPECT_LE(c.run(device, testing::seed()), 1.0);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operation, ::testing::ValuesIn(operations()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, ' ', '_');
  return name;
});

TEST(Catalogue, NamesAreUnique) {
  std::set<std::string> seen;
  for (const CatalogueCheck& c : check_catalogue())
    EXPECT_TRUE(seen.insert(c.operation + c.shape).second) << c.operation << " " << c.shape;
  for (Device device : devices()) {
    std::set<std::string> kernels;
    for (const CatalogueKernel& k : kernel_catalogue(device)) EXPECT_TRUE(kernels.insert(k.name).second) << k.name;
    EXPECT_GT(kernels.size(), 60u);
  }
}

TEST(Catalogue, EveryKernelCompiles) {
  for (Device device : devices()) {
    if (device.backend == Backend::opencl) continue;  // compile_gate_pocl compiles them
    std::vector<Kernel> kernels;
    for (const CatalogueKernel& k : kernel_catalogue(device)) kernels.emplace_back(k.function);
    EXPECT_NO_THROW(prepare(device, kernels)) << to_string(device);
  }
}

TEST(Products, ReluPropagatesNaN) {
  for (Device device : devices())
    for (const DType t : {DType::f32, DType::f16}) {
      const Array a = Array::from({NAN, -1.f, 2.f}, Shape{3, 1}, device).astype(t), b = Array::ones({1, 2}, t, device);
      const auto got = matmul(a, b, {.activation = Activation::relu}).astype(DType::f32).to_vector<float>();
      EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1])) << to_string(device);
      EXPECT_EQ((std::vector<float>(got.begin() + 2, got.end())), (std::vector<float>{0, 0, 2, 2}))
          << to_string(device);
    }
}

TEST(Errors, NameTheOperationAndBothShapes) {
  const Device cpu{Backend::cpu, 0}, interp{Backend::interp, 0};
  auto zeros = [&](Shape s, DType t = DType::f32) { return Array::zeros(std::move(s), t, cpu); };
  expect_throw<ShapeError>([&] { matmul(zeros({2, 3}), zeros({4, 5})); }, {"matmul", "(2, 3)", "(4, 5)"});
  expect_throw<ShapeError>([&] { matmul(zeros({2, 2, 3}), zeros({3, 3, 5})); }, {"matmul", "(2,", "(3,"});
  expect_throw<ShapeError>(
      [&] {
        matmul(zeros({2, 3}), zeros({3, 5}), {.bias = zeros({4})});
      },
      {"matmul", "(4,)", "5"});
  expect_throw<DtypeError>(
      [&] {
        matmul(zeros({2, 3}, DType::i32), zeros({3, 5}, DType::i32), {.activation = Activation::gelu});
      },
      {"matmul", "gelu", "i32"});
  expect_throw<DeviceError>([&] { matmul(zeros({2, 3}), zeros({3, 5}).to(interp)); }, {"matmul", "cpu:0", "interp:0"});
  expect_throw<ShapeError>([&] { rms_norm(zeros({2, 3}), zeros({4}), 1e-5f); }, {"rms_norm", "(2, 3)", "(4,)"});
  expect_throw<ShapeError>([&] { softmax(zeros({2, 3}), 2); }, {"softmax", "2"});
  expect_throw<DtypeError>([&] { softmax(zeros({2, 3}, DType::i32)); }, {"softmax", "i32"});
  expect_throw<ShapeError>([&] { rotary(zeros({2, 3, 7}), 0, {}); }, {"rotary", "7"});
  expect_throw<ShapeError>([&] { rotary(zeros({2, 3, 8}), 0, {.factors = zeros({3})}); }, {"rotary", "(3,)", "4"});
  expect_throw<ArgumentError>([&] { rotary(zeros({2, 3, 8}), 0, {.base = 0.0f}); }, {"rotary", "base = 0"});
  expect_throw<ArgumentError>([&] { rotary(zeros({2, 3, 8}), 0, {.scale = INFINITY}); }, {"rotary", "scale = inf"});
  expect_throw<ShapeError>(
      [&] {
        attention(zeros({2, 3, 8}), zeros({2, 9, 8}), zeros({2, 9, 8}), 0, 1);
      },
      {"attention", "(2, 3, 8)", "(2, 9, 8)"});
  expect_throw<ShapeError>(
      [&] {
        attention(zeros({2, 4, 8}), zeros({2, 9, 8}), zeros({2, 9, 8}), 8, 1);
      },
      {"attention", "past = 8"});
  Array cache = zeros({2, 9, 8});
  expect_throw<ShapeError>(
      [&] {
        cache_store(cache, zeros({3, 2, 8}), 7);
      },
      {"cache_store", "(2, 9, 8)", "(3, 2, 8)", "7"});
}

// The tiles of a product depend only on properties of the device.
TEST(Tiles, PackedProductsFitTheirBlocksOnEveryCpu) {
  for (const std::uint32_t width : {4u, 8u, 16u, 64u})
    for (const std::uint32_t threads : {1u, 2u, 3u, 16u, 100u})
      for (const std::uint64_t shared : {4u << 10, 32u << 10, 128u << 10, 256u << 10})
        for (const DType t : {DType::f32, DType::f64})
          for (const std::int64_t m : {5, 16, 20, 64, 768, 5000})
            for (const std::int64_t n : {1, 24, 32, 48, 50, 768, 5000})
              for (const std::int64_t k : {1, 30, 256, 300, 784, 5000}) {
                ops::Tiles cpu{.tokens = width >= 16 ? 16u : 4u, .vectors = true};
                cpu.subgroup = width, cpu.compute_units = threads, cpu.shared_bytes = shared;
                ops::ProductSpec s{t, t, t, t};
                s.a_unit_k = s.b_unit_n = true;
                const ops::PackedPlan plan = ops::choose_packed(cpu, s, m, n, k, 1);  // this call must also terminate
                const std::int64_t rows = plan.spec.tm, columns = plan.spec.tn * plan.spec.lanes;
                ASSERT_GE(plan.block_rows, 1) << m << " " << n << " " << k;
                ASSERT_GE(plan.block_columns, 1) << m << " " << n << " " << k;
                ASSERT_GE(plan.depth, 1);
                ASSERT_LE(static_cast<std::uint64_t>(plan.block_rows * plan.block_columns),
                          ops::packed_tiles(plan.spec));
                ASSERT_LE(plan.spec.staged * dtype_size(t), shared);
                ASSERT_LE((plan.block_rows - 1) * rows, m);
                ASSERT_LE((plan.block_columns - 1) * columns, n);
                ASSERT_LE(ops::packed_tiles(plan.spec) * static_cast<std::uint64_t>(rows * columns) * dtype_size(t),
                          std::max<std::uint64_t>(shared, static_cast<std::uint64_t>(rows * columns) * dtype_size(t)));
              }
}

TEST(Tiles, FitTheBlockSizeOfTheDevice) {
  for (const std::uint32_t limit : {1u, 2u, 8u, 16u, 32u, 64u, 128u, 256u, 1024u}) {
    ops::Tiles tiles{.block = std::min(limit, 256u), .block_limit = limit};
    for (const DType t : {DType::f32, DType::f64, DType::i64})
      for (const std::int64_t m : {1, 4, 16, 64, 1000})
        for (const std::int64_t n : {1, 4, 16, 40, 1000})
          for (const bool along_k : {false, true}) {
            ops::ProductSpec s{t, t, t, t};
            s.a_unit_k = true, s.b_unit_n = !along_k, s.b_unit_k = along_k;
            s = ops::choose_product(tiles, s, m, n, 2000, 1);
            EXPECT_LE(std::max(s.tx, 1u) * s.ty, limit) << m << " " << n << " " << along_k;
            EXPECT_EQ(s.bk % std::max(s.tx, 1u), 0u) << "staging copies whole rows of threads";
          }
    for (const std::int64_t tokens : {1, 64})
      EXPECT_LE(ops::choose_attention(tiles, DType::f16, 64, tokens, 4).threads, limit);
    EXPECT_LE(ops::choose_solve(tiles, DType::f32, true).lanes, limit);
    EXPECT_LE(ops::choose_cholesky(tiles, DType::f32).lanes, limit);
  }
  for (const Device device : devices()) {
    const ops::Tiles tiles = ops::tiles_of(device);
    const std::uint32_t limit = device_info(device).can.max_block_threads;
    EXPECT_LE(tiles.rows * tiles.slices, limit) << to_string(device);
    EXPECT_LE(tiles.block, limit) << to_string(device);
    for (const CatalogueKernel& k : kernel_catalogue(device))
      EXPECT_LE(k.function.threads_per_block(), limit) << to_string(device) << " " << k.name;
  }
}

TEST(Tiles, ChoosesTilesForMatrixUnits) {
  using ops::ProductSpec;
  ops::Tiles gpu{.rows = 32, .tokens = 4, .slices = 4, .block = 256};
  gpu.matrix_f16 = true, gpu.subgroup = 32, gpu.compute_units = 100, gpu.shared_bytes = 48 << 10;
  const auto choose = [](const ops::Tiles& tiles, DType t, std::int64_t m, std::int64_t n, std::int64_t batch = 1) {
    ProductSpec s{t, t, DType::f32, t};
    s.a_unit_k = s.b_unit_n = true;
    return ops::choose_product(tiles, s, m, n, 512, batch);
  };
  const auto tile = [&](const ProductSpec& s) {
    return s.by_fragments()
               ? std::to_string(s.block_m()) + "x" + std::to_string(s.block_n()) + " by " + std::to_string(s.tx)
               : std::string("threads");
  };
  EXPECT_EQ(tile(choose(gpu, DType::f16, 4096, 4096)), "128x128 by 256");
  EXPECT_EQ(tile(choose(gpu, DType::f16, 1000, 1000)), "64x64 by 128") << "8 x 8 large tiles leave units idle";
  EXPECT_EQ(tile(choose(gpu, DType::f16, 100, 100)), "32x32 by 128");
  EXPECT_EQ(tile(choose(gpu, DType::f16, 100, 100, 100)), "128x128 by 256") << "there is a block for each unit";
  EXPECT_EQ(tile(choose(gpu, DType::f16, 4, 4096)), "threads") << "each factor is read only once anyway";
  EXPECT_EQ(tile(choose(gpu, DType::bf16, 4096, 4096)), "threads") << "no units for bfloat16";
  EXPECT_EQ(tile(choose(gpu, DType::f32, 4096, 4096)), "threads");
  ops::Tiles rounds = gpu, exact = gpu;
  rounds.matrix_tf32 = exact.matrix_f32 = true;
  EXPECT_EQ(tile(choose(exact, DType::f32, 1000, 1000)), "64x64 by 128");
  EXPECT_EQ(tile(choose(rounds, DType::f32, 4096, 4096)), "threads") << "rounding is not allowed";
  ProductSpec allowed{DType::f32, DType::f32, DType::f32, DType::f32};
  allowed.a_unit_k = allowed.b_unit_n = allowed.tf32 = true;
  EXPECT_EQ(tile(ops::choose_product(rounds, allowed, 4096, 4096, 512)), "128x128 by 256");
  EXPECT_EQ(ops::choose_product(rounds, allowed, 4096, 4096, 512).bk, 16u);
  ops::Tiles wide = gpu;
  wide.subgroup = 64, wide.matrix_bf16 = true;
  EXPECT_EQ(tile(choose(wide, DType::bf16, 4096, 4096)), "128x128 by 256");
  EXPECT_EQ(tile(choose(wide, DType::bf16, 1000, 1000)), "64x64 by 256");
  ops::Tiles small = gpu;
  small.shared_bytes = 24 << 10;
  EXPECT_EQ(tile(choose(small, DType::f16, 4096, 4096)), "64x64 by 128");
  small.block_limit = 64;
  EXPECT_EQ(tile(choose(small, DType::f16, 4096, 4096)), "threads");
  for (const Device device : devices()) {  // tiles_of takes these properties from the capabilities
    const Capabilities& can = device_info(device).can;
    EXPECT_EQ(choose(ops::tiles_of(device), DType::f16, 512, 512).by_fragments(), can.matrix_f16) << to_string(device);
    EXPECT_EQ(choose(ops::tiles_of(device), DType::bf16, 512, 512).by_fragments(), can.matrix_bf16);
    EXPECT_EQ(choose(ops::tiles_of(device), DType::f32, 512, 512).by_fragments(), can.matrix_f32);
  }
  // The number of bytes computed in advance equals the number that the kernel uses.
  wide.matrix_f32 = true;
  for (ops::Tiles* tiles : {&gpu, &wide, &rounds}) tiles->shared_bytes = 200 << 10;
  for (const ops::Tiles& tiles : {gpu, wide, rounds})
    for (const DType t : {DType::f16, DType::f32})
      for (const std::int64_t m : {4096, 1000, 100})
        for (const bool whole : {false, true}) {
          if (t == DType::f32 && !tiles.matrix_f32 && !tiles.matrix_tf32) continue;
          ProductSpec s{t, t, DType::f32, t};
          s.a_unit_k = s.b_unit_n = s.tf32 = true, s.whole_vectors = s.out_vectors = whole;
          s = ops::choose_product(tiles, s, m, m, 512);
          EXPECT_EQ(s.stages != 0, whole);
          EXPECT_LE(ir::shared_bytes(ops::trace_product(s)), ops::fragment_shared_bytes(s));
        }
}

TEST(Errors, WeightErrorsNameTheValues) {
  const Device cpu{Backend::cpu, 0};
  const std::vector<std::byte> bytes(34 * 6);
  const Weight w = Weight::pack(WeightFormat::q8_0, bytes, 3, 64, cpu, "blk.0");
  EXPECT_EQ(w.rows(), 3);
  EXPECT_EQ(w.columns(), 64);
  expect_throw<ShapeError>([&] { Weight::pack(WeightFormat::q8_0, bytes, 3, 63, cpu, "blk.0"); },
                           {"Weight::pack", "blk.0", "63", "block size"});
  expect_throw<ShapeError>([&] { Weight::pack(WeightFormat::q8_0, bytes, 4, 64, cpu, "blk.0"); },
                           {"Weight::pack", "204"});
  expect_throw<ShapeError>([&] { Weight::pack(WeightFormat::q8_0, bytes, 0, 64, cpu); }, {"Weight::pack"});
  // Sizes are rejected if their product overflows.
  expect_throw<ShapeError>(
      [&] { Weight::pack(WeightFormat::f32, bytes, std::int64_t{1} << 62, std::int64_t{1} << 62, cpu); },
      {"Weight::pack"});
  expect_throw<ShapeError>(
      [&] {
        linear(Array::zeros({2, 32}, DType::f32, cpu), w);
      },
      {"linear", "(2, 32)", "(3, 64)"});
  expect_throw<DtypeError>([&] { linear(Array::zeros({2, 64}, DType::i32, cpu), w); }, {"linear", "i32"});
  expect_throw<DtypeError>([&] { embedding_rows(w, Array::zeros({2}, DType::f32, cpu)); }, {"embedding_rows", "f32"});
  expect_throw<ArgumentError>([&] { linear(Array::zeros({2, 64}, DType::f32, cpu), Weight()); }, {"linear", "empty"});
}

// When activations are quantised to 8 bits, NaN remains NaN and infinities remain non-finite, so that earlier errors
// are visible after a product.
TEST(Linear, QuantisationPropagatesNaN) {
  const std::vector<std::byte> bytes(34 * 2, std::byte{7});
  for (Device device : devices()) {
    const Weight w = Weight::pack(WeightFormat::q8_0, bytes, 1, 64, device);
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(64, 1.0f);
      x[40] = bad;
      EXPECT_FALSE(std::isfinite(linear(Array::from(x, Shape{1, 64}, device), w).item<float>())) << to_string(device);
    }
  }
}

}  // namespace
}  // namespace tessera
