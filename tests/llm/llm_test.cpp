// SPDX-License-Identifier: Apache-2.0
// Language models on every device compared with a double-precision forward pass, and errors for invalid input.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <tuple>

#include "tessera/device/memory/staging.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/llm/decoder.h"
#include "tessera/llm/fetched_logits.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/language_model.h"
#include "tessera/llm/text_session.h"
#include "tessera/ops/transformer_layer.h"
#include "tests/llm/reference_llama.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::OnEveryDevice;
using test::ReferenceLlama;
using test::text_of;
using test::TinyModel;
TESSERA_ON_EVERY_DEVICE();

// Checks that the largest difference, relative to the range of the expected logits, is within the bound. The greedy
// choice must be the same unless the two best logits differ by less than twice the bound.
void expect_close(const std::vector<float>& got, std::span<const std::vector<double>> want, double bound,
                  const std::string& what) {
  const std::size_t vocabulary = want[0].size();
  ASSERT_EQ(got.size(), want.size() * vocabulary) << what;
  double worst = 0;
  for (std::size_t t = 0; t < want.size(); ++t) {
    const auto row = std::span(got).subspan(t * vocabulary, vocabulary);
    const auto [low, high] = std::minmax_element(want[t].begin(), want[t].end());
    const double range = *high - *low;
    for (std::size_t i = 0; i < vocabulary; ++i) {
      ASSERT_TRUE(std::isfinite(row[i])) << what << " token " << t;
      worst = std::max(worst, std::fabs(row[i] - want[t][i]) / range);
    }
    std::vector<double> sorted = want[t];
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    if (sorted[0] - sorted[1] > 2 * bound * range) {
      EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), high - want[t].begin())
          << what << " greedy at " << t;
    }
  }
  EXPECT_LE(worst, bound) << what;
  std::printf("%-60s worst %.2e of the range, bound %.0e\n", what.c_str(), worst, bound);
}

std::vector<std::int32_t> some_tokens(std::int64_t n, std::int64_t vocabulary) {
  std::mt19937_64 random(testing::seed());
  std::vector<std::int32_t> out(static_cast<std::size_t>(n));
  for (auto& t : out) t = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
  return out;
}

double bound_of(GgmlType type) {
  return type == GgmlType::f32 || type == GgmlType::f16 || type == GgmlType::bf16 ? 1e-4 : 2e-2;
}

void check_model(const GgufFile& file, Device device, const std::vector<std::int32_t>& tokens,
                 const std::string& what) {
  const GgmlType type = file.tensor("blk.0.attn_q.weight").type;
  const double bound = bound_of(type);
  // In long batches, a vendor's library may round activations to f16 or bf16.
  const double rounded = is_built_in(device.backend) ? bound : std::max(bound, type == GgmlType::bf16 ? 5e-3 : 1e-3);
  const auto want = ReferenceLlama(file).forward(tokens);
  const Llama model = Llama::load(file, device);
  const auto n = static_cast<std::int64_t>(tokens.size());
  {
    KeyValueCache cache(model.config(), n, device, DType::f32);
    expect_close(model.forward(tokens, cache, true).to_vector<float>(), want, rounded, what + ", one batch");
  }
  {
    KeyValueCache cache(model.config(), n, device, DType::f32);
    std::size_t at = 0;
    for (std::size_t piece : {7, 1, 20, 3, 1000}) {
      piece = std::min(piece, tokens.size() - at);
      const auto got = model.forward(std::span(tokens).subspan(at, piece), cache, true).to_vector<float>();
      expect_close(got, std::span(want).subspan(at, piece), rounded, what + ", a piece of " + std::to_string(piece));
      at += piece;
    }
  }
  {
    // The cache is long enough for attention in parts.
    KeyValueCache cache(model.config(), n + 150, device, DType::f32);
    std::vector<float> all;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto got = model.forward(std::span(tokens).subspan(t, 1), cache).to_vector<float>();
      all.insert(all.end(), got.begin(), got.end());
    }
    expect_close(all, want, bound, what + ", token by token");
  }
  {
    // With f16 keys and values, the error is at most 5e-3.
    KeyValueCache cache(model.config(), n, device, DType::f16);
    expect_close(model.forward(tokens, cache, true).to_vector<float>(), want, std::max(rounded, 5e-3),
                 what + ", f16 cache");
  }
}

TEST_P(OnEveryDevice, TinyModelsOfEachFormatMatchReference) {
  int number = 0;
  for (GgmlType type : {GgmlType::f32, GgmlType::f16, GgmlType::bf16, GgmlType::q8_0, GgmlType::q4_0})
    for (const char* architecture : {"llama", "qwen2"}) {
      TinyModel tiny{.architecture = architecture,
                     .type = type,
                     .tied = number % 2 == 0,
                     .linear_scaling = number % 3 == 1,
                     .factors = number % 4 == 2,
                     .biases = number % 3 == 2,
                     .seed = testing::seed() + static_cast<std::uint64_t>(number),
                     .head = number % 4 < 2 ? 64u : 40u};
      ++number;
      const auto bytes = tiny.writer().bytes();
      const GgufFile file = GgufFile::parse(bytes, "tiny");
      check_model(file, GetParam(), some_tokens(40, 203), std::string(ggml_type_info(type)->name) + " " + architecture);
    }
}

