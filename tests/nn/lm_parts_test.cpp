// SPDX-License-Identifier: Apache-2.0
// The parts of `tessera train lm`: splitting and tokenizing text, n-gram models, and the network. The saved network
// must compute the same logits. train_lm_test.cpp tests the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>

#include "app/train/lm_model.h"
#include "app/train/lm_ngrams.h"
#include "app/train/lm_text.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using namespace app;
using test::expect_throw;
using test::OnEveryDevice;

std::string some_text(std::mt19937_64& random, std::size_t documents) {
  std::string out;
  for (std::size_t d = 0; d < documents; ++d) {
    if (d > 0) out += "\n<|endoftext|>\n";
    for (std::size_t lines = 1 + random() % 30; lines-- > 0;) {
      for (std::size_t words = random() % 12; words-- > 0;)
        out += std::vector<std::string>{"one ", "two ", "größer ", "漢字 ", "ends. "}[random() % 5];
      out += random() % 4 == 0 ? "\n\n" : "\n";
    }
  }
  return out;
}
std::string without_white(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\n') out += c;
  return out;
}

TEST(LmText, SplitsTheWholeTextIntoTrainingAndHeldOutParts) {
  std::mt19937_64 random(testing::seed());
  for (const std::size_t documents : {1, 3, 400}) {
    std::string text = some_text(random, documents);
    while (text.size() < 20'000) text += some_text(random, 1);
    const SplitText split = split_text(text);
    std::map<const char*, std::string_view> parts;
    std::size_t held_out = 0, all = 0;
    for (const auto& list : {split.training, split.held_out})
      for (const std::string_view part : list) parts.emplace(part.data(), part), all += part.size();
    for (const std::string_view part : split.held_out) held_out += part.size();
    std::string joined, whole;
    for (const auto& [at, part] : parts) joined += part;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(end_of_text, at), text.size());
      whole += text.substr(at, end - at), at = end + end_of_text.size();
    }
    EXPECT_TRUE(without_white(joined) == without_white(whole)) << documents << " documents";
    EXPECT_EQ(parts.size(), split.training.size() + split.held_out.size());
    EXPECT_GT(held_out, all / 40) << documents;
    EXPECT_LT(held_out, all / 12) << documents;
  }
  // Text without spaces is split between characters.
  const std::string line = [] {
    std::string out;
    while (out.size() < 9000) out += "漢";
    return out;
  }();
  const SplitText split = split_text(line);
  ASSERT_FALSE(split.held_out.empty());
  for (const auto& list : {split.training, split.held_out})
    for (const std::string_view part : list) EXPECT_EQ(part.size() % 3, 0u);
  EXPECT_TRUE(split_text("").training.empty());
  EXPECT_TRUE(split_text(" \n<|endoftext|>\n").training.empty());
}

TEST(LmText, TokenStreamsContainParagraphStarts) {
  const std::vector<std::string_view> texts = {"One.\nstill one\n\nTwo.", "Three."};
  const auto trained = train_tokenizer(texts, {.vocabulary = 257});
  const Tokenizer tokenizer = trained.tokenizer();
  const TokenStream stream = token_stream(texts, tokenizer);
  std::string starts;
  for (const std::size_t at : stream.starts) starts += tokenizer.decode(stream.tokens[at]);
  EXPECT_EQ(starts, "OTT");
  EXPECT_EQ(stream.bytes, texts[0].size() + texts[1].size());
  EXPECT_EQ(stream.tokens.size(), stream.bytes + 3);
  EXPECT_EQ(stream.tokens.front(), trained.end_of_text);
  EXPECT_EQ(stream.tokens.back(), trained.end_of_text);
}

TEST(LmText, WindowsDependOnlyOnSeedAndStep) {
  TokenStream stream;
  for (std::int32_t i = 0; i < 500; ++i) stream.tokens.push_back(i);
  stream.starts = {1, 100, 300, 495};  // the last start is too close to the end
  std::set<std::vector<std::int32_t>> different;
  std::set<std::int32_t> first_tokens;
  for (const std::uint64_t seed : {1, 2})
    for (std::uint64_t step = 0; step < 300; ++step) {
      const auto all = windows(stream, 999, seed, step, 8, 16);
      ASSERT_EQ(all, windows(stream, 999, seed, step, 8, 16));
      ASSERT_EQ(all.size(), 8u * 17);
      different.insert(all);
      for (std::size_t i = 0; i < 8; ++i) {
        const std::int32_t* w = all.data() + i * 17;
        if (i % 4 == 0) {
          ASSERT_EQ(w[0], 999);
          ASSERT_TRUE(w[1] == 1 || w[1] == 100 || w[1] == 300) << w[1];
        } else {
          first_tokens.insert(w[0]);
          ASSERT_EQ(w[1], w[0] + 1);
        }
        for (int k = 2; k < 17; ++k) ASSERT_EQ(w[k], w[1] + k - 1);
        ASSERT_LT(w[16], 500);
      }
    }
  EXPECT_EQ(different.size(), 600u);
  EXPECT_EQ(*first_tokens.begin(), 0);
  EXPECT_EQ(*first_tokens.rbegin(), 483);  // the window of this token ends with the last token
}

