// SPDX-License-Identifier: Apache-2.0
// Which tokens a grammar allows: compared with the grammar for each token; characters that are split over tokens; end
// and control tokens; the time for large vocabularies.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "tessera/base/test_seed.h"
#include "tessera/base/unicode.h"
#include "tessera/llm/grammar/matcher.h"
#include "tessera/llm/tokenizer.h"
#include "tests/grammar/grammar_text.h"
#include "tests/grammar/random_grammar.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using grammar::Matcher;
using grammar::TokenMask;
using grammar::TokenTrie;
using test::Match;
using test::Vocabulary;

const char* const json_gbnf = R"GBNF(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
)GBNF";

std::string utf8(const std::u32string& text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

/// Compares a mask with the grammar, which reads each token after `text`.
void expect_mask(const Grammar& g, const Vocabulary& v, const std::string& text, const TokenMask& mask) {
  for (std::size_t id = 0; id < v.texts.size(); ++id)
    ASSERT_EQ(mask.contains(static_cast<std::int32_t>(id)), test::match(g, text + v.texts[id]) != Match::dead)
        << "\"" << text << "\" + \"" << v.texts[id] << "\"";
}

TEST(GrammarMask, ContainsTheTokensThatTheGrammarAllows) {
  std::mt19937_64 random(test_seed());
  int complete = 0;
  for (int i = 0; i < 60; ++i) {
    test::RandomGrammar slow(random);
    std::shared_ptr<const Grammar> g;
    try {
      g = Grammar::from_gbnf(slow.gbnf());
    } catch (const FormatError&) {  // no finite text
      continue;
    }
    SCOPED_TRACE(slow.gbnf());
    std::vector<std::string> more;  // parts of matching texts, which may begin and end within a character
    for (int j = 0; j < 40; ++j) {
      const std::string text = utf8(slow.sample());
      if (!text.empty()) more.push_back(text.substr(random() % text.size(), 1 + random() % 6));
    }
    const Vocabulary v(more);
    const TokenTrie trie = v.trie();
    Matcher m(g, trie, {});
    for (int run = 0; run < 3; ++run) {
      m.reset();
      std::string text;
      for (int step = 0; step < 12; ++step) {
        const TokenMask mask = m.mask();
        expect_mask(*g, v, text, mask);
        ASSERT_EQ(m.can_end(), test::accepts(*g, text));
        if (m.is_complete()) break;
        std::vector<std::size_t> allowed;
        for (std::size_t id = 0; id < v.texts.size(); ++id)
          if (mask.contains(static_cast<std::int32_t>(id))) allowed.push_back(id);
        ASSERT_FALSE(allowed.empty());
        const std::string& next = v.texts[allowed[random() % allowed.size()]];
        ASSERT_TRUE(m.advance(next));
        text += next;
      }
      if (m.can_end()) {
        std::u32string codes;
        for (std::string_view rest = text; !rest.empty();) {
          const Utf8Unit unit = utf8_unit(rest);
          ASSERT_EQ(unit.kind, Utf8Unit::Kind::character);
          codes += unit.code;
          rest.remove_prefix(unit.size);
        }
        EXPECT_TRUE(slow.matches(codes)) << text;
        ++complete;
      }
    }
  }
  EXPECT_GT(complete, 30);
}

TEST(GrammarMask, OfJsonGrammarIsTheSameForEachToken) {
  const auto g = Grammar::from_gbnf(json_gbnf);
  const Vocabulary v({"{\"",   "\": ",  "\", \"", "\"}",  "\"}]", "}}",   " \"",  "abc", "12",   ".5", "e+",  "true",
                      "null,", "\\u00", "\\\"",   "\n  ", "é",    "\xC3", "日本", "\"]", "\"\"", "[[", "]],", "[{\""});
  const TokenTrie trie = v.trie();
  Matcher m(g, trie, {});
  std::string text;
  for (const char c : std::string(R"({"a": [1.5e+3, "x\u00e9 日", {"": null}, [[]]], "b": {"c": "}"}} )")) {
    expect_mask(*g, v, text, m.mask());
    ASSERT_TRUE(m.advance(std::string_view(&c, 1))) << text << c;
    text += c;
  }
  EXPECT_TRUE(m.is_complete());
  EXPECT_TRUE(m.mask().empty());
  EXPECT_FALSE(m.advance("x"));
}

TEST(GrammarMask, FollowsCharactersThatAreSplitOverTokens) {
  const auto g = Grammar::from_gbnf("root ::= [é中] [^a] \"😀\"");
  const Vocabulary v({"\xC3\xA9", "\xE4\xB8", "\xAD\xF0", "\x9F\x98", "\x80"});
  const TokenTrie trie = v.trie();
  Matcher m(g, trie, {});
  // 中, U+1F600 split as AD F0 | 9F 98 | 80, and the same character again byte by byte.
  for (const char* token : {"\xE4\xB8", "\xAD\xF0", "\x9F\x98", "\x80", "\xF0", "\x9F", "\x98", "\x80"}) {
    bool allowed = false;
    for (std::size_t id = 0; id < v.texts.size(); ++id)
      allowed = allowed || (v.texts[id] == token && m.mask().contains(static_cast<std::int32_t>(id)));
    ASSERT_TRUE(allowed);
    ASSERT_TRUE(m.advance(token));
  }
  EXPECT_TRUE(m.is_complete());
}