// The combinations of formats are the same as in files of llama-quantize. That program uses different formats for
// "down", because the length of that matrix's rows is not a multiple of 256.
TEST_P(OnEveryDevice, ModelsOfMixedFormatsMatchReference) {
  struct Mix {
    GgmlType type;
    std::map<std::string, GgmlType> others;
  };
  const Mix mixes[] = {
      {GgmlType::q4_0, {{"token_embd.weight", GgmlType::q6_K}, {"0.ffn_down.weight", GgmlType::q4_1}}},
      {GgmlType::q4_K,
       {{"output.weight", GgmlType::q6_K},
        {"attn_v.weight", GgmlType::q6_K},
        {"0.ffn_down.weight", GgmlType::q8_0},
        {"1.ffn_down.weight", GgmlType::q5_0}}},
      {GgmlType::q5_K,
       {{"output.weight", GgmlType::q6_K}, {"0.attn_v.weight", GgmlType::q6_K}, {"ffn_down.weight", GgmlType::q5_1}}},
      {GgmlType::q6_K, {{"ffn_down.weight", GgmlType::q8_0}}},
      {GgmlType::q3_K,
       {{"output.weight", GgmlType::q6_K}, {"attn_v.weight", GgmlType::q5_K}, {"ffn_down.weight", GgmlType::iq4_nl}}},
      {GgmlType::q2_K,
       {{"attn_v.weight", GgmlType::q3_K},
        {"ffn_gate.weight", GgmlType::iq4_xs},
        {"ffn_down.weight", GgmlType::iq4_nl}}},
      {GgmlType::iq3_s,
       {{"attn_q.weight", GgmlType::iq2_xxs},
        {"attn_v.weight", GgmlType::iq3_xxs},
        {"attn_output.weight", GgmlType::iq1_s},
        {"ffn_gate.weight", GgmlType::iq2_xs},
        {"ffn_up.weight", GgmlType::iq2_s},
        {"ffn_down.weight", GgmlType::iq4_nl}}},
      {GgmlType::iq4_nl,
       {{"output.weight", GgmlType::q5_K}, {"attn_k.weight", GgmlType::bf16}, {"ffn_gate.weight", GgmlType::mxfp4}}}};
  std::uint64_t number = 0;
  for (const Mix& mix : mixes) {
    TinyModel tiny{.type = mix.type, .tied = false, .seed = testing::seed() + number++};
    if (tiny.seed % 4 != 0 && compiles_slowly()) continue;
    tiny.width = 256, tiny.head = 64, tiny.types = mix.others;
    const auto bytes = tiny.writer().bytes();
    check_model(GgufFile::parse(bytes, "mixed"), GetParam(), some_tokens(33, 203),
                std::string(ggml_type_info(mix.type)->name) + " with others");
  }
}

// Rounding could change the choice of experts. With quantised weights, all experts are therefore used.
TEST_P(OnEveryDevice, ModelsWithExpertsMatchReference) {
  for (const auto& [type, experts, used] : {std::tuple(GgmlType::f32, 6u, 2u), {GgmlType::q8_0, 3u, 3u}}) {
    TinyModel tiny{.type = type, .types = {{"ffn_gate_inp.weight", GgmlType::f32}}};
    if (type == GgmlType::q8_0) tiny.types["ffn_up_exps.weight"] = GgmlType::mxfp4;
    tiny.seed = testing::seed() + experts, tiny.experts = experts, tiny.used_experts = used;
    const auto bytes = tiny.writer().bytes();
    check_model(GgufFile::parse(bytes, "experts"), GetParam(), some_tokens(40, 203),
                fmt::format("{} of {} experts, {}", used, experts, ggml_type_info(type)->name));
  }
}

TEST(Experts, WrongShapesAreRejected) {
  TinyModel tiny{.hidden = 152, .experts = 2, .used_experts = 1};  // not a whole number of groups of rows
  const auto bytes = tiny.writer().bytes();
  test::expect_throw<FormatError>(
      [&] {
        Llama::load(GgufFile::parse(bytes, "experts"), Device{Backend::cpu, 0});
      },
      {"blk.0.ffn_gate_exps.weight", "the rows of an expert are not a multiple of 16"});
}

