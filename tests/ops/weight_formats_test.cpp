// SPDX-License-Identifier: Apache-2.0
// The values of blocks in every weight format, bit for bit: on the host, and packed on every device. The references are
// from the PyPI package gguf, created by tools/make_weight_cases.py. Also tests small models with the mixes of formats
// that llama-quantize writes: their logits are compared with llama.cpp's, which tools/make_quantised_models.py created.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/sha256.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/llama.h"
#include "tessera/ops/linear_input.h"
#include "tests/llm/reference_llama.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

struct Case {
  GgmlType type;
  const char* digest;                  // SHA-256 of all 65536 numbers
  std::array<std::uint32_t, 4> first;  // the bits of the first four numbers
};
// The references are from gguf 0.19.0.
constexpr Case cases[] = {
    {GgmlType::q8_0,
     "1b0c98465abb2d3bb541f14ab244c476c3f37648a3ae38913c476eda19317aa9",
     {0xbc7da400, 0xbc84dc00, 0xbb291800, 0xbc414000}},
    {GgmlType::q4_0,
     "5194eaa6ac2aea2f1884768eb441ad4bb0fb71cee6a9ed43a23d3adcb0ce70e5",
     {0xba414000, 0xbac14000, 0x39c14000, 0xbb414000}},
    {GgmlType::q4_1,
     "f705f79ec651673a819f142457af0d94bc3c9776c583aadc04ed7a6010d813b6",
     {0x3b0c0800, 0xba9ac000, 0x3b6ca800, 0x3ae7c000}},
    {GgmlType::q5_0,
     "a49c73351787f52deaa1b34086ea4a77f604fd101e44b7f9e303840ce55f75a6",
     {0xba90f000, 0x3b414000, 0x3ba91800, 0xbb719000}},
    {GgmlType::q5_1,
     "709b5992e0e27b7afd4c994e637df1e033b083383150aced1eac42b1ff571dcf",
     {0x3c21d400, 0x3a872000, 0x3b6ca800, 0x3be30800}},
    {GgmlType::iq4_nl,
     "0f85a1d30711d688b51e12b5340935e0d6fa0ff42deccaa414c8b0f4b75b2841",
     {0xbc04dc00, 0xbc93f500, 0x3b9d0400, 0xbd3fbd80}},
    {GgmlType::q4_K,
     "31327bfd21381152bd3eefce6a8b342291a43d19b032d15ff6f0ba717bb50475",
     {0x3da2efc0, 0x3e3d0a00, 0x3e681140, 0x3e944e10}},
    {GgmlType::q5_K,
     "c9ace1076c495cccd249d3c21948d7a35796e18ea48ee888836ffb15ae29b553",
     {0x3f1ad4a0, 0x3dcdf700, 0x3e528da0, 0x3f259670}},
    {GgmlType::q6_K,
     "04fa9298f7cd15e0d9ed30a4e862b75ab1f72b149566d1be202cdc6c58dc1e3f",
     {0x440a2820, 0xc478aea0, 0xc40a2820, 0x448a2820}},
    {GgmlType::q2_K,
     "e4e08924136d7453bf1f29c1892016e3a90ebc045dc2a47cb0be586aa56f53a8",
     {0x3d659200, 0x00000000, 0x3d190c00, 0x3c990c00}},
    {GgmlType::q3_K,
     "d72efc0d36eca10270d7cee021f4a720365e753436d752aba46f74ecd555a9aa",
     {0x3a6fc000, 0x3ab3d000, 0x3a6fc000, 0x3a6fc000}},
    {GgmlType::iq4_xs,
     "2acfefe8f88427147232363e1a96f7e9170f4606a11d3bb09a928ab95990b2aa",
     {0x3e972a50, 0xbd957780, 0x3e6a6420, 0xbd957780}},
    {GgmlType::mxfp4,
     "422d983ddf985de9ab3566b06de6ab4b151e4ec7867e983e9dfe9219f1e46f80",
     {0x86000000, 0x06000000, 0x05800000, 0x84800000}},
    {GgmlType::iq3_xxs,
     "6ab4ba3b108e8f0d1714d5f52140543916bb867cfad990506aff2664bafe3acd",
     {0x3ca61300, 0xbb84dc00, 0xbd36ae80, 0xbd36ae80}},
    {GgmlType::iq3_s,
     "b3107079c59ec9c0ee1f49c33ca97630296e3bac8eb1d01d397b6ab022d38af2",
     {0x3ca61300, 0x3d36ae80, 0x3b84dc00, 0x3ca61300}},
    {GgmlType::iq2_xxs,
     "4c65142cbafd6d4ed5cbd0ffa76e1e36bc18e9551aab345cf4fcaf970724dee7",
     {0xbc9211e0, 0x3b596800, 0xbb596800, 0xbc9211e0}},
    {GgmlType::iq2_xs,
     "85ec20aa6f90a28b92fed6ecfa57a70185f1d71c360351265938d80f530fe51b",
     {0x3c2f2200, 0xbd08d290, 0x3c2f2200, 0xbd08d290}},
    {GgmlType::iq2_s,
     "0fabb7c5110d7ee7c9cc39cfa73d276ff75db6087d023ad2035b8ccc44a89452",
     {0x39c14000, 0xba96fa00, 0xba96fa00, 0xb9c14000}},
    {GgmlType::iq1_s,
     "5e1e6e86b618a5844726fa63fc656e5579eade57a7f1eb53604267a07fdc0a24",
     {0xb9a91800, 0xbb3e3b00, 0x3b13f500, 0xb9a91800}},
    {GgmlType::iq1_m,
     "f22b294eb04d5382646f549808a1947a021ea29d54174898ce709b91f00ac00a",
     {0x39be6800, 0x3b563500, 0xbb269b00, 0x39be6800}},
    {GgmlType::tq2_0,
     "8dc648aec406732da68aecda0226a57cac53613295b002dbe2a173fc0f723251",
     {0xbe00a000, 0xbe00a000, 0xbe00a000, 0x3e00a000}},
    {GgmlType::bf16,
     "cab2d37a9a2cd493777d2618ad52b099a00481ab827b36233c364b37497df76b",
     {0x0e0a0000, 0x94d60000, 0xa0f90000, 0x880d0000}},
    {GgmlType::f16,
     "3c702572a52dc47a0d60d545933d7c3a9d4ee3cb0dbb7e08b133ec77b2da543d",
     {0x39c14000, 0xba9ac000, 0xbc1f2000, 0xb901a000}},
};
constexpr std::size_t count = 65536;

