// SPDX-License-Identifier: Apache-2.0
// Grammars in GBNF: which texts they accept, compared with a slow matcher; errors; limits.
#include "tessera/llm/grammar/grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tessera/base/test_seed.h"
#include "tessera/base/unicode.h"
#include "tests/grammar/grammar_text.h"
#include "tests/grammar/random_grammar.h"
#include "tests/support/errors.h"
#include "tests/support/fuzz_cases.h"

namespace tessera {
namespace {

using test::accepts;
using test::expect_throw;

struct Case {
  const char* grammar;
  std::vector<std::string> good, bad;
};

TEST(Gbnf, AcceptsTheTextsOfTheGrammar) {
  const Case cases[] = {
      {R"(root ::= "a" "b" | "c")", {"ab", "c"}, {"", "a", "abc", "b"}},
      {R"(root ::= "a"* "b"+ "c"?)", {"b", "aabb", "abc"}, {"", "a", "c", "abcc"}},
      {R"(root ::= "a"{2} "b"{1,} "c"{1,2} "d"{0})", {"aabc", "aabbbcc"}, {"abc", "aac", "aabccc", "aabcd"}},
      {R"(root ::= ("ab" | "c"){2,3})", {"abab", "cc", "abcab"}, {"ab", "cccc", "aba"}},
      {R"(root ::= [a-cx] [^a-c] [-a] [\]\\])", {"ad-]", "xéa\\", "b\n-]"}, {"dd-]", "aa-]", "ad]]"}},
      {R"(root ::= [^\x00-\x1F"\\])", {"a", "é", "\x7F", "😀"}, {"\n", "\"", "\\", "\xFF", "\xED\xA0\x80", "\xC1\x81"}},
      {R"(root ::= . .)",
       {"ab", "é\n", "中😀"},
       {"a", "abc",
        "\xF4\x90\x80\x80"
        "a",
        "a\xC3"}},
      {R"(root ::= [\u0400-\u04FF]+ [\U0001F600-\U0001F64F])", {"ж😀", "жЖ🙏"}, {"z😀", "😀", "ж🚀"}},
      {R"(root ::= [а-яё]{2})", {"ёж"}, {"ж", "ЁЖ"}},
      {R"(root ::= "\x41\n\t\r\\\"\u00e9\[\]")", {"A\n\t\r\\\"é[]"}, {"A"}},
      {"# comment\nroot ::= # more\n  item (\",\" item)* # end\n\nitem ::=\n [a-z]+ |\n [0-9]+\r\n",
       {"a", "ab,12,c"},
       {"", "a,", "a1"}},
      {"root ::= (\n  \"a\"\n  | \"b\" # c\n) \"c\"", {"ac", "bc"}, {"a"}},
      {R"(root ::= "(" root [)] | "")", {"", "()", "((()))"}, {"(", "())", ")("}},
      {R"(root ::= "a" root | "a" root "b" | "")", {"", "a", "aab", "aabb"}, {"abb", "b"}},
      {"root ::= b a*\na ::= \"x\" | b\nb ::= \"\" | \"y\" c\nc ::= b", {"", "y", "yyx", "xyxy"}, {"z"}},
      {R"(root ::= (("a"?)*)* "b")", {"b", "aaab"}, {"a", "ba"}},
      {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9] | \"(\" e \")\"", {"1", "1+(2+3)+4"}, {"", "1+", "(1", "1+2)"}},
      {R"(root ::= [^])", {"b", "\n", "é"}, {"", "bb"}},
  };
  for (const Case& c : cases) {
    const auto g = Grammar::from_gbnf(c.grammar);
    for (const std::string& text : c.good) EXPECT_TRUE(accepts(*g, text)) << c.grammar << "\n" << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(accepts(*g, text)) << c.grammar << "\n" << text;
  }
}

TEST(Gbnf, RejectsInvalidTextWithLineAndColumn) {
  const std::vector<std::pair<std::string, std::vector<std::string_view>>> cases = {
      {"", {"\"root\" is missing"}},
      {"a ::= \"x\"", {"\"root\" is missing"}},
      {"root ::= a\na ::= \"x\" b", {"\"b\" is not defined", "g:2:11"}},
      {"root ::= \"x\"\nroot ::= \"y\"", {"defined twice", "g:2:1"}},
      {"root = \"x\"", {"::=", "g:1:6"}},
      {"root ::= \"x", {"closing quotation mark", "g:1:10"}},
      {"root ::=\n [a-", {"closing bracket", "g:2:2"}},
      {"root ::= []", {"contains no character", "g:1:10"}},
      {"root ::= [b-a]", {"ends before it begins", "g:1:11"}},
      {"root ::= (\"a\" | ", {"closing parenthesis", "g:1:10"}},
      {"root ::= \"a\")", {"unexpected character", "g:1:13"}},
      {"root ::= * \"a\"", {"unexpected character", "g:1:10"}},
      {"root ::= \"a\"{3,2}", {"less than its minimum", "g:1:13"}},
      {"root ::= \"a\"{}", {"expected a number", "g:1:14"}},
      {"root ::= \"a\"{100001}", {"greater than 100000"}},
      {"root ::= \"\\q\"", {"unknown escape", "g:1:11"}},
      {"root ::= \"\\u00g0\"", {"4 hexadecimal digits"}},
      {"root ::= [\\uD800]", {"not a Unicode character"}},
      {"root ::= \"\xFF\"", {"not valid UTF-8", "g:1:11"}},
      {"root ::= <think>", {"angle brackets"}},
      {"root ::= [\\uDC00-\\uDFFF]", {"not a Unicode character"}},
      {"root ::= root \"a\" | \"b\"", {"left-recursive", "root -> root"}},
      {"root ::= a\na ::= c b\nb ::= \"x\" | a\nc ::= \"y\"*", {"left-recursive", "a -> b -> a"}},
      {"root ::= \"x\" root", {"no finite text"}},
      {"root ::= a\na ::= a", {"no finite text"}},
  };
  for (const auto& [text, parts] : cases) {
    SCOPED_TRACE(text);
    expect_throw<FormatError>([&text = text] { Grammar::from_gbnf(text, "g"); }, parts);
  }
}

