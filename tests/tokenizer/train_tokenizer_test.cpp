// SPDX-License-Identifier: Apache-2.0
// Learning a vocabulary: comparison with a slow reference on random texts, round trips of arbitrary bytes, ties,
// thresholds and errors. (tools/check_tokenizer_training.py compares the results with Hugging Face's tokenizers.)
#include "tessera/llm/train_tokenizer.h"
#include "tessera/llm/tokenizer_split.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tessera/base/test_seed.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using namespace std::string_literals;
using test::expect_throw;

TrainedTokenizer train(const std::vector<std::string>& texts, const TrainTokenizerOptions& options = {}) {
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return train_tokenizer(views, options);
}
/// Returns options for at most `count` merges.
TrainTokenizerOptions merges(std::int64_t count, std::int64_t min_count = 2) {
  return {.vocabulary = 257 + count, .min_count = min_count};
}

/// Reference implementation: counts all pairs before each merge.
std::vector<std::string> reference_merges(const std::vector<std::string>& texts, const TrainTokenizerOptions& o) {
  const PreTokenizer pre(o.pre_tokenizer);
  std::set<std::string> characters;
  for (int b = 0; b < 256; ++b) characters.insert(byte_level_text(std::string(1, static_cast<char>(b))));
  std::vector<std::string> tokens(characters.begin(), characters.end());
  std::map<std::string, int> numbers;
  for (const std::string& t : tokens) numbers.emplace(t, static_cast<int>(numbers.size()));
  std::vector<std::vector<int>> words;
  for (const std::string& text : texts) {
    std::vector<std::string_view> pieces;
    pre.split(text, pieces);
    for (const std::string_view piece : pieces) {
      words.emplace_back();
      for (const char byte : piece) words.back().push_back(numbers.at(byte_level_text(std::string(1, byte))));
    }
  }
  std::vector<std::string> out;
  while (static_cast<std::int64_t>(tokens.size()) + 1 < o.vocabulary) {
    std::map<std::pair<int, int>, std::int64_t> counts;
    for (const auto& w : words)
      for (std::size_t i = 0; i + 1 < w.size(); ++i) ++counts[{w[i], w[i + 1]}];
    std::pair<int, int> best;
    std::int64_t most = 0;
    for (const auto& [pair, count] : counts)  // in the order of ties
      if (count > most) best = pair, most = count;
    if (most < o.min_count) break;
    const auto text = [&](int t) { return tokens[static_cast<std::size_t>(t)]; };
    out.push_back(text(best.first) + " " + text(best.second));
    const auto [found, is_new] = numbers.emplace(text(best.first) + text(best.second), static_cast<int>(tokens.size()));
    if (is_new) tokens.push_back(found->first);
    for (auto& w : words)
      for (std::size_t i = 0; i + 1 < w.size(); ++i)
        if (w[i] == best.first && w[i + 1] == best.second) {
          w[i] = found->second;
          w.erase(w.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return out;
}

TEST(TrainTokenizer, MergesTheMostFrequentPairFirst) {
  // The example of Sennrich, Haddow and Birch. (e, s) and (s, t) both occur nine times, and e has the lower id.
  std::string text;
  const std::pair<const char*, int> words[] = {{"low ", 5}, {"lower ", 2}, {"newest ", 6}, {"widest ", 3}};
  for (const auto& [word, count] : words)
    for (int i = 0; i < count; ++i) text += word;
  const auto t = train({text}, merges(3));
  EXPECT_EQ(t.merges, (std::vector<std::string>{"e s", "es t", "l o"}));
  EXPECT_EQ(t.tokens.size(), 260u);
  EXPECT_EQ(t.tokens[256], "es");
  EXPECT_EQ(t.tokens[258], "lo");
  EXPECT_EQ(t.end_of_text, 259);
  EXPECT_EQ(t.tokens.back(), "<|endoftext|>");
  EXPECT_EQ(t.tokens.front(), "!");  // bytes are in GPT-2's order
}

TEST(TrainTokenizer, MatchesReferenceImplementation) {
  std::mt19937_64 random(test_seed());
  const std::vector<std::string> alphabets = {"a", "ab", "ab ", "abc \n", "\xff\x00z "s, "xyé漢 1'"};
  for (int round = 0; round < 60; ++round) {
    const std::string& alphabet = alphabets[static_cast<std::size_t>(round) % alphabets.size()];
    std::vector<std::string> texts(1 + random() % 3);
    for (std::string& text : texts)
      for (std::size_t size = random() % 300; text.size() < size;) text += alphabet[random() % alphabet.size()];
    TrainTokenizerOptions options = merges(1 + static_cast<std::int64_t>(random() % 120), 1 + random() % 3);
    if (round % 3 == 0) options.pre_tokenizer = "llama-bpe";
    const auto learned = train(texts, options);
    ASSERT_EQ(learned.merges, reference_merges(texts, options)) << "round " << round;
    ASSERT_LE(static_cast<std::int64_t>(learned.tokens.size()), options.vocabulary);
  }
}

TEST(TrainTokenizer, ArbitraryBytesRoundTrip) {
  std::mt19937_64 random(test_seed());
  std::string text = "A short text, of which short words such as \"of\" and \"short\" are learned.\n\n";
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(random());
  for (const char* pre : {"gpt-2", "llama-bpe"}) {
    const auto learned = train({text, text}, {.vocabulary = 600, .pre_tokenizer = pre});
    ASSERT_EQ(learned.tokens.size(), 600u);
    const Tokenizer tokenizer = learned.tokenizer();
    ASSERT_EQ(tokenizer.size(), 600u);
    EXPECT_EQ(tokenizer.bos(), learned.end_of_text);
    EXPECT_TRUE(tokenizer.is_end(learned.end_of_text));
    for (int round = 0; round < 50; ++round) {
      std::string bytes;
      for (std::size_t size = random() % 400; bytes.size() < size;) {
        if (random() % 4 == 0) bytes += text.substr(random() % (text.size() - 20), random() % 20);
        bytes += static_cast<char>(random());
      }
      const auto ids = tokenizer.encode(bytes);
      ASSERT_EQ(ids.front(), learned.end_of_text);
      ASSERT_TRUE(tokenizer.decode(ids) == bytes) << pre << ", " << bytes.size() << " bytes, round " << round;
    }
    EXPECT_LT(tokenizer.encode(text, {.add_special = false}).size(), text.size());
  }
}

TEST(TrainTokenizer, StopsIfNoPairIsFrequentEnough) {
  EXPECT_TRUE(train({""}).merges.empty());
  EXPECT_TRUE(train({}).merges.empty());
  EXPECT_TRUE(train({"abcdef"}, merges(9)).merges.empty());
  EXPECT_EQ(train({"abab"}, merges(9)).merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(train({"abab"}, merges(9, 1)).merges, (std::vector<std::string>{"a b", "ab ab"}));
  EXPECT_TRUE(train({"a", "b", "a", "b"}, merges(9, 1)).merges.empty());  // no merges across texts
  EXPECT_EQ(train({"aaaa"}, merges(9, 1)).merges, (std::vector<std::string>{"a a", "aa aa"}));
}

TEST(TrainTokenizer, TrainsOnLongPiecesQuickly) {
  // The text is a single piece. Scanning all of it for each merge would take minutes.
  std::mt19937_64 random(test_seed());
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + random() % 26);
  const auto learned = train({text, std::string(1 << 20, 'a')}, merges(1500));
  EXPECT_EQ(learned.merges.size(), 1500u);
}

TEST(TrainTokenizer, RejectsInvalidOptions) {
  expect_throw<ArgumentError>([] { train({"a"}, {.vocabulary = 256}); }, {"vocabulary", "256", "257"});
  expect_throw<ArgumentError>([] { train({"a"}, {.vocabulary = (1 << 20) + 1}); }, {"vocabulary", "2^20"});
  expect_throw<ArgumentError>([] { train({"a"}, {.min_count = 0}); }, {"min_count"});
  expect_throw<ArgumentError>([] { train({"a"}, {.end_of_text = ""}); }, {"end_of_text"});
  expect_throw<ArgumentError>([] { train({"endend"}, {.min_count = 1, .end_of_text = "end"}); }, {"has the same text"});
  expect_throw<FormatError>([] { train({"a"}, {.pre_tokenizer = "none"}); }, {"none", "gpt-2"});
}

}  // namespace
}  // namespace tessera