TEST(GrammarMask, AllowsEndTokensOnlyAtTheEndAndControlTokensNever) {
  const GgufFile file = GgufFile::open("models/pgdocs-2m-q8_0.gguf");
  const Tokenizer tokenizer(file);
  ASSERT_FALSE(tokenizer.ends().empty());
  const TokenId end = tokenizer.ends().front();
  Matcher m(Grammar::from_gbnf("root ::= .+"), tokenizer.trie(), tokenizer.ends());
  EXPECT_EQ(&tokenizer.trie(), &Tokenizer(tokenizer).trie());  // built once
  EXPECT_FALSE(m.mask().contains(end));
  ASSERT_TRUE(m.advance("index <|endoftext|>"));
  EXPECT_TRUE(m.mask().contains(end));
  EXPECT_FALSE(m.mask().contains(-1));
  EXPECT_FALSE(m.mask().contains(1 << 20));
  for (std::size_t i = 0; i < tokenizer.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    EXPECT_FALSE(tokenizer.type(id) == TokenType::control && !tokenizer.is_end(id) && m.mask().contains(id));
  }
}

TEST(GrammarMask, WithoutPossibleTokenIsAnError) {
  const std::string_view texts[] = {"a", "ab", ""};
  const TokenTrie trie{std::span<const std::string_view>(texts)};
  Matcher m(Grammar::from_gbnf("root ::= \"abc\""), trie, {});
  EXPECT_TRUE(m.mask().contains(0));
  ASSERT_TRUE(m.advance("ab"));
  for (int i = 0; i < 2; ++i)
    test::expect_throw<ArgumentError>([&] { m.mask(); }, {"no token of the vocabulary continues the text"});
  Matcher done(Grammar::from_gbnf("root ::= \"ab\""), trie, {});
  ASSERT_TRUE(done.advance("ab"));
  EXPECT_TRUE(done.mask().empty());  // complete
}

TEST(GrammarMask, MemoryIsReleasedInLongTexts) {
  const auto g = Grammar::from_gbnf("root ::= \"[\" root \"]\" | \"x\"");
  const Vocabulary v({"[[", "]]"});
  const TokenTrie trie = v.trie();
  Matcher m(g, trie, {});
  constexpr int depth = 50'000;
  bool was_reduced = false;
  for (int i = 0; i < depth; ++i) {
    const std::size_t before = m.states().size();
    ASSERT_TRUE(m.mask().contains('['));
    ASSERT_TRUE(m.advance("["));
    was_reduced = was_reduced || m.states().size() < before;
  }
  EXPECT_TRUE(was_reduced);
  ASSERT_TRUE(m.advance("x"));
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(m.mask().contains(257), i + 1 < depth);  // "]]"
    ASSERT_TRUE(m.advance("]"));
  }
  EXPECT_TRUE(m.is_complete());
}

/// Random words, punctuation and Chinese characters in the proportions of usual vocabularies.
Vocabulary large_vocabulary(std::size_t size) {
  std::mt19937_64 random(1);
  std::vector<std::string> syllables, tokens;
  for (int i = 0; i < 400; ++i) {
    std::string s;
    for (std::size_t n = 1 + random() % 3; n > 0; --n) s += static_cast<char>('a' + random() % 26);
    syllables.push_back(s);
  }
  while (tokens.size() + 256 < size) {
    const std::size_t kind = random() % 20;
    std::string t = kind < 9 ? " " : "";
    if (kind == 9)
      for (std::size_t n = 1 + random() % 4; n > 0; --n) t += "\"{}[]:,.;()<>/\\-_=\n\t 0123456789"[random() % 32];
    else if (kind > 17)
      for (std::size_t n = 1 + random() % 3; n > 0; --n)
        append_utf8(t, static_cast<char32_t>(0x4E00 + random() % 20000));
    else
      for (std::size_t n = 1 + random() % 4; n > 0; --n) t += syllables[random() % 400];
    if (kind == 10) t += "\":";
    if (kind == 11) t += "\",";
    tokens.push_back(t);
  }
  return Vocabulary(std::move(tokens));
}

TEST(GrammarMask, CostsLittleForLargeVocabularies) {
  using Clock = std::chrono::steady_clock;
  const auto ms = [](Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
  const std::string text =
      R"({"name": "a longer text, with \"quotes\" and é", "list": [1, -2.5e3, "x", {"deep": [["y"]]}], "ok": true})";
  for (const std::size_t size : {32'000, 150'000}) {
    const Vocabulary v = large_vocabulary(size);
    const auto begin = Clock::now();
    const TokenTrie trie = v.trie();
    std::printf("%zu tokens: trie of %u nodes in %.0f ms\n", size, trie.size(), ms(Clock::now() - begin));
    Matcher m(Grammar::from_gbnf(json_gbnf), trie, {});
    for (const char* which : {"first text", "next text"}) {
      m.reset();
      double total = 0, most = 0;
      for (const char c : text) {
        const auto start = Clock::now();
        m.mask();
        m.advance(std::string_view(&c, 1));
        const double time = ms(Clock::now() - start);
        total += time, most = std::max(most, time);
      }
      std::printf("  %s: %.3f ms per mask on average, at most %.2f ms\n", which,
                  total / static_cast<double>(text.size()), most);
      EXPECT_LT(total, 5000);
    }
  }
}

}  // namespace
}  // namespace tessera