TEST(LmText, EvaluatesEachTokenOnceWithAtLeastHalfAWindowOfContext) {
  for (const std::int64_t total : {2, 7, 8, 9, 10, 33, 100})
    for (const std::int64_t length : {2, 7, 8}) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i < total; ++i) tokens.push_back(1000 + i);
      const MeasuredWindows w = measured_windows(tokens, length, 0);
      ASSERT_EQ(w.inputs.size(), static_cast<std::size_t>(w.count * length));
      std::vector<int> seen(tokens.size());
      for (std::size_t i = 0; i < w.targets.size(); ++i) {
        if (w.targets[i] == ignore_index) continue;
        const auto token = static_cast<std::size_t>(w.targets[i] - 1000);
        ASSERT_EQ(w.inputs[i], w.targets[i] - 1);
        ++seen[token];
        const auto context = static_cast<std::int64_t>(i) % length + 1;
        ASSERT_GE(context, std::min<std::int64_t>(static_cast<std::int64_t>(token), length / 2));
      }
      ASSERT_EQ(seen[0], 0);
      for (std::size_t i = 1; i < seen.size(); ++i) ASSERT_EQ(seen[i], 1) << total << " " << length << " " << i;
      ASSERT_EQ(w.counted, total - 1);
      ASSERT_LE(measured_windows(tokens, length, 2).count, 2);
    }
}

/// Creates 4,000 tokens of eleven kinds. Their order follows rules.
std::vector<std::int32_t> ruled_tokens() {
  std::uint64_t x = 1;
  const auto draw = [&] { return x = (x * 1103515245 + 12345) % (1u << 31), static_cast<std::int32_t>(x >> 16); };
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0, before = 0; i < 4000; ++i) {
    const std::int32_t r = draw();
    before = r % 3 == 0 ? (before * 3 + 1) % 11 : r % 3 == 1 ? r / 3 % 5 : r / 7 % 11;
    out.push_back(before);
  }
  return out;
}

TEST(LmNgrams, MatchesAnIndependentImplementation) {
  // The values were computed by an independent Python program.
  const auto tokens = ruled_tokens();
  const std::span<const std::int32_t> all(tokens);
  EXPECT_NEAR(NgramModel(all.first(3000), 3, 12).loss(all.subspan(3000)), 2030.7891421471575, 1e-6);
  EXPECT_NEAR(NgramModel(all.first(3000), 2, 12).loss(all.subspan(3000)), 1978.706571456599, 1e-6);
}

TEST(LmNgrams, ProbabilitiesSumToOne) {
  const auto tokens = ruled_tokens();
  for (const int order : {1, 2, 3}) {
    const NgramModel model(std::span<const std::int32_t>(tokens).first(700), order, 13);
    for (const std::vector<std::int32_t>& context : {std::vector<std::int32_t>{3}, {3, 7}, {0, 0}, {12, 12}, {5, 12}}) {
      double total = 0;
      for (std::int32_t next = 0; next < 13; ++next) {
        auto with = context;
        with.push_back(next);
        total += std::exp(model.loss(context) - model.loss(with));
      }
      EXPECT_NEAR(total, 1, 1e-9) << order;
    }
  }
}

LlamaNetwork small_network(std::int64_t tokens, std::uint64_t seed) {
  auto network = setup(
      LlamaNetwork{.shape = {.vocabulary = tokens, .layers = 2, .width = 64, .heads = 4, .key_heads = 2, .hidden = 96}},
      {.seed = seed});
  // Uses weights as large as after training, and norm weights other than 1.
  for (NamedArray p : parameters(network))
    p.array.assign(p.array.rank() == 1 ? random_uniform(p.array.shape(), seed, 0.5, 1.5)
                                       : random_normal(p.array.shape(), seed, 0, 0.15));
  return network;
}