// Models of two layers, which may be on two devices. Besides the layers, a step reads the embedding, normalises the
// last sum and computes logits. Each part before the last one also adds up its result. Norms after attention and after
// the feed-forward layer are one launch each. No product of one token uses a vendor's library.
TEST_P(OnEveryDevice, LayerOfOneTokenHasNineLaunchesOnGpus) {
  const auto combines = [](Device device) {
    const ops::Tiles tiles = ops::tiles_of(device);
    return ops::combines_operations(tiles) && tiles.subgroup >= 16 && tiles.rows >= 32 && tiles.block_limit >= 512;
  };
  if (!combines(GetParam()))
    GTEST_SKIP()
        << "this device does not combine the operations of a layer; passed by: llm_test_cuda_1 and llm_test_rocm_2";
  const auto count_launches = [&](Device last, const std::string& architecture, GgmlType type) {
    const TinyModel tiny{
        .architecture = architecture, .type = type, .seed = testing::seed(), .head = 64, .hidden = 192};
    const bool post_norms = architecture == "gemma2" || architecture == "gemma3";
    GgufWriter writer = tiny.writer();
    const bool scales = architecture == "granite";
    if (scales) writer.set("granite.residual_scale", 0.25f).set("granite.logit_scale", 3.0f);
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      const auto add_norm = [&](const char* name, std::uint64_t size) {
        writer.add_tensor(layer + name, {size}, std::vector<float>(size, 1));
      };
      if (post_norms) add_norm("post_attention_norm.weight", tiny.width), add_norm("post_ffw_norm.weight", tiny.width);
      if (architecture == "gemma3")
        add_norm("attn_q_norm.weight", tiny.head), add_norm("attn_k_norm.weight", tiny.head);
    }
    const auto bytes = writer.bytes();
    const std::vector<Device> layers = {GetParam(), last};
    const Llama model = Llama::load(GgufFile::parse(bytes, "tiny"), layers);
    KeyValueCache cache = model.make_cache(512);
    // Gemma also scales the embedding, and Gemma 2 limits the logits. Granite's scales only change the embedding.
    const std::uint64_t want =
        (post_norms ? 2 * 11 : 2 * 9) + 3u + (last != GetParam()) + (post_norms || scales) + (architecture == "gemma2");
    for (const std::int32_t token : {1, 2}) {
      const Placement placement;
      model.forward(std::span(&token, 1), cache).eval();
      std::uint64_t launches = 0;
      std::string names;
      for (const auto& k : placement.log().kernels) {
        launches += k.launches;
        names += k.kernel + " (" + to_string(k.device) + ", " + std::to_string(k.launches) + ") ";
      }
      EXPECT_EQ(launches, want) << architecture << " on " << to_string(last) << ": " << names;
      EXPECT_EQ(names.find(": product"), names.npos) << names;
    }
  };
  for (const Device last : testing::all_devices())
    if (last.backend == GetParam().backend && combines(last))
      for (const char* architecture : {"qwen2", "gemma2", "gemma3", "granite"})
        for (const GgmlType type : {GgmlType::f16, GgmlType::q8_0}) count_launches(last, architecture, type);
}

TEST_P(OnEveryDevice, RecordedStepsAreBitIdenticalToForward) {
  int number = 0;
  for (GgmlType type : {GgmlType::f32, GgmlType::f16, GgmlType::q8_0, GgmlType::q4_0})
    for (const DType dtype : {DType::f32, DType::f16, DType::i8}) {
      if (dtype == DType::i8 && type != GgmlType::q8_0) continue;
      TinyModel tiny{.architecture = number % 2 == 0 ? "qwen2" : "llama",
                     .type = type,
                     .linear_scaling = number % 3 == 1,
                     .factors = number % 4 == 2,
                     .biases = number % 3 == 2,
                     .seed = testing::seed() + static_cast<std::uint64_t>(++number)};
      if (dtype == DType::i8) tiny.head = 64;
      const auto bytes = tiny.writer().bytes();
      const Llama model = Llama::load(GgufFile::parse(bytes, "tiny"), GetParam());
      const std::vector<std::int32_t> prompt = some_tokens(5, 203), text = some_tokens(15, 203);
      KeyValueCache forward_cache = model.make_cache(20, dtype), cache = model.make_cache(20, dtype);
      model.forward(prompt, forward_cache), model.forward(prompt, cache);
      Decoder decoder(model, cache);
      EXPECT_FALSE(decoder.sequence().valid());
      for (std::size_t t = 0; t < text.size(); ++t) {
        const auto want = model.forward(std::span(text).subspan(t, 1), forward_cache).to_vector<float>();
        ASSERT_EQ(decoder.step(text[t]).to_vector<float>(), want) << "model " << number << ", token " << t;
      }
      EXPECT_TRUE(decoder.sequence().valid());
      EXPECT_EQ(cache.length(), 20);
      expect_contains(text_of<ArgumentError>([&] { decoder.step(1); }), {"do not fit into the cache", "20"});
      expect_contains(text_of<ArgumentError>([&] { decoder.step(203); }), {"token"});
      EXPECT_EQ(cache.length(), 20);
    }
}

