// SPDX-License-Identifier: Apache-2.0
// Embedding models on every device, compared with transformers and sentence-transformers in float64. The figures come
// from tools/make_embedding_cases.py; the weights are computed by the formula of architecture_values.h.
#include "tessera/llm/embedding_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/llm/estimate.h"
#include "tessera/llm/inspect.h"
#include "tessera/llm/language_model.h"
#include "tests/embedding/embedding_values.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::embedding_figures;
using test::embedding_texts;
using test::embedding_writer;
using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

EmbeddingModel load(const GgufWriter& w, Device device) {
  const auto bytes = w.bytes();
  return EmbeddingModel::load(GgufFile::parse(bytes, "model.gguf"), {&device, 1});
}
const json& case_of(std::string_view name) {
  const json& all = embedding_figures()["cases"];
  return *std::ranges::find_if(all, [&](const json& c) { return c["name"] == name; });
}
/// Returns the largest difference relative to the largest element of `want`.
double apart(std::span<const float> got, const std::vector<double>& want) {
  double worst = got.size() == want.size() ? 0 : 1e9, largest = 0;
  for (const double v : want) largest = std::max(largest, std::fabs(v));
  for (std::size_t i = 0; i < want.size() && i < got.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - want[i]) / largest;
    worst = d <= worst ? worst : std::isnan(d) ? 1e9 : d;
  }
  return worst;
}

TEST_P(OnEveryDevice, EmbeddingsMatchTransformers) {
  for (const json& c : embedding_figures()["cases"]) {
    const auto name = c["name"].get<std::string>();
    SCOPED_TRACE(name);
    const EmbeddingModel model = load(embedding_writer(c), GetParam());
    EXPECT_EQ(to_string(model.pooling()), c["pooling"].get<std::string>());
    const auto texts = embedding_texts();
    double worst = 0;
    const auto check = [&](Pooling pooling, std::int64_t batch) {
      const auto got = model.embed(texts, {.pooling = pooling, .batch = batch});
      const auto want = c["embeddings"][to_string(pooling)].get<std::vector<std::vector<double>>>();
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double far = apart(got[i].values, want[i]);
        EXPECT_LE(far, 1e-5) << to_string(pooling) << ", text " << i << ", batch " << batch;
        worst = std::max(worst, far);
        EXPECT_EQ(got[i].tokens, std::ssize(texts[i]));
      }
    };
    for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) check(pooling, 1000);
    check(model.pooling(), 60);
    std::printf("%-16s differs by %.1e\n", name.c_str(), worst);
  }
}