// Fills blocks with the bits of splitmix64 (Steele, Lea and Flood 2014). The highest exponent bit of each f16 is
// cleared. The exponents of mxfp4 are 2 to 127.
std::vector<std::byte> blocks_of(GgmlType type) {
  const GgmlTypeInfo& info = *ggml_type_info(type);
  std::vector<std::byte> out(count / info.block * info.bytes);
  std::uint64_t state = 22;
  for (std::size_t at = 0; at < out.size(); at += 8) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    std::memcpy(out.data() + at, &z, std::min<std::size_t>(8, out.size() - at));
  }
  const ops::WeightLayout& layout = ops::layout_of(*weight_format(type));
  for (std::size_t at = layout.scale_at; at < out.size(); at += info.bytes) {
    if (layout.scale == DType::bf16) {
      out[at] = (out[at] & std::byte{0x7f}) | std::byte{2};
      continue;
    }
    out[at + 1] &= std::byte{0xbf};
    if (layout.minimum) out[at + 3] &= std::byte{0xbf};
  }
  return out;
}

void expect_case(const Case& c, const std::vector<float>& values, const std::string& what) {
  ASSERT_EQ(values.size(), count) << what;
  for (std::size_t i = 0; i < c.first.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), c.first[i]) << what << " at " << i;
  EXPECT_EQ(sha256({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}), c.digest) << what;
}

TEST(WeightFormats, HostDecodingMatchesGguf) {
  std::size_t known = 0;
  for (const GgmlTypeInfo& info : ggml_types()) known += weight_format(info.type).has_value();
  EXPECT_EQ(known, std::size(cases) + 1) << "each has a case, except f32";
  EXPECT_EQ(known, weight_format_count);
  for (const Case& c : cases) {
    const std::string name(ggml_type_info(c.type)->name);
    EXPECT_EQ(weight_format_name(*weight_format(c.type)), name);
    EXPECT_TRUE(ggml_type_supported(c.type)) << name;
    expect_case(c, ggml_to_float(c.type, blocks_of(c.type)), name);
  }
  // The exponents of mxfp4 that blocks_of() does not contain.
  for (const auto& [exponent, value] : {std::pair(0, 0x1p-128f), {1, 0x1p-127f}, {128, 1.0f}, {255, 0x1p127f}}) {
    std::vector<std::byte> block(17, std::byte{0x11});
    block[0] = static_cast<std::byte>(exponent);
    EXPECT_EQ(ggml_to_float(GgmlType::mxfp4, block)[0], value) << exponent;
  }
}