TEST_P(OnEveryDevice, SavedNetworkComputesTheSameLogits) {
  const test::Folder folder;
  const std::vector<std::string_view> texts = {"A text of a few words, a text to write."};
  const TrainedTokenizer tokenizer = train_tokenizer(texts, {.vocabulary = 262});
  const auto count = static_cast<std::int64_t>(tokenizer.tokens.size());
  const LlamaNetwork network = small_network(count, testing::seed());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 24; ++i) ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(count)));
  const auto want =
      network(Array::from(std::span<const std::int32_t>(ids), Shape{1, 24})).reshape({24, -1}).to_vector<float>();
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  const double range = *high - *low;
  ASSERT_GT(range, 1);
  const std::pair<GgmlType, double> types[] = {{GgmlType::f32, 1e-4}, {GgmlType::f16, 5e-3}, {GgmlType::q8_0, 1e-1}};
  for (const auto& [type, bound] : types) {
    const std::string path = folder / "model.gguf";
    write_lm(network, 32, tokenizer, path, {.type = type, .name = "small"});
    const GgufFile file = GgufFile::open(path);
    EXPECT_EQ(file.get<std::string>("general.name"), "small");
    EXPECT_EQ(Tokenizer(file).size(), tokenizer.tokens.size());
    const Llama model = Llama::load(file, GetParam());
    EXPECT_EQ(model.config().context_length, 32);
    EXPECT_TRUE(model.config().tied);
    KeyValueCache cache(model.config(), 24, GetParam(), DType::f32);
    const auto got = model.forward(ids, cache, true).to_vector<float>();
    ASSERT_EQ(got.size(), want.size());
    double apart = 0;
    for (std::size_t i = 0; i < got.size(); ++i) apart = std::max(apart, std::abs(double(got[i]) - want[i]));
    EXPECT_LT(apart, bound * range) << ggml_type_text(type);
  }
}
TESSERA_ON_EVERY_DEVICE();

TEST(LmModel, RejectsInconsistentSizes) {
  const auto shape = [](auto change) {
    LmShape s;
    change(s);
    return s;
  };
  EXPECT_EQ(network_shape({}, 2000).head_size(), 32);
  expect_throw<ArgumentError>([&] { network_shape(shape([](LmShape& s) { s.width = 100; }), 9); },
                              {"--width 100", "6 heads", "192"});
  expect_throw<ArgumentError>([&] { network_shape(shape([](LmShape& s) { s.width = 18; }), 9); }, {"--width 18"});
  expect_throw<ArgumentError>([&] { network_shape(shape([](LmShape& s) { s.key_heads = 4; }), 9); },
                              {"--key-heads 4", "--heads 6"});
  expect_throw<ShapeError>([] { setup(LlamaNetwork{}); }, {"LlamaNetwork", "at least 1"});
  expect_throw<ShapeError>([] { small_network(9, 1)(Array::zeros({4}, DType::i32)); }, {"(batch, tokens)"});

  const LmShape odd = shape([](LmShape& s) { s.hidden = 77, s.dropout = 0.125; });
  const LmShape back = lm_shape_of(to_json(odd).dump(), "x");
  EXPECT_EQ(back.hidden, 77);
  EXPECT_EQ(back.dropout, 0.125);
  EXPECT_EQ(back.context, odd.context);
  expect_throw<FormatError>([] { lm_shape_of("{\"layers\": 4}", "m.st"); }, {"m.st", "network's sizes"});
}

TEST(LmModel, RejectsInvalidFiles) {
  const test::Folder folder;
  const std::string path = folder / "m.gguf";
  const std::vector<std::string_view> texts = {"a"};
  const TrainedTokenizer tokenizer = train_tokenizer(texts);
  const auto write = [&](std::int64_t tokens, GgmlType type, const std::string& to) {
    write_lm(small_network(tokens, 1), 8, tokenizer, to, {.type = type});
  };
  expect_throw<ArgumentError>([&] { write(257, GgmlType::q4_0, path); }, {"q4_0", "f32, f16 or q8_0"});
  expect_throw<ArgumentError>([&] { write(300, GgmlType::f16, path); }, {"300", "257"});
  expect_throw<ArgumentError>([&] { write(257, GgmlType::f16, "/proc/no/m.gguf"); }, {"/proc/no/m.gguf"});
  EXPECT_FALSE(std::filesystem::exists(path));
  const auto narrow = setup(
      LlamaNetwork{.shape = {.vocabulary = 257, .layers = 1, .width = 48, .heads = 4, .key_heads = 4, .hidden = 32}});
  expect_throw<ArgumentError>([&] { write_lm(narrow, 8, tokenizer, path, {.type = GgmlType::q8_0}); },
                              {"multiple of 32", "token_embd", "f16"});
  write_lm(narrow, 8, tokenizer, path, {.type = GgmlType::f16});
  EXPECT_EQ(Llama::load(GgufFile::open(path), Device{Backend::cpu, 0}).config().width, 48);
}

TEST(LmModel, ReportsTheOptionThatNeedsTheMostMemory) {
  const LlamaShape usual = network_shape({}, 2048);
  EXPECT_EQ(suggest_option_to_lower(usual, 16, 256), "--batch (now 16)");
  EXPECT_EQ(suggest_option_to_lower(usual, 1, 65536), "--ctx (now 65536)");
  LlamaShape large = usual;
  large.vocabulary = 1 << 20;
  EXPECT_EQ(suggest_option_to_lower(large, 1, 16), "--vocabulary (now 1048576)");
  large = usual;
  large.width = large.hidden = 8192;
  EXPECT_NE(suggest_option_to_lower(large, 1, 16).find("--width (now 8192)"), std::string::npos);
}

}  // namespace
}  // namespace tessera
