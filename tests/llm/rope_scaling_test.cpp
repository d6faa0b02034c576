// SPDX-License-Identifier: Apache-2.0
// Texts longer than those of the training: logits with scaled rotary embeddings, compared with transformers in float64
// (tools/make_rope_scaling_cases.py).
#include "tessera/llm/rope_scaling.h"

#include <gtest/gtest.h>

#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/llama.h"
#include "tests/llm/architecture_values.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

/// A Llama that was trained with `context` tokens. `own` adds scaling to its file, which is to be replaced.
std::vector<std::byte> small_llama(std::uint32_t context, bool own) {
  const json cases = test::figures()["cases"];
  const json& c = *std::ranges::find(cases, "Llama 2", [](const json& each) { return each["name"]; });
  GgufWriter w;
  for (const json& k : c["keys"]) {
    const auto key = k[0].get<std::string>();
    w.set(key, key == "llama.context_length" ? GgufValue(context) : test::value_of(k[1].get<std::string>(), k[2]));
  }
  if (own)
    w.set("llama.rope.scaling.type", std::string("yarn"))
        .set("llama.rope.scaling.factor", 2.0f)
        .set("llama.rope.scaling.yarn_attn_factor", 3.0f);
  for (const json& t : c["tensors"]) {
    const auto dims = t[1].get<std::vector<std::uint64_t>>();
    const auto name = t[0].get<std::string>();
    w.add_tensor(name, dims, test::weights_of(name, dims));
  }
  return w.bytes();
}

RopeScaling scaling_of(const json& c) {
  const bool yarn = c["type"] == "yarn";
  return {yarn ? RopeScaling::Type::yarn : RopeScaling::Type::linear, c["factor"].get<double>(),
          yarn ? c["original context"].get<std::int64_t>() : 0};
}

TEST_P(OnEveryDevice, LogitsBeyondTheTrainedContextMatchTransformers) {
  const json all = json::parse(std::ifstream("tests/data/rope_scaling.json"));
  for (const json& c : all["cases"])
    for (const bool own : {false, true}) {
      const auto bytes = small_llama(c["trained"].get<std::uint32_t>(), own);
      GgufFile file = GgufFile::parse(bytes, "small");
      set_rope_scaling(file, scaling_of(c));
      const Llama model = Llama::load(file, GetParam());
      const std::vector<std::int32_t> tokens = test::tokens_of(c);
      ASSERT_GE(model.config().context_length, std::ssize(tokens));
      KeyValueCache cache = model.make_cache(std::ssize(tokens), DType::f32);
      const auto logits = model.forward(tokens, cache, true).to_vector<float>();
      const auto at = c["at"].get<std::vector<std::size_t>>();
      const auto want = c["transformers"].get<std::vector<std::vector<double>>>();
      for (std::size_t i = 0; i < at.size(); ++i)
        EXPECT_LE(test::apart(std::span(logits).subspan(at[i] * want[i].size(), want[i].size()), want[i]), 1e-5)
            << c["type"] << ", after token " << at[i];
    }
}

TEST(RopeScaling, ReplacesTheScalingOfTheFile) {
  const auto bytes = small_llama(64, true);
  GgufFile file = GgufFile::parse(bytes, "small");
  set_rope_scaling(file, {RopeScaling::Type::none});
  const LlamaConfig none = read_llama_config(file);
  EXPECT_EQ(none.context_length, 64);
  EXPECT_TRUE(none.frequency_factors.empty());
  EXPECT_EQ(none.rotary.magnitude, 1);
  set_rope_scaling(file, {RopeScaling::Type::linear, 2.5});
  EXPECT_EQ(read_llama_config(file).context_length, 160);
  EXPECT_EQ(read_llama_config(file).rotary.scale, 0.4f);
  // The length of a file with linear scaling is the scaled one.
  set_rope_scaling(file, {RopeScaling::Type::linear, 4});
  file.remove_metadata("llama.rope.scaling.original_context_length");
  set_rope_scaling(file, {RopeScaling::Type::linear, 2});
  EXPECT_EQ(read_llama_config(file).context_length, 128);
  EXPECT_EQ(read_llama_config(file).rotary.scale, 0.5f);
  for (const double factor : {0.5, -1.0, 2e6, std::nan("")})
    expect_throw<ArgumentError>(
        [&] {
          set_rope_scaling(file, {RopeScaling::Type::yarn, factor});
        },
        {"small", "yarn", "factor"});
  expect_throw<ArgumentError>([&] { set_rope_scaling(file, {RopeScaling::Type::yarn, 2, -1}); }, {"original"});
  expect_throw<ArgumentError>([&] { set_rope_scaling(file, {RopeScaling::Type::yarn, 1e6, 1 << 20}); }, {"2^30"});
  for (const auto& [tensor, type] : {std::pair("rope_freqs.weight", RopeScaling::Type::yarn),
                                     {"rope_freqs.weight", RopeScaling::Type::none},
                                     {"rope_factors_long.weight", RopeScaling::Type::linear}}) {
    GgufWriter w;
    w.set("general.architecture", std::string("llama")).set("llama.context_length", std::uint32_t{64});
    w.add_tensor(tensor, {4}, std::vector<float>(4));
    const auto other = w.bytes();
    GgufFile with_factors = GgufFile::parse(other, "factors");
    expect_throw<ArgumentError>([&] { set_rope_scaling(with_factors, {type, 2}); }, {"factors"});
  }
  file.set_metadata("llama.rope.scaling.finetuned", false);
  expect_throw<ArgumentError>([&] { set_rope_scaling(file, {RopeScaling::Type::none}); }, {"does not use rotary"});
}

}  // namespace
}  // namespace tessera
