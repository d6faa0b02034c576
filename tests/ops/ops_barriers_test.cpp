// SPDX-License-Identifier: Apache-2.0
// Kernels of ops/ that share memory within a block. The interpreter reports no findings for them, and reports a finding
// for each barrier and each wait for copies that is removed.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "tessera/ir/interpreter.h"
#include "tessera/ir/semantics.h"
#include "tessera/ops/catalogue.h"
#include "tessera/ops/correlation.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/sparse_row_kernel.h"
#include "tessera/testing/testing.h"

namespace tessera {
namespace {

using namespace ops;

// A launch with its own memory: buffers in the order of the parameters, followed by scalars.
struct Launch {
  ir::Function function;
  std::uint64_t blocks = 1;
  std::vector<std::vector<float>> buffers;  // of f32, or of words of the same size
  std::vector<std::int64_t> numbers;
  std::vector<float> reals = {};
  std::uint32_t subgroup = ir::InterpreterOptions{}.subgroup_width;

  // Returns the interpreter's findings for a function with the same arguments.
  std::vector<ir::Finding> findings(const ir::Function& fn) const {
    auto memory = buffers;
    return run(fn, memory);
  }
  std::vector<ir::Finding> run(const ir::Function& fn, std::vector<std::vector<float>>& memory) const {
    std::vector<ir::InterpreterArgument> args;
    std::size_t buffer = 0, number = 0, real = 0;
    for (const ir::Param& p : fn.params) {
      if (p.is_buffer) {
        auto& m = memory[buffer++];
        args.push_back({reinterpret_cast<std::byte*>(m.data()), m.size() * 4 / dtype_size(p.dtype), 0});
      } else if (p.dtype == DType::index) {
        args.push_back({nullptr, 0, static_cast<std::uint64_t>(numbers[number++])});
      } else {
        args.push_back({nullptr, 0, ir::to_bits(p.dtype, reals[real++])});
      }
    }
    std::vector<ir::Finding> found;
    ir::interpret(
        fn, {blocks, 1, 1}, args,
        {.subgroup_width = subgroup, .checks = true, .report = [&](const ir::Finding& f) { found.push_back(f); }});
    return found;
  }
};

std::vector<float> numbers(std::size_t n) { return testing::Random().values<float>(n, -1, 1); }

// Integers as a buffer of 4-byte words.
std::vector<float> words(std::initializer_list<std::int32_t> values) {
  std::vector<float> out;
  for (const std::int32_t v : values) out.push_back(std::bit_cast<float>(v));
  return out;
}

std::vector<Launch> launches() {
  std::vector<Launch> out;
  // Sums over slices of the columns of a weight: 3 rows of 70 columns, 2 tokens.
  out.push_back({trace_linear({{WeightFormat::f32, 4, DType::f32}, 2, 3}),
                 1,
                 {numbers(4 * 70), numbers(2 * 70), numbers(2 * 3)},
                 {3, 70, 2, 1}});
  // Products of (10, 40) and (40, 9) in several steps along k. One or both operands are staged, and each is contiguous
  // along k or across k.
  for (bool a_along : {false, true})
    for (bool b_along : {false, true})
      for (bool both : {false, true}) {
        ProductSpec s;
        s.tx = 4, s.ty = 2, s.tm = 2, s.tn = 2, s.bk = 16, s.stage_a = both, s.stage_b = true;
        s.a_unit_k = a_along, s.a_unit_m = !a_along, s.b_unit_k = b_along, s.b_unit_n = !b_along;
        out.push_back(
            {trace_product(s),
             6,
             {numbers(400), numbers(360), numbers(90)},
             {10, 9, 40, 3, 2, a_along ? 40 : 1, a_along ? 1 : 10, b_along ? 40 : 1, b_along ? 1 : 9, 1, 0, 0, 0, 0}});
      }
  // A 3 x 3 convolution of 2 images 2 x 5 x 4 to 3 channels, which processes one channel and 3 rows at a time, and the
  // gradient of its weight, computed by one block. Both use vectors of windows and vectors of channels.
  const auto convolution = [](CorrelationSpec s, std::initializer_list<std::int64_t> more) {
    s.lanes = 4, s.tm = s.by_channels && s.kind == CorrelationSpec::weights ? 3 : 2, s.tn = 1, s.sizes = {3, 3, 1, 1};
    s.staged = 400, s.sums = 400;
    std::vector<std::int64_t> all = {2,  2,  3, 5, 4,  5,  4, 3, 3, 1, 1, 1, 1, 1, 1,
                                     40, 20, 4, 1, 60, 20, 4, 1, 1, 3, 2, 5, 0, 0};
    all.insert(all.end(), more);
    return std::pair(trace_correlation(s), all);
  };
  for (const bool by_channels : {false, true}) {
    CorrelationSpec s{CorrelationSpec::images};
    s.by_channels = by_channels;
    const std::size_t packed = (by_channels ? 4 : 2 * 2) * 2 * 9;
    const auto [images, of_images] = convolution(s, {1, by_channels ? 1 : 2, 1, 1, 2});
    out.push_back({images, 4, {numbers(80), numbers(packed), numbers(120)}, of_images});
    s.kind = CorrelationSpec::weights;
    const auto [weights, of_weights] = convolution(s, {2, 3, 1, 1, 1, 2, 4});
    out.push_back({weights, 1, {numbers(80), numbers(120), numbers(54)}, of_weights});
  }
  // A factorisation of 7 rows by 4 threads, 2 rows at a time.
  std::vector<float> definite = numbers(49);
  for (std::size_t i = 0; i < 7; ++i) definite[i * 8] = 9;
  out.push_back({trace_cholesky({DType::f32, 4, 2, 2, 16}), 1, {definite, {0}}, {7, 0, 7, 1}, {0}});
  // 13 outputs of 70 inputs, with 8 outputs per block: 4 sums of 18 inputs each.
  out.push_back(
      {trace_sparse_row({.lanes = 4, .vectors = 2}), 2, {numbers(70), numbers(2 * 4 * 18 * 8), numbers(13)}, {70, 13}});
  // One query: 2 heads of size 6 share one key head, with 11 positions in tiles of 8 or 4.
  for (auto form : {AttentionSpec::vectors, AttentionSpec::positions}) {
    const std::uint32_t threads = form == AttentionSpec::vectors ? 2 : 4;
    out.push_back({trace_attention({form, DType::f32, 6, threads}),
                   2,
                   {numbers(12), numbers(66), numbers(66), numbers(12)},
                   {2, 2, 1, 10, 66, 6, 66, 6},
                   {0.4f}});
    // Attends only to the last 9 positions.
    AttentionSpec last{form, DType::f32, 6, threads};
    last.window = true;
    out.push_back({trace_attention(last),
                   2,
                   {numbers(12), numbers(66), numbers(66), numbers(12)},
                   {2, 2, 1, 10, 66, 6, 66, 6, 9},
                   {0.4f}});
  }
  // The same as one part, with two rows of keys at a time.
  AttentionSpec part{AttentionSpec::parts, DType::f32, 6, 32};
  part.queries = 2, part.whole = true;
  out.push_back({trace_attention(part),
                 1,
                 {numbers(12), numbers(66), numbers(66), numbers(12)},
                 {2, 2, 1, 10, 66, 6, 66, 6},
                 {0.4f}});
  // A gated product of 2 tokens with 64 rows of 70 columns, in 8 slices.
  LinearSpec gated{{WeightFormat::f32, 32, DType::f32}, 2, 8};
  gated.gated = true, gated.out = {false, 2};
  out.push_back({trace_linear(gated), 1, {numbers(64 * 70), numbers(2 * 70), numbers(2 * 32)}, {64, 70, 2, 1}});
  // Rows of 6 elements from 5 parts, of which 2 groups of threads combine one after the other.
  out.push_back({trace_attention_combine({6, 2}), 2, {numbers(2 * 5 * 8), numbers(12)}, {5, 2, 1}});
  // 3 rows of 40 columns, in steps of 64 columns.
  out.push_back({trace_dequantise({{WeightFormat::f32, 4, DType::f32}, DType::f32, 2}),
                 1,
                 {numbers(4 * 40), numbers(3 * 40)},
                 {3, 40}});
  // With matrix fragments, in subgroups of 4: a product in 9 steps of 6 stages, and attention to 3 tiles of keys.
  const Tiles units{.matrix_f16 = true, .matrix_tf32 = true, .subgroup = 4, .compute_units = 1000};
  ProductSpec pipelined{DType::f16, DType::f16, DType::f32, DType::f32};
  pipelined.a_unit_k = pipelined.b_unit_n = pipelined.whole_vectors = pipelined.out_vectors = true;
  out.push_back({trace_product(choose_product(units, pipelined, 40, 24, 520)),
                 2,
                 {numbers(40 * 260), numbers(24 * 260), numbers(40 * 24)},
                 {40, 24, 520, 2, 1, 520, 1, 1, 24, 1, 0, 0, 0, 0},
                 {},
                 4});
  pipelined.a = pipelined.b = DType::f32, pipelined.tf32 = true;  // in 9 steps
  out.push_back({trace_product(choose_product(units, pipelined, 40, 24, 260)),
                 2,
                 {numbers(40 * 260), numbers(24 * 260), numbers(40 * 24)},
                 {40, 24, 260, 2, 1, 260, 1, 1, 24, 1, 0, 0, 0, 0},
                 {},
                 4});
  out.push_back({trace_attention_tile(*choose_attention_tile(units, DType::f32, DType::f16, 16, 70)),
                 4,
                 {numbers(70 * 32), numbers(200 * 8), numbers(200 * 8), numbers(70 * 32)},
                 {2, 2, 70, 200, 120, 0, 16, 32, 0, 3200, 16, 0, 3200, 16, 0, 16, 32},
                 {0.25f},
                 4});
  // The same with the logarithms of the sums.
  AttentionTileSpec logs = *choose_attention_tile(units, DType::f16, DType::f16, 16, 70);
  logs.logs = true;
  out.push_back({trace_attention_tile(logs),
                 4,
                 {numbers(70 * 16), numbers(200 * 8), numbers(200 * 8), numbers(70 * 32), numbers(140)},
                 {2, 2, 70, 200, 120, 0, 16, 32, 0, 3200, 16, 0, 3200, 16, 0, 16, 32},
                 {0.25f},
                 4});
  // The gradients of 70 queries and 70 keys, in tiles of 16. Two heads share the key head.
  for (const bool of_keys : {false, true})
    for (const bool causal : {false, true}) {
      AttentionGradientSpec s = *choose_attention_gradient(units, DType::f16, 16, 70, of_keys);
      s.tile = 16, s.causal = causal;
      std::vector<std::vector<float>> memory = {
          numbers(140 * 8), numbers(70 * 8), numbers(70 * 8), numbers(140 * 8),
          numbers(140),     numbers(140),    numbers(140),    numbers((of_keys ? 70 : 140) * 8)};
      if (of_keys) memory.push_back(numbers(70 * 8));
      out.push_back({trace_attention_gradient(s),
                     of_keys ? 2u : 4u,
                     memory,
                     {2, 2, 70, 70, 0, 1120, 16, 0, 1120, 16, 0, 1120, 16, 0, 1120, 16},
                     {0.25f},
                     4});
    }
  // 20 tokens times weights of 40 rows and 7 parts of 32 columns, or 104 columns, in two slices.
  LinearTileSpec tile{{WeightFormat::q8_0, 32, DType::f16}};
  tile.slices = 2;
  out.push_back({trace_linear_tile(tile),
                 4,
                 {numbers(2 * 7 * 256), numbers(2 * 7 * 16), numbers(2 * 7 * 16 * 12), numbers(20 * 40)},
                 {40, 7, 20, 2},
                 {},
                 32});
  tile.weight.format = WeightFormat::q6_K;  // 8 parts
  out.push_back(
      {trace_linear_tile(tile),
       4,
       {numbers(2 * 8 * 192), numbers(2 * 16), numbers(2 * 8 * 16), numbers(2 * 8 * 16 * 12), numbers(20 * 40)},
       {40, 8, 20, 2},
       {},
       32});
  tile.weight.format = WeightFormat::f16, tile.terms = 2;
  out.push_back({trace_linear_tile(tile),
                 4,
                 {numbers(2 * 104 * 16), numbers(2 * 20 * 52), numbers(20), numbers(20 * 40)},
                 {40, 104, 20, 2},
                 {},
                 32});
  // A gated product of 20 tokens with 128 rows of 64 columns, by two workers.
  LinearTileSpec gated_tile{{WeightFormat::q8_0, 32, DType::f16}};
  gated_tile.groups = gated_tile.workers_m = 2, gated_tile.gated = true, gated_tile.out = {true, 16};
  out.push_back({trace_linear_tile(gated_tile),
                 4,
                 {numbers(4 * 2 * 256), numbers(4 * 2 * 16), numbers(2 * 2 * 16 * 12), numbers(32 * 2 * 12)},
                 {128, 2, 20, 2},
                 {},
                 32});
  // Tokens of one sequence with 70 positions, in pages 2 and 1: two alone, or three as a group.
  out.push_back({trace_paged_attention({.head_size = 6, .threads = 16, .queries = 2}),
                 2,
                 {numbers(24), numbers(3 * 6 * 64), numbers(3 * 6 * 64), numbers(24), words({2, 1}), words({0, 0}),
                  words({40, 69})},
                 {2, 2, 2},
                 {0.4f}});
  out.push_back({trace_paged_attention({.groups = true, .head_size = 6, .threads = 4}),
                 2,
                 {numbers(36), numbers(3 * 6 * 64), numbers(3 * 6 * 64), numbers(36), words({2, 1}), words({0, 0, 0}),
                  words({67, 68, 69}), words({0, 3})},
                 {2, 2, 2},
                 {0.4f}});
  return out;
}

TEST(Barriers, KernelsHaveNoFindings) {
  for (const Launch& l : launches()) {
    const auto found = l.findings(l.function);
    EXPECT_TRUE(found.empty()) << l.function.name << ": " << found[0].text;
  }
}

TEST(Barriers, RemovingABarrierOrWaitIsDetected) {
  std::size_t barriers = 0;
  for (const Launch& l : launches()) {
    const auto without = ir::without_each_barrier(l.function);
    EXPECT_FALSE(without.empty()) << l.function.name;
    for (std::size_t i = 0; i < without.size(); ++i, ++barriers) {
      const auto found = l.findings(without[i]);
      EXPECT_FALSE(found.empty()) << l.function.name << " without barrier " << i;
      for (const ir::Finding& f : found)
        EXPECT_TRUE(f.kind == ir::Finding::Kind::race || f.kind == ir::Finding::Kind::uninitialised) << f.text;
    }
  }
  EXPECT_EQ(barriers,
            1u + 8 * 2 + 2 * (3 + 4) + 2 + 1 + 2 * (3 + 2) + 1 + 3 + 1 + 1 + 3 + 3 + 4 + 4 + 4 * 6 + 6 + 6 + 5 + 7 + 2 + 4);
}

// No built-in device uses this form of the kernel, so its results are checked here.
TEST(Barriers, SplitKProductsAddUpToTheFullProduct) {
  const Launch l = launches()[0];
  auto memory = l.buffers;
  ASSERT_TRUE(l.run(l.function, memory).empty());
  for (std::size_t t = 0; t < 2; ++t)
    for (std::size_t r = 0; r < 3; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < 70; ++c)
        sum += static_cast<double>(l.buffers[0][c * 4 + r]) * l.buffers[1][c * 2 + t];
      EXPECT_NEAR(memory[2][t * 3 + r], sum, 70 * 0x1p-23);
    }
}

// Every kernel of the catalogue that has barriers is of a kind that this test covers.
TEST(Barriers, CoversAllKernelsWithBarriers) {
  std::set<std::string> kinds;
  auto kind = [](const std::string& name) { return name.substr(0, name.find('_')); };
  for (const Launch& l : launches()) kinds.insert(kind(l.function.name));
  for (Device device : testing::all_devices())
    for (const CatalogueKernel& k : kernel_catalogue(device)) {
      EXPECT_TRUE(ir::without_each_barrier(k.function).empty() || kinds.contains(kind(k.name))) << k.name;
    }
}

}  // namespace
}  // namespace tessera