TEST_P(OnEveryDevice, PackedDecodingMatchesGguf) {
  for (const Case& c : cases) {
    const Weight w = Weight::pack(*weight_format(c.type), blocks_of(c.type), 64, 1024, GetParam());
    expect_case(c, dequantize(w).to_vector<float>(),
                std::string(ggml_type_info(c.type)->name) + " on " + to_string(GetParam()));
  }
}

// A packed weight takes as much memory as in the file, within a few percent. Numbers of a few bits are stored
// unchanged, but 6-bit factors take 8 bits, and 16 bits in iq4_xs, as do
// the two 4-bit factors of iq2_xs.
TEST_P(OnEveryDevice, PackedWeightsAreAboutAsLargeAsInTheFile) {
  if (!device_info(GetParam()).can.f16) return;  // scales are f32 if f16 is emulated
  for (const Case& c : cases) {
    const auto data = blocks_of(c.type);
    const Weight w = Weight::pack(*weight_format(c.type), data, 64, 1024, GetParam());
    const double ratio = static_cast<double>(w.bytes()) / static_cast<double>(data.size());
    EXPECT_LE(ratio, 82.0 / 74) << ggml_type_info(c.type)->name;
    EXPECT_GE(ratio, 1) << ggml_type_info(c.type)->name;
  }
}

// Quantised activations are bit-identical for both kernels: one thread per block, and a vector of threads per block.
// This includes non-finite numbers: NaN propagates through the scale, and an infinity becomes the scale times 0.
TEST_P(OnEveryDevice, QuantisedActivationsAreIdenticalInAllKernelForms) {
  constexpr std::int64_t columns = 160, tokens = 11, blocks = columns / 32;
  std::vector<float> x(tokens * columns);
  std::uint32_t state = 11;
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(static_cast<float>(static_cast<std::int32_t>(state = state * 1664525 + 1013904223)),
                      static_cast<int>(i / 32 % 40) - 51);
  std::fill_n(x.begin(), 32, 0.0f);
  for (std::size_t i = 0; i < 32; ++i) x[32 + i] = i == 0 ? 127.0f : static_cast<float>(i) - 15.5f;  // halves
  x[64 + 3] = std::numeric_limits<float>::quiet_NaN(), x[96 + 30] = -std::numeric_limits<float>::infinity();
  std::fill_n(x.begin() + 128, 32, 1e-36f);
  const Array from = Array::from(x, Shape{tokens, columns}, GetParam());
  const auto quantised = [&](const ops::QuantiseSpec& spec) {
    const std::int64_t tiles = ops::ceil_div(tokens, spec.out.tokens), count = tiles * spec.out.tokens * blocks;
    const Array out = Array::empty({count, ops::activation_words}, DType::u32, GetParam());
    BufferView to = out.view();
    if (spec.lanes != 0) to.dtype = DType::u8, to.elements *= 4;
    std::vector<LaunchArgument> args = {from.view(), to};
    if (spec.out.tokens > 1 || spec.lanes != 0)
      args.push_back(LaunchArgument::index(blocks)), args.push_back(LaunchArgument::index(tokens));
    Kernel(ops::trace_quantise(spec))
        .launch({static_cast<std::uint64_t>(spec.lanes != 0 ? tiles * blocks : count), 1, 1}, std::span(args));
    return out.to_vector<std::uint32_t>();
  };
  for (const std::uint32_t together : {1u, 8u})
    for (const bool halves : {false, true}) {
      const auto alone = quantised({{true, together, 8, halves}});
      const auto at = [&](std::size_t block) { return block * together * ops::activation_words; };  // of token 0
      EXPECT_EQ(alone[at(1)], std::bit_cast<std::uint32_t>(1.0f));
      EXPECT_EQ(alone[at(1) + 4], 0xf4f2f27fu) << "-14.5, -13.5 and -12.5 round to even";
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(alone[at(2)])));
      EXPECT_TRUE(std::isinf(std::bit_cast<float>(alone[at(3)])));
      const auto expect_same = [&](std::vector<std::uint32_t> other, const std::string& form) {
        EXPECT_TRUE(std::isnan(std::bit_cast<float>(other[at(2)])));
        auto expected = alone;
        for (auto* all : {&expected, &other})  // if the scale is NaN, the other values are irrelevant
          std::fill_n(all->begin() + static_cast<std::ptrdiff_t>(at(2)), ops::activation_words, 0u);
        EXPECT_EQ(other, expected) << together << " tokens, " << form << " on " << to_string(GetParam());
      };
      for (const std::uint32_t lanes : {4u, 8u, 16u})
        expect_same(quantised({{true, together, 8, halves}, lanes}), std::to_string(lanes) + " lanes");
      const ops::InputLayout layout{true, together, 8, halves};
      if (const auto rows = ops::choose_convert_rows(ops::tiles_of(GetParam()), columns, layout)) {
        const Array out = ops::empty_input(layout, tokens, columns, GetParam());
        const std::int64_t threads = out.shape(0) * 8;
        Kernel(ops::trace_convert_rows(*rows))
            .launch({static_cast<std::uint64_t>(ops::ceil_div(threads, rows->threads)), 1, 1},
                    {from.view(), out.view(), LaunchArgument::index(columns), LaunchArgument::index(tokens)});
        expect_same(out.to_vector<std::uint32_t>(), "four elements per thread");
      }
    }
}