TEST_P(OnEveryDevice, TextsDoNotInfluenceEachOther) {
  for (const json& c : embedding_figures()["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const EmbeddingModel model = load(embedding_writer(c), GetParam());
    const auto some = [] {  // long texts take long on the interpreter
      auto texts = embedding_texts();
      texts.resize(4);
      return texts;
    };
    auto texts = some();
    const auto before = model.embed(texts);
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (i != 2)
        for (std::int32_t& id : texts[i]) id = 63 - id;
    const auto after = model.embed(texts);
    EXPECT_EQ(before[2].values, after[2].values);
    EXPECT_NE(before[3].values, after[3].values);
    // Every token attends to the tokens after it, unless the model is a language model.
    auto changed = some();
    changed[2].back() = changed[2].back() == 9 ? 10 : 9;
    const auto same = model.embed(some(), {.pooling = Pooling::cls});
    EXPECT_EQ(model.embed(changed, {.pooling = Pooling::cls})[2].values != same[2].values, model.is_encoder());
  }
}

TEST_P(OnEveryDevice, AllWeightFormatsEmbed) {
  for (const json& c : {case_of("BERT"), case_of("Nomic Embed")})
    for (const GgmlType type : {GgmlType::f16, GgmlType::bf16, GgmlType::q8_0, GgmlType::q4_0}) {
      SCOPED_TRACE(c["name"].get<std::string>() + " " + std::string(ggml_type_info(type)->name));
      auto texts = embedding_texts();
      texts.resize(4);
      const auto got = load(embedding_writer(c, type), GetParam()).embed(texts);
      const auto exact = load(embedding_writer(c, type, true), GetParam()).embed(texts);
      const bool rounds = type == GgmlType::q8_0 || type == GgmlType::q4_0;  // activations to 8 bits
      for (std::size_t i = 0; i < texts.size(); ++i)
        EXPECT_GE(cosine_similarity(got[i].values, exact[i].values), rounds ? 0.999 : 1 - 1e-9) << "text " << i;
    }
}

TEST_P(OnEveryDevice, EstimateCoversTheMemoryOfTheModel) {
  for (const json& c : embedding_figures()["cases"]) {
    const auto bytes = embedding_writer(c).bytes();
    const GgufFile file = GgufFile::parse(bytes, "model.gguf");
    const Device device = GetParam();
    const ModelMemory m = estimate_embedding_memory(file, {&device, 1});
    EXPECT_TRUE(m.fits());
    EXPECT_EQ(m.devices.at(0).weights, EmbeddingModel::load(file, {&device, 1}).weight_bytes());
    EXPECT_GT(m.devices.at(0).peak, m.devices.at(0).weights);
    const ModelReport report = inspect_model(file);
    EXPECT_TRUE(report.runs()) << (report.missing.empty() ? "" : report.missing[0].why);
    EXPECT_EQ(report.pooling, std::optional(read_pooling(file)));
  }
}

TEST(EmbeddingModel, EmbedsTextsWithOptions) {
  const EmbeddingModel model = load(embedding_writer(case_of("BERT")), current_device());
  const std::vector<std::string> texts = {"a cat", "A  CÄT", "b"};
  const auto out = model.embed(texts);
  EXPECT_EQ(out[0].tokens, 6);  // [CLS] a c a t [SEP]
  EXPECT_EQ(out[0].values, out[1].values);
  EXPECT_NE(out[0].values, out[2].values);
  EXPECT_NEAR(cosine_similarity(out[0].values, out[0].values), 1, 1e-12);
  EXPECT_EQ(model.embed("cat", {.prefix = "a "}).values, out[0].values);
  const EmbeddingResult all = model.embed("a cat", {.pooling = Pooling::none});
  ASSERT_EQ(all.values.size(), 6u * 32);
  EXPECT_EQ(std::vector(all.values.begin(), all.values.begin() + 32), out[0].values) << "the pooling is cls";
  const EmbeddingResult raw = model.embed("a cat", {.normalize = false});
  double squares = 0;
  for (const float v : raw.values) squares += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_GT(std::fabs(squares - 1), 0.1);
  EXPECT_NEAR(cosine_similarity(raw.values, out[0].values), 1, 1e-6);
  std::size_t calls = 0;
  const auto some = model.embed(texts, {.batch = 1,
                                        .on_progress = [&](std::size_t, std::size_t total) { calls += total == 3; },
                                        .cancelled = [&] { return calls == 2; }});
  EXPECT_EQ(some.size(), 2u);
  EXPECT_TRUE(model.embed(std::span<const std::string>()).empty());
  expect_throw<ArgumentError>([&] { cosine_similarity(raw.values, all.values); }, {"32 and 192"});
}

TEST(EmbeddingModel, CanBeCancelledWithinAText) {
  const std::vector<std::vector<TokenId>> texts = {{5, 6, 7}, std::vector<TokenId>(60, 9)};
  for (const json& c : embedding_figures()["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const EmbeddingModel model = load(embedding_writer(c), current_device());
    int calls = 0, last = -1;
    const EmbeddingOptions options{.batch = 10, .cancelled = [&] { return calls++ == last; }};
    const auto all = model.embed(texts, options);
    EXPECT_EQ(all.size(), 2u);
    const int steps = calls;
    EXPECT_EQ(steps, model.is_encoder() ? 2 * 3 : 1 + 6) << "layers, or steps of 10 tokens";
    for (last = 0; last < steps; ++last) {
      calls = 0;
      const auto some = model.embed(texts, options);
      EXPECT_EQ(calls, last + 1) << "stops at once";
      EXPECT_EQ(some.size(), last < (model.is_encoder() ? 3 : 1) ? 0u : 1u);
      if (!some.empty()) {
        EXPECT_EQ(some[0].values, all[0].values);
      }
    }
  }
}

TEST(EmbeddingModel, LongTextsAreRejectedOrShortened) {
  const EmbeddingModel model = load(embedding_writer(case_of("BERT")), current_device());
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a ";
  expect_throw<ArgumentError>([&] { model.embed(text); }, {"text = 0", "tokens = 202", "128", "--truncate"});
  const EmbeddingResult e = model.embed(text, {.truncate = true});
  EXPECT_EQ(e.tokens, 128);
  EXPECT_TRUE(e.truncated);
  EXPECT_EQ(to_string(e), "128 tokens (shortened), 32 numbers");
  EXPECT_EQ(e.values, model.embed(text.substr(0, 252)).values) << "126 words and the two special tokens";
  expect_throw<ArgumentError>([&] { model.embed("", {.batch = 0}); }, {"batch = 0"});
  const std::vector<std::vector<TokenId>> empty = {{}}, unknown = {{3, 64}};
  expect_throw<ArgumentError>([&] { model.embed(empty); }, {"no tokens"});
  expect_throw<ArgumentError>([&] { model.embed(unknown); }, {"token = 64", "not in the vocabulary"});
}

TEST(EmbeddingModel, LimitOfTokensComesFromTheFile) {
  constexpr const char* key = "tessera.embedding.max_tokens";
  const auto with = [&](GgufValue limit) {
    GgufWriter w = embedding_writer(case_of("BERT"));
    w.set(key, std::move(limit));
    return load(w, current_device());
  };
  const std::string text(50, '.');
  EXPECT_EQ(with(20u).embed(text, {.truncate = true}).tokens, 20);
  EXPECT_EQ(with(1u).embed(text, {.truncate = true}).tokens, 1);
  EXPECT_EQ(with(1u << 30).context_length(), 128);
  const GgufValue invalid[] = {0u, -1, (1u << 30) + 1};
  for (const GgufValue& limit : invalid)
    expect_throw<FormatError>([&] { with(limit); }, {"model.gguf", key, "1 to 2^30"});
}

TEST(EmbeddingModel, PoolingComesFromTheFile) {
  const json& c = case_of("BERT");
  const auto pooling = [&](std::optional<std::uint32_t> number) {
    GgufWriter w = embedding_writer(c, GgmlType::f32, false, "bert.pooling_type");
    if (number) w.set("bert.pooling_type", *number);
    const auto bytes = w.bytes();
    return read_pooling(GgufFile::parse(bytes, "model.gguf"));
  };
  EXPECT_EQ(pooling({}), Pooling::mean);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(pooling(i), static_cast<Pooling>(i));
  expect_throw<FormatError>([&] { pooling(4); }, {"model.gguf", "bert.pooling_type", "rank"});
  expect_throw<FormatError>([&] { pooling(5); }, {"bert.pooling_type", "5"});
}

TEST(EmbeddingModel, UnsupportedPartsAreNamed) {
  const auto refused = [](GgufWriter w, std::vector<std::string_view> parts) {
    const auto bytes = w.bytes();
    expect_throw<FormatError>([&] { EmbeddingModel::load(GgufFile::parse(bytes, "model.gguf")); }, parts);
  };
  const json &bert = case_of("BERT"), &nomic = case_of("Nomic Embed");
  const auto without = [](const json& c, const char* key) { return embedding_writer(c, GgmlType::f32, false, key); };
  refused(embedding_writer(bert).set("bert.attention.new", 1u), {"model.gguf", "bert.attention.new"});
  refused(embedding_writer(bert).add_tensor("cls.weight", {32, 32}, std::vector<float>(1024)),
          {"cls.weight", "classif"});
  refused(embedding_writer(nomic).add_tensor("blk.0.ffn_gate_inp.weight", {32, 8}, std::vector<float>(256)),
          {"blk.0.ffn_gate_inp.weight"});
  refused(without(bert, "bert.attention.causal").set("bert.attention.causal", true), {"bert.attention.causal"});
  refused(without(bert, "bert.attention.head_count").set("bert.attention.head_count", 5u), {"head_count", "32", "5"});
  refused(without(bert, "bert.context_length").set("bert.context_length", 127u), {"position_embd.weight", "128"});
  refused(without(nomic, "nomic-bert.rope.freq_base").set("nomic-bert.rope.freq_base", 0.5f), {"freq_base"});
  refused(without(bert, "general.architecture").set("general.architecture", std::string("neo-bert")),
          {"general.architecture", "neo-bert", "bert and nomic-bert"});
}

TEST(EmbeddingModel, LanguageModelsAndEmbeddingModelsAreToldApart) {
  for (const json& c : embedding_figures()["cases"]) {
    const auto bytes = embedding_writer(c).bytes();
    const GgufFile file = GgufFile::parse(bytes, "model.gguf");
    EXPECT_TRUE(is_embedding_model(file));
    expect_throw<FormatError>([&] { LanguageModel::load(file, LoadOptions{}); }, {"model.gguf", "tessera embed"});
  }
  const auto bytes = embedding_writer(case_of("Qwen 3 Embedding"), GgmlType::f32, false, "qwen3.pooling_type").bytes();
  const GgufFile file = GgufFile::parse(bytes, "model.gguf");
  EXPECT_FALSE(is_embedding_model(file));
  EXPECT_EQ(EmbeddingModel::load(file).pooling(), Pooling::mean) << "language models can be used as well";
}

}  // namespace
}  // namespace tessera