TEST_P(OnEveryDevice, DecoderDetectsThatItsCacheWasReplaced) {
  const auto bytes = TinyModel{.seed = testing::seed()}.writer().bytes();
  const Llama model = Llama::load(GgufFile::parse(bytes, "tiny"), GetParam());
  const std::vector<std::int32_t> text = some_tokens(12, 203);
  KeyValueCache cache = model.make_cache(8), forward_cache = model.make_cache(20);
  Decoder decoder(model, cache);
  for (int i = 0; i < 4; ++i) decoder.step(text[static_cast<std::size_t>(i)]);
  cache = model.make_cache(20);
  model.forward(std::span(text).first(6), cache), model.forward(std::span(text).first(6), forward_cache);
  for (std::size_t t = 6; t < text.size(); ++t)
    ASSERT_EQ(decoder.step(text[t]).to_vector<float>(),
              model.forward(std::span(text).subspan(t, 1), forward_cache).to_vector<float>())
        << "token " << t;
}

TEST_P(OnEveryDevice, DecoderUsesTheCurrentQueue) {
  const auto bytes = TinyModel{.seed = testing::seed()}.writer().bytes();
  const Llama model = Llama::load(GgufFile::parse(bytes, "tiny"), GetParam());
  const std::vector<std::int32_t> text = some_tokens(12, 203);
  KeyValueCache cache = model.make_cache(20), forward_cache = model.make_cache(20);
  Decoder decoder(model, cache);
  Queue& standard = Queue::of(GetParam());
  const auto step = [&](std::size_t t) {
    ASSERT_EQ(decoder.step(text[t]).to_vector<float>(),
              model.forward(std::span(text).subspan(t, 1), forward_cache).to_vector<float>())
        << "token " << t;
  };
  for (std::size_t t = 0; t < 3; ++t) step(t);
  {
    Queue own(GetParam());
    const QueueScope scope(own);
    const std::uint64_t before = standard.core().last_use().sequence;
    for (std::size_t t = 3; t < 7; ++t) step(t);
    EXPECT_EQ(standard.core().last_use().sequence, before) << "a step was submitted to another queue";
  }
  for (std::size_t t = 7; t < text.size(); ++t) step(t);  // continue after the other queue was destroyed
}

// The second model has a layer on another device, so that its steps are two recordings.
TEST_P(OnEveryDevice, SeveralDecodersCanBeInterleaved) {
  std::vector<std::vector<std::byte>> files;
  std::vector<Llama> models;
  const Device other{GetParam().backend == Backend::cpu ? Backend::interp : Backend::cpu, 0};
  for (std::uint64_t i = 0; i < 2; ++i) {
    files.push_back(
        TinyModel{.type = i == 0 ? GgmlType::q8_0 : GgmlType::f32, .seed = testing::seed() + i}.writer().bytes());
    const std::vector<Device> layers = {GetParam(), i == 0 ? GetParam() : other};
    models.push_back(Llama::load(GgufFile::parse(files.back(), "tiny"), layers));
  }
  struct Text {
    const Llama& model;
    KeyValueCache cache, forward_cache;
    Decoder decoder;
    std::vector<std::int32_t> tokens;
    Text(const Llama& m, std::int64_t capacity, std::vector<std::int32_t> t)
        : model(m),
          cache(m.make_cache(capacity)),
          forward_cache(m.make_cache(capacity)),
          decoder(m, cache),
          tokens(std::move(t)) {}
  };
  // Interleave two texts of the first model and one of the second. Each text is at a different position.
  std::vector<std::unique_ptr<Text>> texts;
  for (std::size_t i = 0; i < 3; ++i)
    texts.push_back(std::make_unique<Text>(models[i % 2], 40 + static_cast<std::int64_t>(i),
                                           some_tokens(60 + static_cast<std::int64_t>(i), 203)));
  for (std::size_t i = 0; i < 3; ++i) {  // each text starts with a different number of tokens
    const auto first = std::span(texts[i]->tokens).first(3 * i + 1);
    texts[i]->model.forward(first, texts[i]->cache), texts[i]->model.forward(first, texts[i]->forward_cache);
  }
  for (std::size_t step = 0; step < 50; ++step)
    for (std::size_t i = 0; i < 3; ++i) {
      if (step % (i + 2) == 1) continue;
      Text& t = *texts[i];
      if (t.cache.length() == t.cache.capacity()) break;
      if (step == 9 && i == 1) t.cache.truncate(4), t.forward_cache.truncate(4);  // continue from a shorter text
      if (step == 12 && i == 2) {  // read several tokens in one call between two steps
        const auto more = std::span(t.tokens).first(5);
        t.model.forward(more, t.cache), t.model.forward(more, t.forward_cache);
      }
      const std::int32_t token = t.tokens[step];
      const auto want = t.model.forward(std::span(&token, 1), t.forward_cache).to_vector<float>();
      ASSERT_EQ(t.decoder.step(token).to_vector<float>(), want) << "text " << i << ", step " << step;
    }
  for (const auto& t : texts) {
    EXPECT_TRUE(t->decoder.sequence().valid());
    if (t->model.layer_devices()[1] != GetParam()) {
      EXPECT_TRUE(t->decoder.sequence(1).valid());
    }
  }
}

