// SPDX-License-Identifier: Apache-2.0
// Sanitising external text (device names, compiler logs), wrapping paragraphs in tables, and wrapping text that is
// streamed.
#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "app/terminal.h"
#include "app/word_wrap.h"
#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/test_seed.h"
#include "tessera/base/unicode.h"

namespace tessera {
namespace {

TEST(Printable, NamesAreUtf8WithoutControlCharacters) {
  EXPECT_EQ(printable_name("AMD EPYC"), "AMD EPYC");
  EXPECT_EQ(printable_name("Graphics\xae 770"), "Graphics\xef\xbf\xbd 770");
  EXPECT_EQ(printable_name("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(printable_name("a\x1b]0;taken\x07\x1b[2J\r\nb"), "a ]0;taken [2J b");
  EXPECT_EQ(printable_name(" \t padded \n"), "padded");
  EXPECT_EQ(printable_name("c1:\xc2\x9b"), "c1:");
  EXPECT_EQ(printable_name("right\xe2\x80\xae to left"), "right to left");
  EXPECT_EQ(printable_name("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // half of a surrogate pair
  EXPECT_EQ(printable_name("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong encoding of "/"
  EXPECT_EQ(printable_name(std::string(1 << 20, '\n')), "");
  EXPECT_EQ(printable_name(std::string(1 << 20, 'x')), std::string(longest_name - 3, 'x') + "...");
}

TEST(Printable, LinesAreNotTruncated) {
  const std::string path = "/models/" + std::string(1000, 'x');
  EXPECT_EQ(printable_line(path), path);
  EXPECT_EQ(printable_line(" /a\x1b[2J\nb\xe2\x80\xae"), "/a [2J b");
}

TEST(Printable, SanitisingIsIdempotentForAnyBytes) {
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 400, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 ? 0x80 + random() % 128 : random() % 128);
    const std::string name = printable_name(bytes), text = printable_text(bytes);
    EXPECT_EQ(printable_name(name), name);
    EXPECT_EQ(printable_text(text), text);
    EXPECT_LE(name.size(), longest_name);
    EXPECT_NO_THROW(
        static_cast<void>(nlohmann::json(text).dump() + nlohmann::json(name).dump()));  // throws for invalid UTF-8
    for (const char c : text) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t');
  }
}

TEST(Printable, SanitisesErrorMessages) {
  EXPECT_EQ(error_text({.operation = "a\x1b[2J", .wrong = "line 1\n\tline 2\x07"}), "[a [2J] line 1\n\tline 2");
}

TEST(Wrapped, IndentsContinuationLines) {
  using app::wrapped;
  EXPECT_EQ(wrapped("one two three", 2, 9, 2), "one two\n  three");
  EXPECT_EQ(wrapped("error: x\nnote: y\n\n  z\n", 4, 80, 4), "error: x\n    note: y\n    z");
  EXPECT_EQ(wrapped("\nonly", 4, 80, 4), "only");
}

/// Wraps `text` in pieces of random sizes.
std::string wrap_in_pieces(const std::string& text, std::size_t width, std::mt19937_64& random) {
  app::WordWrap wrap;
  std::string out;
  Utf8Stream characters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = std::min<std::size_t>(random() % 6, text.size() - at);
    out += wrap.push(characters.push(text.substr(at, size)), width);
    at += size;
  }
  return out + wrap.flush(width);
}

TEST(WordWrap, BreaksLinesOnlyBetweenWords) {
  std::mt19937_64 random(test_seed());
  const auto wrap = [&](const std::string& text, std::size_t width) { return wrap_in_pieces(text, width, random); };
  EXPECT_EQ(wrap("The quick brown fox", 10), "The quick\nbrown fox");
  EXPECT_EQ(wrap("The quick brown", 15), "The quick brown");
  EXPECT_EQ(wrap("a b\n\n  c   d \n", 4), "a b\n\n  c\nd\n");
  EXPECT_EQ(wrap("see https://example.com/page now", 8), "see\nhttps://example.com/page\nnow");
  EXPECT_EQ(wrap("\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9", 5), "\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9") << "columns, not bytes";
  EXPECT_EQ(wrap("漢字漢字 ok", 6), "漢字漢\n字 ok") << "wide characters take two columns and need no spaces";
  for (int i = 0; i < 300; ++i) {
    std::string text;
    while (text.size() < 200)
      text += std::vector<std::string>{"a", "bcd", "\xc3\xa9", " ", "  ", "\n", ", "}[random() % 7];
    const std::string wrapped = wrap(text, 12);
    EXPECT_EQ(wrapped, wrap(text, 12)) << "does not depend on the pieces";
    const auto words = [](const std::string& all) {
      std::istringstream in(all);
      return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
    };
    EXPECT_EQ(words(wrapped), words(text));
    std::istringstream lines(wrapped);
    for (std::string line; std::getline(lines, line);) {
      const bool one_word = line.find_first_of(' ', line.find_first_not_of(' ')) == std::string::npos;
      EXPECT_TRUE(one_word || app::text_width(line) <= 12) << line;
    }
  }
}

}  // namespace
}  // namespace tessera
