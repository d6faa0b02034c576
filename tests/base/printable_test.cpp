// SPDX-License-Identifier: Apache-2.0
// Sanitising external text (device names, compiler logs), and wrapping paragraphs in tables.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "app/terminal.h"
#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/test_seed.h"

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

}  // namespace
}  // namespace tessera
