// SPDX-License-Identifier: Apache-2.0
// Tokenizers of embedding models: WordPiece, compared with Hugging Face's tokenizers, and Unigram, compared with
// SentencePiece. The vocabularies and tokens come from tools/make_embedding_tokenizers.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tessera/base/test_seed.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer.h"
#include "tests/support/errors.h"
#include "tests/tokenizer/token_ids.h"

namespace tessera {
namespace {

using namespace std::string_literals;
using nlohmann::json;
using test::crc_of;
using test::expect_throw;
using test::Ids;
using test::shown;

const json& cases() {
  static const json all = json::parse(std::ifstream("tests/data/embedding_tokenizers.json"));
  return all;
}
std::vector<std::string> texts() {
  auto out = json::parse(std::ifstream("tests/data/tokenizer_cases.json")).at("texts").get<std::vector<std::string>>();
  for (const json& text : cases().at("texts")) out.push_back(text.get<std::string>());
  return out;
}
std::vector<std::uint8_t> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> out;
  std::uint32_t bits = 0, count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    if ((count += 6) >= 8) out.push_back(static_cast<std::uint8_t>(bits >> (count -= 8)));
  }
  return out;
}

GgufWriter vocabulary(const json& c, const std::string& model) {
  GgufWriter w;
  w.set("tokenizer.ggml.model", model).set("tokenizer.ggml.tokens", c.at("tokens").get<std::vector<std::string>>());
  w.set("tokenizer.ggml.token_type", c.at("types").get<std::vector<std::int32_t>>());
  return w;
}
GgufWriter word_piece(const json& c) {
  GgufWriter w = vocabulary(c, "bert");
  w.set("tokenizer.ggml.normalizer.lowercase", c.at("lowercase").get<bool>());
  if (!c.at("strip_accents").is_null())
    w.set("tokenizer.ggml.normalizer.strip_accents", c.at("strip_accents").get<bool>());
  return w;
}
/// The keys of `changed` replace those of the vocabulary.
GgufWriter unigram(const json& c, std::vector<std::pair<std::string, GgufValue>> changed = {}) {
  GgufWriter w = vocabulary(c, "t5");
  const bool spaces = c.at("spaces").get<bool>();
  changed.emplace_back("scores", GgufArray{c.at("scores").get<std::vector<float>>()});
  changed.emplace_back("precompiled_charsmap", GgufArray{from_base64(c.at("charsmap").get<std::string>())});
  changed.emplace_back("add_space_prefix", spaces);
  changed.emplace_back("remove_extra_whitespaces", spaces);
  changed.emplace_back("bos_token_id", std::uint32_t{0});
  changed.emplace_back("eos_token_id", std::uint32_t{2});
  changed.emplace_back("unknown_token_id", std::uint32_t{3});
  changed.emplace_back("add_bos_token", true);
  std::set<std::string> known;
  for (auto& [key, value] : changed)
    if (known.insert(key).second) w.set("tokenizer.ggml." + key, std::move(value));
  return w;
}
Tokenizer made(const GgufWriter& w) {
  const auto bytes = w.bytes();
  return Tokenizer(GgufFile::parse(bytes, "vocabulary"));
}
void expect_same(const Tokenizer& t, const json& c) {
  const std::vector<std::string> all = texts();
  ASSERT_EQ(all.size(), c.at("ids").size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Ids ids = t.encode(all[i], {.add_special = false});
    EXPECT_EQ(crc_of(ids), c.at("ids")[i].get<std::uint32_t>()) << i << ", " << all[i] << ": " << shown(t, ids);
  }
}

TEST(WordPiece, MatchesHuggingFace) {
  for (const json& c : cases().at("bert")) {
    SCOPED_TRACE(c.at("lowercase").dump() + " " + c.at("strip_accents").dump());
    expect_same(made(word_piece(c)), c);
  }
}

TEST(WordPiece, AddsClassAndSeparatorTokensAndDecodes) {
  const Tokenizer t = made(word_piece(cases().at("bert")[0]));
  const Ids ids = t.encode("The  Arrays, [CLS]");
  ASSERT_GE(ids.size(), 4u);
  EXPECT_EQ(t.text(ids.front()), "[CLS]");
  EXPECT_EQ(t.text(ids.back()), "[SEP]");
  EXPECT_EQ(std::ranges::count(ids, ids.front()), 1) << "control tokens in texts are plain text";
  EXPECT_EQ(t.decode(ids), "the arrays , [ cls ]");
  EXPECT_EQ(t.encode("[CLS]", {.add_special = false, .parse_special = true}), (Ids{*t.bos()}));
  EXPECT_EQ(t.encode(""), (Ids{*t.bos(), *t.eos()}));
}