// Products with many tokens match products with each token separately, for every kernel. Tests several groups of rows
// and (with few rows, which CPUs divide by tokens, or many tokens) several blocks of tokens, the last of which are
// incomplete, and rows whose length is not a multiple of a panel.
TEST_P(OnEveryDevice, ManyTokensMatchSingleTokens) {
  struct Size {
    std::int64_t rows, tokens;
  };
  for (const Size size : {Size{77, 131}, {13, 131}, {77, 1029}})
    for (const Case& c : cases) {
      const std::int64_t rows = size.rows, tokens = size.tokens;
      if (tokens > 131 && (c.type != GgmlType::iq3_s || GetParam().backend != Backend::cpu)) continue;
      const WeightFormat format = *weight_format(c.type);
      const GgmlTypeInfo& info = *ggml_type_info(c.type);
      const auto data = blocks_of(c.type);
      const std::int64_t columns = info.block == 256 ? 768 : 160;
      const std::size_t bytes = static_cast<std::size_t>(rows * columns) / info.block * info.bytes;
      const Weight w = Weight::pack(format, std::span(data).first(bytes), rows, columns, GetParam());
      std::vector<float> x(static_cast<std::size_t>(tokens * columns));
      std::uint32_t state = 7;
      for (float& v : x)
        v = static_cast<float>(static_cast<std::int32_t>(state = state * 1664525 + 1013904223)) * 0x1p-31f;
      const auto product = [&](std::int64_t first, std::int64_t count) {
        const auto at = x.begin() + first * columns;
        return linear(Array::from(std::vector<float>(at, at + count * columns), Shape{count, columns}, GetParam()), w)
            .to_vector<float>();
      };
      const std::vector<float> all = product(0, tokens);
      for (std::int64_t token : {0, 7, 8, 126, 127, 128, 130, 511, 512, 1023, 1024, 1028}) {
        if (token >= tokens) continue;
        const std::vector<float> one = product(token, 1);
        double largest = 0, apart = 0;
        for (std::size_t i = 0; i < one.size(); ++i) {
          const float got = all[static_cast<std::size_t>(token * rows) + i];
          ASSERT_TRUE(std::isfinite(got)) << info.name << " token " << token << " row " << i;
          largest = std::max(largest, std::abs(double{one[i]}));
          apart = std::max(apart, std::abs(double{one[i]} - double{got}));
        }
        EXPECT_LE(apart, 1e-5 * largest) << info.name << " token " << token << " on " << to_string(GetParam());
      }
    }
}