// This text is similar to the training data, so that the logits are realistic.
const char* const sentence =
    "The CREATE INDEX command builds an index on the specified columns of the table. Indexes are primarily used to "
    "enhance "
    "database performance, though inappropriate use can result in slower performance. The key fields for the index are "
    "given "
    "as column names, or alternatively as expressions written in parentheses.";

TEST_P(OnEveryDevice, ShippedModelsMatchReferenceFor64Tokens) {
  for (const char* name : {"models/pgdocs-2m-f16.gguf", "models/pgdocs-2m-q8_0.gguf"}) {
    const GgufFile file = GgufFile::open(name);
    auto tokens = Tokenizer(file).encode(sentence);
    ASSERT_GE(tokens.size(), 64u);
    tokens.resize(GetParam().backend == Backend::interp && GetParam().index > 0 ? 40 : 64);  // they are slow
    check_model(file, GetParam(), tokens, name);
  }
}

TEST_P(OnEveryDevice, GreedyTextIsTheSameOnEveryDevice) {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 24;
  options.cache_dtype = DType::f32;
  const auto here =
      LanguageModel::load("models/pgdocs-2m-f16.gguf", GetParam()).generate("The VACUUM command", options);
  const auto there =
      LanguageModel::load("models/pgdocs-2m-f16.gguf", Device{Backend::cpu, 0}).generate("The VACUUM command", options);
  EXPECT_EQ(here.text, there.text);
  EXPECT_EQ(here.tokens.size(), 24u);
}

TEST_P(OnEveryDevice, TokensDoNotDependOnWhereTheLargestLogitsAreSelected) {
  const SamplerOptions all_options[] = {
      {.temperature = 0},
      {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .seed = 3},
      {.temperature = 1.2, .top_k = 256, .top_p = 0.9, .seed = 4, .min_p = 0.01, .repeat_penalty = 1.3},
      {.temperature = 1, .top_k = 5, .top_p = 1, .frequency_penalty = 0.5, .logit_bias = {{7, -100.0}}},
      {.temperature = 0, .presence_penalty = 1}};
  for (const std::int64_t vocabulary : {203, 5000, 20001})
    for (const SamplerOptions& options : all_options) {
      Sampler there(options), here(options);
      FetchedLogits part, all;
      std::vector<std::int32_t> before;
      for (int step = 0; step < 4; ++step) {
        std::vector<float> values = numbers(vocabulary, -9, 9);
        for (float& v : values) v = step % 2 == 0 ? std::rint(v) : v;  // with equal logits
        const Array logits = Array::from(values, Shape{1, vocabulary});
        part.fetch(logits, there, false), all.fetch(logits, here, true);
        before.push_back(all.sample(here, before));
        ASSERT_EQ(part.sample(there, std::span(before).first(before.size() - 1)), before.back())
            << vocabulary << " tokens, step " << step << ", TESSERA_TEST_SEED=" << testing::seed();
      }
    }
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> values(5000, 1);
    values[4321] = bad;
    for (const double temperature : {0.0, 1.0}) {
      Sampler sampler({.temperature = temperature});
      FetchedLogits logits;
      logits.fetch(Array::from(values), sampler, false);
      expect_contains(text_of<ArgumentError>([&] { logits.sample(sampler, {}); }), {"index = 4321", "NaN or infinite"});
    }
  }
}

TEST_P(OnEveryDevice, OnlyTheNeededLogitsAreDownloaded) {
  const auto model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", GetParam());
  const auto vocabulary = static_cast<std::uint64_t>(model.model().config().vocabulary);
  struct Case {
    SamplerOptions sampling;
    std::uint64_t bytes;  ///< of each token, if the device selects logits
  };
  const Case cases[] = {{{.temperature = 0}, 4},
                        {{.seed = 1}, 8 * 41},
                        {{.seed = 2, .repeat_penalty = 1.1}, 8 * (41 + 64)},
                        {{.top_k = 0, .seed = 3}, 4 * vocabulary}};
  for (const auto& [sampling, selected] : cases) {
    const std::uint64_t bytes = is_built_in(GetParam().backend) ? 4 * vocabulary : selected;  // it has 2048 tokens
    GenerateOptions options{.sampling = sampling, .max_tokens = 12};
    GenerateResult result;
    std::uint64_t downloaded = 0;
    {
      const Placement placement;
      result = model.generate("The VACUUM command", options);
      for (const auto& copies : placement.log().copies) downloaded += copies.to_host_bytes;
    }
    const std::uint64_t chosen = result.tokens.size() + (result.reason == StopReason::end_token);
    EXPECT_EQ(downloaded, bytes * chosen) << bytes << " bytes for each of " << chosen << " tokens";
    options.log_probabilities = 0;  // downloads all logits
    EXPECT_EQ(model.generate("The VACUUM command", options).tokens, result.tokens) << bytes;
  }
}