TEST(WordPiece, RejectsVocabulariesWithoutSpecialTokens) {
  for (const auto& [token, key] :
       {std::pair("[CLS]", "cls_token_id"), {"[SEP]", "seperator_token_id"}, {"[UNK]", "unknown_token_id"}}) {
    json c = cases().at("bert")[0];
    for (json& each : c["tokens"])
      if (each == token) each = "[other]";
    expect_throw<FormatError>([&] { made(word_piece(c)); }, {"vocabulary", key, "does not define"});
    std::uint32_t id = 0;
    while (c["tokens"][id] != "[other]") ++id;
    EXPECT_NO_THROW(made(word_piece(c).set("tokenizer.ggml."s + key, id)));
  }
}

TEST(Unigram, MatchesSentencePiece) {
  for (const json& c : cases().at("t5")) {
    SCOPED_TRACE(c.at("spaces").dump());
    const Tokenizer t = made(unigram(c));
    expect_same(t, c);
    EXPECT_EQ(t.encode("").size(), 2u);
    EXPECT_EQ(t.encode("x").front(), 0);
    EXPECT_EQ(t.encode("x").back(), 2);
  }
}

TEST(Unigram, RejectsInvalidVocabularies) {
  const json& c = cases().at("t5")[0];
  const auto refused = [&](const std::string& key, GgufValue value, std::vector<std::string_view> parts) {
    parts.push_back(key);
    expect_throw<FormatError>([&] { made(unigram(c, {{key, std::move(value)}})); }, parts);
  };
  const std::string map_key = "precompiled_charsmap";
  const auto map = from_base64(c.at("charsmap").get<std::string>());
  const auto first = [&](std::size_t count) {
    return GgufArray{std::vector<std::uint8_t>(map.begin(), map.begin() + static_cast<std::ptrdiff_t>(count))};
  };
  const std::size_t table =
      4 + (map[0] | static_cast<std::size_t>(map[1]) << 8 | static_cast<std::size_t>(map[2]) << 16);
  refused(map_key, first(3), {"is not inside these 3 bytes"});
  refused(map_key, GgufArray{std::vector<std::uint8_t>{255, 255, 255, 255, 0}}, {"4294967295"});
  refused(map_key, first(map.size() - 1), {"does not end with a zero"});
  refused(map_key, first(table), {"replacement is not inside the table"});
  // A table of 102 units, in which the children of "a" (97) would be at 4193.
  std::vector<std::uint8_t> far(4 + 4 * 102 + 2);
  const auto set_number = [&](std::size_t at, std::uint32_t number) {
    for (std::size_t k = 0; k < 4; ++k) far[at + k] = static_cast<std::uint8_t>(number >> (8 * k));
  };
  set_number(0, 4 * 102), set_number(4 + 4 * 97, 97 | 4096u << 10);
  far[4 + 4 * 102] = 'x';
  refused(map_key, GgufArray{far}, {"unit 4193 of 102"});
  refused("scores", GgufArray{std::vector<float>{1}}, {"there are 1"});
  refused("escape_whitespaces", false, {});
  refused("treat_whitespace_as_suffix", true, {});
  refused("unknown_token_id", std::uint32_t{1 << 20}, {});
  auto scores = c.at("scores").get<std::vector<float>>();
  scores[7] = std::numeric_limits<float>::infinity();
  refused("scores", GgufArray{scores}, {"token 7"});
}

// Every byte string has tokens, and tokens of damaged character maps stay in the vocabulary.
TEST(Unigram, TokenizesRandomBytesWithDamagedMaps) {
  std::mt19937_64 random(test_seed());
  const json& c = cases().at("t5")[0];
  const auto map = from_base64(c.at("charsmap").get<std::string>());
  int loaded = 0;
  for (int run = 0; run < 300; ++run) {
    auto damaged = map;
    for (std::size_t n = random() % 4; n > 0; --n) damaged[random() % damaged.size()] ^= 1u << random() % 8;
    try {
      const Tokenizer t = made(unigram(c, {{"precompiled_charsmap", GgufArray{damaged}}}));
      ++loaded;
      std::string text;
      for (std::size_t n = random() % 80; n > 0; --n)
        text += static_cast<char>(random() % 3 == 0 ? random() : 'a' + random() % 26);
      for (const TokenId id : t.encode(text)) EXPECT_LT(static_cast<std::size_t>(id), t.size());
    } catch (const FormatError&) {}
  }
  EXPECT_GT(loaded, 50);
}

}  // namespace
}  // namespace tessera