// Pieces are read by several threads, and each byte is read once. Exceptions of a reader propagate. Rows need not fill
// a group.
TEST_P(OnEveryDevice, PackingReadsEachByteOnce) {
  const auto data = blocks_of(GgmlType::q6_K);
  const std::int64_t columns = 512, rows = 127;
  const std::size_t bytes = 127 * 2 * 210;
  std::vector<std::atomic<int>> reads(bytes);
  const auto read = [&](std::uint64_t offset, std::span<std::byte> to) {
    for (std::size_t i = 0; i < to.size(); ++i) ++reads.at(offset + i), to[i] = data[offset + i];
  };
  const Weight w = Weight::pack(WeightFormat::q6_K, bytes, read, rows, columns, GetParam());
  EXPECT_TRUE(std::ranges::all_of(reads, [](const auto& n) { return n == 1; }));
  const std::vector<float> whole = ggml_to_float(GgmlType::q6_K, std::span(data).first(bytes));
  EXPECT_TRUE(dequantize(w).to_vector<float>() == whole);
  const auto fails = [](std::uint64_t, std::span<std::byte>) { throw FormatError("the file ends here"); };
  expect_throw<FormatError>([&] { Weight::pack(WeightFormat::q6_K, bytes, fails, rows, columns, GetParam()); },
                            {"the file ends here"});
}

TEST(WeightFormats, WeightOfRejectsFormatsItCannotWrite) {
  const Device cpu{Backend::cpu, 0};
  const Array a = Array::full({2, 256}, 1.5f, DType::f32, cpu);
  for (const WeightFormat f : {WeightFormat::f32, WeightFormat::f16, WeightFormat::bf16, WeightFormat::q8_0,
                               WeightFormat::q4_0, WeightFormat::q5_1, WeightFormat::q4_K, WeightFormat::q6_K})
    EXPECT_NEAR(dequantize(Weight::of(a, f, cpu)).to_vector<float>()[511], 1.5f, 1e-3) << weight_format_name(f);
  expect_throw<ArgumentError>([&] { Weight::of(a, WeightFormat::iq4_xs, cpu); }, {"Weight::of", "iq4_xs", "q4_0"});
}

// Both implementations quantise activations to 8 bits. For K types, llama.cpp uses a scale per 256 values instead of
// 32. Each implementation is near the reference, so they are near each other.
TEST_P(OnEveryDevice, LogitsOfLlamaQuantizeFilesMatchLlamaCpp) {
  std::ifstream in("tests/data/quantised-logits.json");
  const nlohmann::json figures = nlohmann::json::parse(in);
  const auto tokens = figures.at("tokens").get<std::vector<std::int32_t>>();
  std::set<std::string> seen;
  for (const auto& model : figures.at("models")) {
    const std::string name = model.at("file");
    const GgufFile file = GgufFile::open("tests/data/" + name);
    std::set<std::string> types;
    for (const GgufTensor& t : file.tensors()) types.insert(std::string(ggml_type_info(t.type)->name));
    ASSERT_EQ(types.size(), model.at("types").size()) << name;
    seen.merge(types);
    const auto theirs = model.at("logits").get<std::vector<std::vector<double>>>();
    const auto want = test::ReferenceLlama(file).forward(tokens);
    const Llama llama = Llama::load(file, GetParam());
    KeyValueCache cache = llama.make_cache(static_cast<std::int64_t>(tokens.size()), DType::f32);
    const auto ours = llama.forward(tokens, cache, true).to_vector<float>();
    double from_reference = 0, from_theirs = 0;
    ASSERT_EQ(ours.size(), theirs.size() * theirs[0].size());
    for (std::size_t t = 0; t < want.size(); ++t) {
      const auto [low, high] = std::ranges::minmax(want[t]);
      for (std::size_t i = 0; i < want[t].size(); ++i) {
        const double got = ours[t * want[t].size() + i];
        from_reference = std::max(from_reference, std::abs(got - want[t][i]) / (high - low));
        from_theirs = std::max(from_theirs, std::abs(got - theirs[t][i]) / (high - low));
      }
    }
    std::printf("%s on %s: %.1e from the reference, %.1e from llama.cpp\n", name.c_str(), to_string(GetParam()).c_str(),
                from_reference, from_theirs);
    EXPECT_LE(from_reference, 0.01) << name;
    EXPECT_LE(from_theirs, 0.015) << name;
  }
  for (const char* type : {"f32", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q4_K", "q5_K", "q6_K"})
    EXPECT_TRUE(seen.contains(type)) << type;
}

}  // namespace
}  // namespace tessera