// Greedy steps may be started before the host knows their token. Log probabilities prevent this.
TEST_P(OnEveryDevice, StepsAheadDoNotChangeHowTextsEnd) {
  const auto model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", GetParam());
  const auto prompt = model.tokenizer().encode("The VACUUM command");
  GenerateOptions options{.sampling = {.temperature = 0}, .max_tokens = 20, .cache_dtype = DType::f32};
  const GenerateResult whole = model.generate(prompt, options);
  ASSERT_EQ(whole.tokens.size(), 20u);
  TextSession ahead(model, 512, DType::f32), plain(model, 512, DType::f32);
  // The text ends after `pieces` calls of the callback or `checks` calls of `cancelled`, if they are not 0.
  const auto compare = [&](const GenerateOptions& how, StopReason reason, int pieces = 0, int checks = 0) {
    const auto run = [&](TextSession& session, bool plainly) {
      GenerateOptions o = how;
      int seen = 0, checked = 0;
      if (plainly) o.log_probabilities = 0;
      o.cancelled = [&] { return ++checked == checks; };
      return session.generate(prompt, o, [&](std::string_view) { return ++seen != pieces; });
    };
    const GenerateResult a = run(ahead, false), b = run(plain, true);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.text, b.text);
    EXPECT_EQ(a.reason, reason);
    EXPECT_EQ(b.reason, reason);
    EXPECT_TRUE(std::ranges::equal(ahead.tokens(), plain.tokens()));
  };
  for (const std::int64_t most : {20, 1, 2, 3, 7}) {
    GenerateOptions some = options;
    some.max_tokens = most;
    compare(some, StopReason::max_tokens);
  }
  GenerateOptions stopped = options;
  stopped.stop = {whole.text.substr(whole.text.size() / 2, 4)};
  compare(stopped, StopReason::stop_text);
  for (const int pieces : {1, 5}) compare(options, StopReason::cancelled, pieces);
  for (const int checks : {2, 3, 8}) compare(options, StopReason::cancelled, 0, checks);
  // The fifth token is emitted after the sixth was started, if the host can wait for one download only.
  StagedDownload download;
  const Array number = Array::ones({1});
  const bool waits = !start_download(download, current_queue(GetParam()), number.view());
  std::uint64_t seen = 0, started = 0;
  {
    const Placement placement;
    ahead.generate(prompt, options, [&](std::string_view) {
      if (++seen != 5) return true;
      for (const auto& k : placement.log().kernels) started += k.kernel.starts_with("finite_argmax") ? k.launches : 0;
      return false;
    });
  }
  EXPECT_EQ(started, is_built_in(GetParam().backend) ? 0u : waits ? 5u : 6u);
  // An exception from the callback leaves the session usable.
  int pieces = 0;
  const auto throws = [&](std::string_view) {
    if (++pieces == 6) throw std::runtime_error("no");
    return true;
  };
  EXPECT_THROW(ahead.generate(prompt, options, throws), std::runtime_error);
  compare(options, StopReason::max_tokens);
  // The context ends while steps are ahead.
  const auto context = static_cast<std::int64_t>(prompt.size()) + 6;
  TextSession small(model, context, DType::f32, TextSession::Memory::at_once);
  const GenerateResult full = small.generate(prompt, options);
  EXPECT_EQ(full.reason, StopReason::context_full);
  EXPECT_TRUE(std::ranges::equal(full.tokens, std::span(whole.tokens).first(6)));
  EXPECT_EQ(small.tokens().size(), static_cast<std::size_t>(context) - 1) << "the last token is not read";
}