TEST(Gbnf, AgreesWithSlowMatcherOnRandomGrammars) {
  std::mt19937_64 random(test_seed());
  const auto utf8 = [](const std::u32string& text) {
    std::string out;
    for (const char32_t c : text) append_utf8(out, c);
    return out;
  };
  int matched = 0, refused = 0, compiled = 0;
  for (int i = 0; i < 400; ++i) {
    test::RandomGrammar slow(random);
    std::shared_ptr<const Grammar> fast;
    try {
      fast = Grammar::from_gbnf(slow.gbnf());
    } catch (const FormatError& e) {  // no finite text
      EXPECT_TRUE(test::holds(e.what(), "no finite text")) << slow.gbnf();
      continue;
    }
    ++compiled;
    for (int j = 0; j < 12; ++j) {
      std::u32string text = slow.sample();
      if (j % 2 == 1)
        for (std::size_t n = 1 + random() % 2; n > 0; --n) {
          const char32_t c = U"abcé中😀\"\\]z"[random() % 10];
          const std::size_t at = random() % (text.size() + 1);
          if (random() % 2 || text.empty())
            text.insert(at, 1, c);
          else
            text.erase(std::min(at, text.size() - 1), 1);
        }
      const bool expected = slow.matches(text);
      expected ? ++matched : ++refused;
      ASSERT_EQ(accepts(*fast, utf8(text)), expected) << slow.gbnf() << utf8(text);
    }
  }
  EXPECT_GT(compiled, 300);
  EXPECT_GT(matched, 500);
  EXPECT_GT(refused, 500);
}

TEST(Gbnf, HostileGrammarsAreRejectedQuickly) {
  const auto start = std::chrono::steady_clock::now();
  const std::string deep(100'000, '(');
  expect_throw<FormatError>([&] { Grammar::from_gbnf("root ::= " + deep); }, {"nested more than 100 levels"});
  expect_throw<FormatError>([] { Grammar::from_gbnf("root ::= ((\"a\"{1000}){1000}){1000}"); }, {"too large"});
  expect_throw<FormatError>([] { Grammar::from_gbnf("root ::= ((\"\"{100000}){100000}){100000}"); }, {"too large"});
  expect_throw<FormatError>([] { Grammar::from_gbnf("root ::= ((\"\"*){100000}){100000}"); }, {"too large"});
  expect_throw<FormatError>([] { Grammar::from_gbnf("root ::= \"a\"" + std::string(200'000, '*')); }, {"nested"});
  expect_throw<FormatError>([] { Grammar::from_gbnf("root ::= \"" + std::string(2 << 20, 'a') + "\""); }, {"too long"});
  std::string chain = "root ::= r0\n", doubled = chain;  // the second one would double in size with each rule
  for (int i = 0; i < 5'000; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    chain += "r" + std::to_string(i) + " ::= " + next + " | \"x\"\n";
    doubled += "r" + std::to_string(i) + " ::= " + next + " " + next + "\n";
  }
  EXPECT_TRUE(accepts(*Grammar::from_gbnf(chain + "r5000 ::= \"y\""), "y"));
  EXPECT_TRUE(accepts(*Grammar::from_gbnf(doubled + "r5000 ::= \"\""), ""));
  // Ambiguous and nested texts take linear time and memory.
  const auto ambiguous = Grammar::from_gbnf(R"(root ::= "a" root "b" | "a" root | "")");
  EXPECT_TRUE(accepts(*ambiguous, std::string(1000, 'a') + std::string(700, 'b')));
  EXPECT_FALSE(accepts(*ambiguous, std::string(100, 'a') + std::string(101, 'b')));
  const auto nested = Grammar::from_gbnf(R"(root ::= "(" root [)] root | "")");
  EXPECT_TRUE(accepts(*nested, std::string(100'000, '(') + std::string(100'000, ')')));
  // Too many alternatives at a time are an error.
  const auto wide = Grammar::from_gbnf("root ::= (\"a\"?){100000}");
  expect_throw<ArgumentError>([&] { accepts(*wide, "a"); }, {"too ambiguous"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Gbnf, RandomMutationsCompileOrThrow) {
  const std::string seed =
      "root ::= (a \",\"){1,3} [a-z\\u00e9] # c\na ::= \"x\\n\" | b* \"y\"?\nb ::= [^0-9]+ . \"z\"{2}\n";
  std::uint64_t compiled = 0;
  test::run_fuzz_cases([&](std::mt19937_64& random) {
    const std::string text = test::mutated(seed, random, "\"[](){}|*+?.,^-\\#:=ab x109\n");
    try {
      const auto g = Grammar::from_gbnf(text);
      test::match(*g, "x\n,xx,z");
      ++compiled;
    } catch (const Error&) {}
  });
  EXPECT_GE(compiled, test::fuzz_cases() / 40);
}

}  // namespace
}  // namespace tessera