TEST(LanguageModels, StreamWholeCharactersAndCanBeStopped) {
  const auto model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", Device{Backend::cpu, 0});
  GenerateOptions options;
  options.sampling.seed = 7;
  options.max_tokens = 40;
  std::string streamed;
  const auto result = model.generate("An index", options, [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(model.generate("An index", options).text, result.text) << "same seed, same text";
  int pieces = 0;
  const auto stopped = model.generate("An index", options, [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(stopped.reason, StopReason::cancelled);
  EXPECT_LT(stopped.tokens.size(), result.tokens.size());
  options.context = static_cast<std::int64_t>(result.prompt_tokens.size()) + 5;
  options.sampling.temperature = 0;
  const auto full = model.generate("An index", options);
  EXPECT_TRUE(full.reason == StopReason::context_full || full.reason == StopReason::end_token);
  EXPECT_LE(full.tokens.size(), 5u);
}

GgufFile parse(const std::vector<std::byte>& bytes) { return GgufFile::parse(bytes, "tiny.gguf"); }

TEST(BadModels, ErrorsNameKeyOrTensor) {
  const Device cpu{Backend::cpu, 0};
  TinyModel tiny;
  {
    tiny.architecture = "mamba";
    const auto bytes = tiny.writer().bytes();
    expect_contains(text_of<FormatError>([&] { Llama::load(parse(bytes), cpu); }),
                    {"mamba", "llama", "qwen2", "tiny.gguf"});
    tiny.architecture = "llama";
  }
  {
    GgufWriter w = tiny.writer();
    const auto good = w.bytes();
    EXPECT_NO_THROW(Llama::load(parse(good), cpu));
  }
  {  // a matrix of a type that can be parsed but is not supported
    GgufWriter w;
    w.set("general.architecture", std::string("llama")).set("llama.context_length", std::uint32_t{64});
    w.set("llama.embedding_length", std::uint32_t{256})
        .set("llama.block_count", std::uint32_t{1})
        .set("llama.feed_forward_length", std::uint32_t{256});
    w.set("llama.attention.head_count", std::uint32_t{4});
    std::vector<std::byte> data(54 * 8);
    w.add_tensor("token_embd.weight", {256, 8}, GgmlType::tq1_0, data);
    const auto bytes = w.bytes();
    expect_contains(text_of<FormatError>([&] { Llama::load(parse(bytes), cpu); }),
                    {"token_embd.weight", "tq1_0", "q8_0", "q4_K"});
  }
  {  // tensors that do not match the metadata, and missing tensors
    GgufWriter w;
    w.set("general.architecture", std::string("llama")).set("llama.context_length", std::uint32_t{64});
    w.set("llama.embedding_length", std::uint32_t{64})
        .set("llama.block_count", std::uint32_t{1})
        .set("llama.feed_forward_length", std::uint32_t{64});
    w.set("llama.attention.head_count", std::uint32_t{4});
    w.add_tensor("token_embd.weight", {32, 8}, std::vector<float>(256));
    const auto bytes = w.bytes();
    expect_contains(text_of<FormatError>([&] { Llama::load(parse(bytes), cpu); }),
                    {"token_embd.weight", "(32, 8)", "(64, 8)"});
  }
  {
    GgufWriter w = tiny.writer();
    w.set("llama.rope.scaling.type", std::string("dynamic"));
    const auto bytes = w.bytes();
    expect_contains(text_of<FormatError>([&] { Llama::load(parse(bytes), cpu); }),
                    {"llama.rope.scaling.type", "dynamic"});
  }
  // Unknown keys are rejected with their name. Keys that have no effect are accepted.
  const auto with = [&](const std::string& key, GgufValue value) {
    GgufWriter w = tiny.writer();
    w.set(key, std::move(value));
    return w.bytes();
  };
  for (const std::string key : {"llama.attention.scale", "llama.new_key", "llama.expert_group_count", "split.count"}) {
    const auto bytes = with(key, std::uint32_t{2});
    expect_contains(text_of<FormatError>([&] { read_llama_config(parse(bytes)); }), {"tiny.gguf", key});
  }
  for (const auto& [key, value] : {std::pair<std::string, GgufValue>{"llama.vocab_size", std::uint32_t{203}},
                                   {"llama.expert_count", std::uint32_t{0}},
                                   {"general.quantization_version", std::uint32_t{2}},
                                   {"llama.rope.scaling.attn_factor", 1.0f}}) {
    const auto bytes = with(key, value);
    EXPECT_NO_THROW(read_llama_config(parse(bytes))) << key;
  }
  {
    const auto bytes = with("llama.rope.scaling.attn_factor", 1.5f), bad = with("llama.rope.scaling.attn_factor", 0.0f);
    EXPECT_EQ(read_llama_config(parse(bytes)).rotary.magnitude, 1.5f);
    expect_contains(text_of<FormatError>([&] { read_llama_config(parse(bad)); }),
                    {"llama.rope.scaling.attn_factor", "is not between"});
    const auto adapter = with("general.type", std::string("adapter"));
    expect_contains(text_of<FormatError>([&] { read_llama_config(parse(adapter)); }), {"LoRA adapter"});
  }
  for (const std::string name : {"blk.0.attn_q_norm.weight", "blk.7.ffn_up.weight", "output.bias"}) {
    GgufWriter w = tiny.writer();
    w.add_tensor(name, {96}, std::vector<float>(96));
    const auto bytes = w.bytes();
    expect_contains(text_of<FormatError>([&] { read_llama_config(parse(bytes)); }),
                    {"tiny.gguf", name, "is not supported"});
  }
  // Old files use a different key for linear scaling, or omit the type. Both are accepted, as in llama.cpp.
  for (const auto& [key, scale] : {std::pair{"llama.rope.scale_linear", 0.25f}, {"llama.rope.scaling.factor", 0.25f}}) {
    const auto bytes = with(key, 4.0f);
    EXPECT_EQ(read_llama_config(parse(bytes)).rotary.scale, scale) << key;
  }
  {
    const auto bytes = with("llama.rope.scaling.type", std::string("linear"));
    EXPECT_EQ(read_llama_config(parse(bytes)).rotary.scale, 1.0f);
  }
  // With these values, rotary frequencies or norms would not be finite.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::string base = "llama.rope.freq_base", epsilon = "llama.attention.layer_norm_rms_epsilon",
                    factor = "llama.rope.scaling.factor";
  for (const auto& [key, values] : {std::pair{base, std::vector{1e-45f, 0.0f, -1.0f, inf, nan}},
                                    {epsilon, {1e-45f, 0.0f, -1e-5f, 2.0f, inf, nan}},
                                    {factor, {1e-45f, 0.0f, -2.0f, 1e38f, inf, nan}}})
    for (const float value : values) {
      TinyModel model = tiny;
      model.linear_scaling = true;
      auto bytes = model.writer().bytes();
      const auto at = std::search(bytes.begin(), bytes.end(), key.begin(), key.end(),
                                  [](std::byte b, char c) { return static_cast<char>(b) == c; });
      ASSERT_NE(at, bytes.end());
      std::memcpy(&*at + key.size() + 4, &value, 4);  // the value follows the key and the type id
      expect_contains(text_of<FormatError>([&] { read_llama_config(parse(bytes)); }), {key, "is not between"});
    }
}

TEST(BadModels, DamagedFilesLoadOrThrow) {
  const auto whole = TinyModel{}.writer().bytes();
  std::mt19937_64 random(testing::seed());
  for (int i = 0; i < 300; ++i) {
    auto bytes = whole;
    if (i % 2)
      bytes.resize(random() % bytes.size());
    else
      bytes[random() % std::min<std::size_t>(bytes.size(), 3000)] ^= static_cast<std::byte>(1 + random() % 255);
    try {
      const GgufFile file = GgufFile::parse(bytes, "altered");
      const Llama model = Llama::load(file, Device{Backend::cpu, 0});
      EXPECT_GT(model.config().layers, 0);  // the damage had no effect on the structure
    } catch (const Error& e) {
      EXPECT_GT(std::string(e.what()).size(), 10u);
    }
  }
}

TEST(BadRequests, ErrorsStateTheCause) {
  const auto model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", Device{Backend::cpu, 0});
  GenerateOptions options;
  options.context = 4;
  expect_contains(
      text_of<ArgumentError>([&] { model.generate("A prompt of more than four tokens, surely.", options); }),
      {"the prompt is longer than the context", "context = 4", "1024"});
  options.context = 5000;
  expect_contains(text_of<ArgumentError>([&] { model.generate("A", options); }), {"5000", "1024"});
  // load() rejects an invalid prompt with the same message before it loads weights.
  bool accepted = false, loads = false;
  LoadOptions load{.devices = {Device{Backend::cpu, 0}},
                   .progress = [&](const auto&...) { loads = true; },
                   .prompt = "A",
                   .generate = options,
                   .accepted = [&] { accepted = true; }};
  const auto refused = [&] {
    return text_of<ArgumentError>([&] { LanguageModel::load("models/pgdocs-2m-q8_0.gguf", load); });
  };
  EXPECT_EQ(refused(), text_of<ArgumentError>([&] { model.generate("A", options); }));
  load.generate = {.sampling = {.temperature = std::nan("")}};
  expect_contains(refused(), {"temperature = nan"});
  load.generate = {.batch = 0};
  expect_contains(refused(), {"batch = 0"});
  EXPECT_FALSE(accepted || loads);
  load.generate = {.max_tokens = 1};
  LanguageModel::load("models/pgdocs-2m-q8_0.gguf", load);
  EXPECT_TRUE(accepted && loads);
  expect_contains(text_of<DeviceError>([&] {
                    LanguageModel::load("models/pgdocs-2m-q8_0.gguf", Device{Backend::cuda, 3});
                  }),
                  {"cuda:3", "cpu:0"});
  KeyValueCache cache(model.model().config(), 2, Device{Backend::cpu, 0});
  const std::int32_t wrong[] = {99999}, three[] = {1, 2, 3};
  expect_contains(text_of<ArgumentError>([&] { model.model().forward(wrong, cache); }), {"99999", "2048"});
  expect_contains(text_of<ArgumentError>([&] { model.model().forward(three, cache); }), {"3", "2"});
  EXPECT_EQ(cache.length(), 0);
}

TEST_P(OnEveryDevice, ModelLargerThanMemoryLimitIsRejectedCleanly) {
  const Device device = GetParam();
  trim(device);
  const auto before = memory_stats(device).live_bytes;
  set_memory_limit(device, before + (std::uint64_t{1} << 20));
  const std::string text = text_of<OutOfMemory>([&] { LanguageModel::load("models/pgdocs-2m-f16.gguf", device); });
  expect_contains(text, {to_string(device).c_str()});
  EXPECT_EQ(memory_stats(device).live_bytes, before) << "the partially loaded model was freed";
  set_memory_limit(device, 0);
  const DeviceScope scope(device);
  EXPECT_EQ(sum(Array::ones({1000})).item<float>(), 1000.f);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 4;
  EXPECT_EQ(LanguageModel::load("models/pgdocs-2m-f16.gguf", device).generate("A table", options).tokens.size(), 4u);
}

}  // namespace
}  // namespace tessera
