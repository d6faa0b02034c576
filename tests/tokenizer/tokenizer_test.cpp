// SPDX-License-Identifier: Apache-2.0
// Tests the tokenizer with handmade vocabularies, and compares it with Hugging Face's tokenizers, with SentencePiece,
// and with llama.cpp's tokens for the shipped model. Also tests UTF-8 streams.
#include "tessera/llm/tokenizer.h"
#include "tessera/llm/gguf_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/unicode.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer_split.h"
#include "tests/support/errors.h"
#include "tests/tokenizer/token_ids.h"

namespace tessera {
namespace {

using namespace std::string_literals;
using test::crc_of;
using test::Ids;
using test::shown;

using test::expect_throw;

// --- Pieces ---------------------------------------------------------------------------------------------------------

struct Split {
  std::string text;
  std::vector<std::string> gpt2, llama3;
};

// Computed with pre_tokenizers.Split of tokenizers 0.22 (PyPI) and the patterns in the models' files.
const std::vector<Split> splits = {
    {"Hello world", {"Hello", " world"}, {"Hello", " world"}},
    {"Hello, world! It's 1234567 o'clock.",
     {"Hello", ",", " world", "!", " It", "'s", " 1234567", " o", "'", "clock", "."},
     {"Hello", ",", " world", "!", " It", "'s", " ", "123", "456", "7", " o", "'clock", "."}},
    {"we'LL I'M they'Re don'T",
     {"we", "'", "LL", " I", "'", "M", " they", "'", "Re", " don", "'", "T"},
     {"we", "'LL", " I", "'M", " they", "'Re", " don", "'T"}},
    {"  two  spaces   and tabs\t\tthere ",
     {" ", " two", " ", " spaces", "  ", " and", " tabs", "\t", "\t", "there", " "},
     {" ", " two", " ", " spaces", "  ", " and", " tabs", "\t", "\tthere", " "}},
    {"line\nnext\r\n\r\n  indented\n",
     {"line", "\n", "next", "\r\n\r\n ", " indented", "\n"},
     {"line", "\n", "next", "\r\n\r\n", " ", " indented", "\n"}},
    {"trailing   ", {"trailing", "   "}, {"trailing", "   "}},
    {"   ", {"   "}, {"   "}},
    {"\n", {"\n"}, {"\n"}},
    {"a\n", {"a", "\n"}, {"a", "\n"}},
    {"x=3.14159;y=-2e10",
     {"x", "=", "3", ".", "14159", ";", "y", "=-", "2", "e", "10"},
     {"x", "=", "3", ".", "141", "59", ";y", "=-", "2", "e", "10"}},
    {"ÀÉÎ naïve café ёж", {"ÀÉÎ", " naïve", " café", " ёж"}, {"ÀÉÎ", " naïve", " café", " ёж"}},
    {"日本語のテキスト、漢字。", {"日本語のテキスト", "、", "漢字", "。"}, {"日本語のテキスト", "、漢字", "。"}},
    {"Arabic: مرحبا ١٢٣٤", {"Arabic", ":", " مرحبا", " ١٢٣٤"}, {"Arabic", ":", " مرحبا", " ", "١٢٣", "٤"}},
    {"ह\xe0\xa4\xbfन\xe0\xa5\x8dद\xe0\xa5\x80 ट\xe0\xa5\x87क\xe0\xa5\x8dस\xe0\xa5\x8dट",
     {"ह", "\xe0\xa4\xbf", "न", "\xe0\xa5\x8d", "द", "\xe0\xa5\x80", " ट", "\xe0\xa5\x87", "क", "\xe0\xa5\x8d", "स",
      "\xe0\xa5\x8d", "ट"},
     {"ह", "\xe0\xa4\xbfन", "\xe0\xa5\x8dद", "\xe0\xa5\x80", " ट", "\xe0\xa5\x87क", "\xe0\xa5\x8dस", "\xe0\xa5\x8dट"}},
    {"emoji 👩\xe2\x80\x8d👩\xe2\x80\x8d👧\xe2\x80\x8d👦🏽 ok",
     {"emoji", " 👩\xe2\x80\x8d👩\xe2\x80\x8d👧\xe2\x80\x8d👦🏽", " ok"},
     {"emoji", " 👩\xe2\x80\x8d👩\xe2\x80\x8d👧\xe2\x80\x8d👦🏽", " ok"}},
    {"e\xcc\x81 combining", {"e", "\xcc\x81", " combining"}, {"e", "\xcc\x81", " combining"}},
    {"½ Ⅷ ²", {"½", " Ⅷ", " ²"}, {"½", " ", "Ⅷ", " ", "²"}},
    {"nbsp\xc2\xa0here\xe3\x80\x80wide",
     {"nbsp", "\xc2\xa0", "here", "\xe3\x80\x80", "wide"},
     {"nbsp", "\xc2\xa0here", "\xe3\x80\x80wide"}},
    {"\xe1\xa0\x8emongolian sep", {"\xe1\xa0\x8e", "mongolian", " sep"}, {"\xe1\xa0\x8emongolian", " sep"}},
    {"\xe2\x80\xa8ls\xe2\x80\xa9ps\xc2\x85nel",
     {"\xe2\x80\xa8", "ls", "\xe2\x80\xa9", "ps", "\xc2\x85", "nel"},
     {"\xe2\x80\xa8ls", "\xe2\x80\xa9ps", "\xc2\x85nel"}},
    {"_under_score__", {"_", "under", "_", "score", "__"}, {"_under", "_score", "__"}},
    {"(parens)[x]{y}", {"(", "parens", ")[", "x", "]{", "y", "}"}, {"(parens", ")[", "x", "]{", "y", "}"}},
    {"foo(bar)\n\n\nbaz", {"foo", "(", "bar", ")", "\n\n", "\n", "baz"}, {"foo", "(bar", ")\n\n\n", "baz"}},
    {"''s 's'ss", {"''", "s", " '", "s", "'s", "s"}, {"''", "s", " '", "s", "'s", "s"}},
    {"$100,000.00 50%",
     {"$", "100", ",", "000", ".", "00", " 50", "%"},
     {"$", "100", ",", "000", ".", "00", " ", "50", "%"}},
    {"\xe2\x80\x8bzero width", {"\xe2\x80\x8b", "zero", " width"}, {"\xe2\x80\x8bzero", " width"}},
    {"a\x00"
     "b"s,
     {"a", "\x00"s, "b"},
     {"a",
      "\x00"
      "b"s}},
    {"http://x.y/z?q=1&r=2#f",
     {"http", "://", "x", ".", "y", "/", "z", "?", "q", "=", "1", "&", "r", "=", "2", "#", "f"},
     {"http", "://", "x", ".y", "/z", "?q", "=", "1", "&r", "=", "2", "#f"}},
    {" 's", {" '", "s"}, {" '", "s"}},
};

std::vector<std::string> pieces_of(const PreTokenizer& pre, const std::string& text) {
  std::vector<std::string_view> pieces;
  pre.split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(PreTokenizer, MatchesHuggingFace) {
  const PreTokenizer gpt2("gpt-2"), llama3("llama-bpe");
  for (const Split& split : splits) {
    EXPECT_EQ(pieces_of(gpt2, split.text), split.gpt2) << split.text;
    EXPECT_EQ(pieces_of(llama3, split.text), split.llama3) << split.text;
  }
}

TEST(PreTokenizer, NamesSelectOptionsAndUnknownNamesThrow) {
  for (const char* name : {"llama-bpe", "llama3", "llama-v3"}) {
    EXPECT_TRUE(PreTokenizer(name).ignores_merges());
    EXPECT_TRUE(PreTokenizer(name).adds_bos());
  }
  for (const char* name : {"gpt-2", "gpt2", "default"}) {
    EXPECT_FALSE(PreTokenizer(name).ignores_merges());
    EXPECT_FALSE(PreTokenizer(name).adds_bos());
  }
  expect_throw<FormatError>([] { PreTokenizer("qwen9"); },
                            {"tokenizer.ggml.pre = \"qwen9\"", "default, gpt-2", "qwen2"});
}

TEST(PreTokenizer, DefaultSplitsInFourSteps) {
  const PreTokenizer pre("default");
  using Pieces = std::vector<std::string>;
  // The steps split off punctuation (without the space before it), apply GPT-2's pattern, split off numbers, and split
  // numbers into groups of three ASCII digits.
  EXPECT_EQ(pieces_of(pre, "Hello, world"), (Pieces{"Hello", ",", " world"}));
  EXPECT_EQ(pieces_of(pre, "it's"), (Pieces{"it", "'", "s"}));
  EXPECT_EQ(pieces_of(pre, " 12345"), (Pieces{" ", "123", "45"}));
  EXPECT_EQ(pieces_of(pre, "a  $b \xc2\xbd"), (Pieces{"a", "  ", "$", "b", " ", "\xc2\xbd"}));
}

TEST(PreTokenizer, PiecesOfRandomBytesConcatenateToTheInput) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  const std::vector<std::string> parts = {" ",         "  ",
                                          "\n",        "\r\n",
                                          "\t",        "a",
                                          "Zz",        "'s",
                                          "'LL",       "12",
                                          "12345",     "_",
                                          "?!",        "é",
                                          "e\xcc\x81", "漢字",
                                          "👩",        "\xe2\x80\x8d",
                                          "\xc2\xa0",  "\xe3\x80\x80",
                                          "\xff",      "\xe2\x82",
                                          "\xc0\x80",  "\xed\xa0\x80",
                                          "\0"s};
  for (const char* name : {"gpt-2", "llama-bpe", "default"}) {
    const PreTokenizer pre(name);
    for (int run = 0; run < 500; ++run) {
      std::string text;
      for (std::size_t n = rng() % 30; n > 0; --n) {
        if (rng() % 5 == 0)
          text += static_cast<char>(rng());
        else
          text += parts[rng() % parts.size()];
      }
      std::string joined;
      for (const std::string& piece : pieces_of(pre, text)) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      EXPECT_EQ(joined, text);
    }
  }
  EXPECT_EQ(pieces_of(PreTokenizer("gpt-2"), "ab\xff\xfe\xc3(d"),
            (std::vector<std::string>{"ab", "\xff\xfe\xc3", "(", "d"}));
}

TEST(PreTokenizer, SplitsLongRunsInLinearTime) {
  for (const char* name : {"gpt-2", "llama-bpe", "default"}) {
    const PreTokenizer pre(name);
    for (const std::string& unit : {" "s, "a"s, "1"s, "\n"s, "."s, " \n"s, "é"s, "\xff"s}) {
      std::string text;
      while (text.size() < 300000) text += unit;
      std::size_t total = 0;
      for (const std::string& piece : pieces_of(pre, text + "x")) total += piece.size();
      EXPECT_EQ(total, text.size() + 1);
    }
  }
}

// --- Vocabularies ---------------------------------------------------------------------------------------------------

// Returns GPT-2's name of a byte. Independent of the implementation in the library.
std::string byte_name(int byte) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out(256);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool same = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
      const int code = same ? b : next++;
      std::string& s = out[static_cast<std::size_t>(b)];
      if (code < 0x80) {
        s = static_cast<char>(code);
      } else {
        s = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
      }
    }
    return out;
  }();
  return names[static_cast<std::size_t>(byte)];
}
std::string named(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += byte_name(static_cast<unsigned char>(c));
  return out;
}

struct Vocabulary {
  std::string model = "gpt2", pre = "gpt-2";
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  std::vector<std::pair<std::string, GgufValue>> more;

  // Tokens 0 to 255 are the 256 bytes.
  Vocabulary() {
    for (int b = 0; b < 256; ++b) add(byte_name(b));
  }
  TokenId add(const std::string& text, TokenType type = TokenType::normal) {
    tokens.push_back(text);
    types.push_back(static_cast<std::int32_t>(type));
    return static_cast<TokenId>(tokens.size() - 1);
  }
  // Adds a merge and the token that it creates. Both parts are given as bytes.
  TokenId merge(const std::string& left, const std::string& right) {
    merges.push_back(named(left) + " " + named(right));
    return add(named(left + right));
  }
  std::vector<std::byte> bytes() const {
    GgufWriter w;
    w.set("tokenizer.ggml.model", model).set("tokenizer.ggml.tokens", tokens).set("tokenizer.ggml.merges", merges);
    if (!pre.empty()) w.set("tokenizer.ggml.pre", pre);
    if (!types.empty()) w.set("tokenizer.ggml.token_type", types);
    for (const auto& [key, value] : more) w.set(key, value);
    return w.bytes();
  }
  Tokenizer make() const {
    const auto file = bytes();
    return Tokenizer(GgufFile::parse(file, "vocabulary"));
  }
  Vocabulary& with(const std::string& key, GgufValue value) {
    more.emplace_back("tokenizer.ggml." + key, std::move(value));
    return *this;
  }
};

TEST(Tokenizer, MergesByRankThenFromLeftToRight) {
  Vocabulary v;
  const TokenId ab = v.merge("a", "b"), bc = v.merge("b", "c"), aa = v.merge("a", "a"), abc = v.merge("ab", "c");
  const TokenId aaaa = v.merge("aa", "aa");
  const Tokenizer t = v.make();
  EXPECT_EQ(t.encode("ab"), (Ids{ab}));
  EXPECT_EQ(t.encode("abc"), (Ids{abc}));  // ab has the lowest rank
  EXPECT_EQ(t.encode("xbc"), (Ids{'x', bc}));
  EXPECT_EQ(t.encode("aaa"), (Ids{aa, 'a'}));  // equal ranks: the leftmost pair is merged
  EXPECT_EQ(t.encode("aaaa"), (Ids{aaaa}));
  EXPECT_EQ(t.encode("aaaaaaa"), (Ids{aaaa, aa, 'a'}));
  EXPECT_EQ(t.encode("aab"), (Ids{'a', ab}));  // ab has a lower rank than aa
  EXPECT_EQ(t.encode("ab ab"), (Ids{ab, ' ', ab}));
  EXPECT_EQ(t.encode(""), Ids{});
  EXPECT_EQ(t.decode(Ids{abc, ' ', aaaa}), "abc aaaa");
}

TEST(Tokenizer, MergesBytesOfCharacters) {
  Vocabulary v;
  const TokenId e_acute = v.merge("\xc3", "\xa9"), blank_e = v.merge(" ", "\xc3\xa9");
  const Tokenizer t = v.make();
  EXPECT_EQ(t.encode("é"), (Ids{e_acute}));
  EXPECT_EQ(t.encode(" é"), (Ids{blank_e}));
  EXPECT_EQ(t.encode("漢"), (Ids{0xe6, 0xbc, 0xa2}));
  EXPECT_EQ(t.decode(blank_e), " \xc3\xa9");
  EXPECT_EQ(t.decode(0xe6), "\xe6");
  EXPECT_EQ(t.text(' '), "Ġ");
  EXPECT_EQ(t.text('\n'), "Ċ");
  EXPECT_EQ(t.find("Ġ"), std::optional<TokenId>(' '));
  EXPECT_EQ(t.find("no such"), std::nullopt);
}

TEST(Tokenizer, Llama3UsesWholePiecesWithoutMerging) {
  Vocabulary v;
  v.merge("a", "b");
  const TokenId whole = v.add(named(" abc"));  // a token that no merge produces
  v.with("bos_token_id", std::uint32_t{7});
  EXPECT_EQ(v.make().encode(" abc"), (Ids{' ', 256, 'c'}));
  v.pre = "llama-bpe";
  EXPECT_EQ(v.make().encode(" abc"), (Ids{7, whole}));
  EXPECT_EQ(v.make().encode(" abcd"), (Ids{7, ' ', 256, 'c', 'd'}));
  EXPECT_EQ(v.make().encode(" abc", {.add_special = false}), (Ids{whole}));
  v.with("add_bos_token", false);
  EXPECT_EQ(v.make().encode(" abc"), (Ids{whole}));
}

TEST(Tokenizer, AddsBeginAndEndTokensAsConfigured) {
  Vocabulary v;
  const TokenId bos = v.add("<s>", TokenType::control), eos = v.add("</s>", TokenType::control);
  v.with("bos_token_id", static_cast<std::uint32_t>(bos)).with("eos_token_id", static_cast<std::uint32_t>(eos));
  EXPECT_EQ(v.make().encode("x"), (Ids{'x'}));  // "gpt2" vocabularies add no tokens by default
  v.with("add_bos_token", true);
  EXPECT_EQ(v.make().encode("x"), (Ids{bos, 'x'}));
  EXPECT_EQ(v.make().encode(""), (Ids{bos}));
  v.with("add_eos_token", true);
  const Tokenizer t = v.make();
  EXPECT_EQ(t.encode("x"), (Ids{bos, 'x', eos}));
  EXPECT_EQ(t.encode("x", {.add_special = false}), (Ids{'x'}));
  EXPECT_EQ(t.bos(), std::optional(bos));
  EXPECT_EQ(t.eos(), std::optional(eos));
  EXPECT_TRUE(t.is_end(eos));
  EXPECT_FALSE(t.is_end(bos));
  EXPECT_EQ(t.decode(t.encode("x")), "x");
  EXPECT_EQ(t.decode(t.encode("x"), true), "<s>x</s>");
}

TEST(Tokenizer, ParsesSpecialTokensInText) {
  Vocabulary v;
  const TokenId end = v.add("<|end|>", TokenType::control), longer = v.add("<|end|><|end|>", TokenType::control);
  const TokenId tool = v.add("<tool>", TokenType::user_defined), unknown = v.add("<unk>", TokenType::unknown);
  v.add("");  // padding, as in files of some converters
  v.add("");
  const Tokenizer t = v.make();
  const EncodeOptions parse{.parse_special = true};
  EXPECT_EQ(t.encode("a<|end|>b", parse), (Ids{'a', end, 'b'}));
  EXPECT_EQ(t.encode("<|end|>", parse), (Ids{end}));
  EXPECT_EQ(t.encode("<|end|><|end|><|end|>", parse), (Ids{longer, end}));
  EXPECT_EQ(t.encode("<unk><tool>", parse), (Ids{unknown, tool}));
  EXPECT_EQ(t.encode("<|end|>").size(), 7u);               // plain text by default
  EXPECT_EQ(t.encode("x<tool>y"), (Ids{'x', tool, 'y'}));  // always parsed
  EXPECT_EQ(t.decode(t.encode("x<tool>y")), "x<tool>y");
  EXPECT_EQ(t.decode(end), "");
  EXPECT_EQ(t.decode(end, true), "<|end|>");
  EXPECT_TRUE(t.is_end(end));  // recognised by its text
  EXPECT_FALSE(t.is_end(tool));
}

// Sources: the attribute "rstrip" in tokenizer.json of Phi 3 and 3.5, and llama-vocab.cpp.
TEST(Tokenizer, Phi3StripsWhiteSpaceAfterSpecialTokens) {
  const auto make = [](const std::string& name, const std::string& placeholder) {
    Vocabulary v;
    v.model = "llama", v.pre = "";
    v.tokens.clear(), v.types.clear();
    v.add("<unk>", TokenType::unknown), v.add("<s>", TokenType::control), v.add("</s>", TokenType::user_defined);
    for (const std::string& text : {std::string("<|endoftext|>"), std::string("<|assistant|>"), placeholder,
                                    std::string("<|end|>"), std::string("<|user|>")})
      v.add(text, TokenType::control);
    v.add("<0x0A>", TokenType::byte), v.add("a"), v.add("\u2581");
    v.with("scores", GgufArray{std::vector<float>(v.tokens.size())}).with("add_space_prefix", false);
    v.more.emplace_back("general.name", name);
    return v.make();
  };
  const EncodeOptions parse{.add_special = false, .parse_special = true};
  const std::string turn = "<|user|>\na \n<|end|> \n<|assistant|>\n", others = "<s>\n<|endoftext|>\n<unk>\n</s>\na";
  for (const char* name : {"Phi 3.5 Mini Instruct", "phi-3", ""}) {
    const Tokenizer t = make(name, "<|placeholder1|>");
    EXPECT_EQ(t.encode(turn, parse), (Ids{7, 9, 10, 8, 6, 4})) << name;
    EXPECT_EQ(t.encode(others, parse), (Ids{1, 8, 3, 8, 0, 8, 2, 9})) << name;
    EXPECT_EQ(t.encode("</s>\n a"), (Ids{2, 9})) << "user-defined tokens are always parsed";
  }
  EXPECT_EQ(make("phi-3", "<|other|>").encode(turn, parse), (Ids{7, 8, 9, 10, 8, 6, 10, 8, 4, 8}));
}

TEST(Tokenizer, CollectsEndTokensOfAllKeys) {
  Vocabulary v;
  const auto add = [&](const char* key, const char* text) {
    const TokenId id = v.add(text, TokenType::control);
    v.with(key, static_cast<std::uint32_t>(id));
    return id;
  };
  const TokenId eos = add("eos_token_id", "<A>"), eot = add("eot_token_id", "<B>"), eom = add("eom_token_id", "<C>");
  const TokenId named_id = v.add("<|eot_id|>", TokenType::control);
  const TokenId plain = v.add("<|im_end|>");  // an end token, although its type is normal
  const Tokenizer t = v.make();
  EXPECT_EQ(Ids(t.ends().begin(), t.ends().end()), (Ids{eos, eot, eom, named_id, plain}));
  EXPECT_TRUE(t.is_end(plain));
  EXPECT_EQ(t.decode(plain), "");
  EXPECT_FALSE(t.is_end(-1));
}

TEST(Tokenizer, EndOfAMessageIsNoEndInTheHarmonyFormat) {
  Vocabulary v;
  const TokenId end = v.add("<|end|>", TokenType::control), turn = v.add("<|return|>", TokenType::control),
                call = v.add("<|call|>", TokenType::control);
  const Tokenizer t = v.make();
  EXPECT_EQ(Ids(t.ends().begin(), t.ends().end()), (Ids{turn, call}));
  EXPECT_EQ(t.decode(end), "");
}

TEST(Tokenizer, EncodesGaps) {
  Vocabulary v;
  v.add("<|fim_prefix|>");
  const TokenId suffix = v.add("<|fim_suffix|>");
  EXPECT_FALSE(v.make().fill_tokens()) << "one of three is missing";
  expect_throw<ArgumentError>([&] { v.make().encode_gap("a", "b"); }, {"filling in the middle"});
  const TokenId middle = v.add("<|fim_middle|>"), pad = v.add("<|fim_pad|>");
  const TokenId prefix = v.add("<before>", TokenType::control);  // the file's key precedes the known text
  const TokenId bos = v.add("<s>", TokenType::control);
  v.with("fim_pre_token_id", static_cast<std::uint32_t>(prefix));
  EXPECT_EQ(v.make().encode_gap("a", "bc"), (Ids{prefix, 'a', suffix, 'b', 'c', middle}));
  v.with("bos_token_id", static_cast<std::uint32_t>(bos)).with("add_bos_token", true);
  const Tokenizer t = v.make();
  EXPECT_EQ(t.encode_gap("", "b"), (Ids{bos, prefix, suffix, 'b', middle}));
  EXPECT_EQ(t.encode_gap("<s>", "").size(), 7u) << "control tokens in the texts are plain text";
  EXPECT_TRUE(t.is_end(pad) && !t.is_end(middle));
}

TEST(Tokenizer, DecodesNormalTokensOutsideTheByteTable) {
  // Some files declare added tokens as normal tokens, although they contain characters that are not in the byte table.
  Vocabulary v;
  const TokenId odd = v.add("<｜tool▁sep｜>");
  EXPECT_EQ(v.make().decode(odd), "<｜tool▁sep｜>");
}

TEST(Tokenizer, RejectsInvalidVocabularies) {
  const auto refused = [](const std::function<void(Vocabulary&)>& change, std::vector<std::string> parts) {
    Vocabulary v;
    v.merge("a", "b");
    EXPECT_NO_THROW(v.make());
    change(v);
    expect_throw<FormatError>([&] { v.make(); }, parts);
  };
  using V = Vocabulary;
  refused([](V& v) { v.model = "rwkv"; }, {"file = vocabulary", "key = tokenizer.ggml.model",
                                           "\"rwkv\" is not supported", "\"gpt2\"", "\"llama\"", "\"bert\"", "\"t5\""});
  refused([](V& v) { v.pre = "qwen9"; },
          {"file = vocabulary", "\"qwen9\"", "Supported pre-tokenizers: default, gpt-2"});
  refused([](V& v) { v.model = "llama"; }, {"tokenizer.ggml.scores", "does not contain this key"});
  refused([](V& v) { v.model = "llama", v.with("scores", GgufArray{std::vector<float>{1}}); },
          {"there are 1 scores for 257 tokens"});
  refused([](V& v) { v.types.pop_back(); }, {"token_type", "there are 256 types for 257 tokens"});
  refused(
      [](V& v) {
        const std::vector<std::uint8_t> bytes(v.types.begin(), v.types.end());
        v.types.clear();
        v.with("token_type", GgufArray{bytes});
      },
      {"token_type", "array of u8", "i32"});
  refused([](V& v) { v.types[3] = 7; }, {"token 3 has type 7"});
  refused([](V& v) { v.types[3] = -1; }, {"token 3 has type -1"});
  refused([](V& v) { v.add("ab"); }, {"tokenizer.ggml.tokens", "\"ab\" occurs twice (256 and 257)"});
  refused([](V& v) { v.merges.push_back("ab"); }, {"tokenizer.ggml.merges", "merge 1 is \"ab\"; expected two tokens"});
  refused([](V& v) { v.merges.push_back("a "); }, {"merge 1 is \"a \"; expected two tokens"});
  refused([](V& v) { v.merges.push_back(" a"); }, {"merge 1 is \" a\"; expected two tokens"});
  refused([](V& v) { v.with("bos_token_id", std::uint32_t{257}); }, {"bos_token_id", "id is 257", "257 tokens"});
  refused([](V& v) { v.with("eom_token_id", std::uint32_t{~0u}); }, {"eom_token_id", "id is 4294967295"});
  refused([](V& v) { v.with("add_bos_token", true); }, {"add_bos_token", "does not define this token"});
  refused([](V& v) { v.with("add_bos_token", std::string("yes")); }, {"add_bos_token", "type string; expected bool"});
  refused([](V& v) { v.tokens.clear(), v.types.clear(); }, {"the vocabulary has 0 tokens"});

  GgufWriter w;
  w.set("tokenizer.ggml.model", std::string("gpt2"));
  const auto bytes = w.bytes();
  expect_throw<FormatError>([&] { Tokenizer(GgufFile::parse(bytes, "none.gguf")); },
                            {"none.gguf", "tokenizer.ggml.tokens", "does not contain this key"});
}

TEST(Tokenizer, LoadsVocabulariesWithMissingTokens) {
  Vocabulary v;
  for (const char* line : {"xy c", "a xy", "b a"}) v.merges.push_back(line);  // ignored, because "xy" is not a token
  v.tokens[0xff] = "<unk>";
  v.types[0xff] = static_cast<std::int32_t>(TokenType::unknown);
  v.types['i'] = static_cast<std::int32_t>(TokenType::byte);  // as in files of old converters
  const Tokenizer t = v.make();
  EXPECT_EQ(t.encode("ba"), (Ids{'b', 'a'}));
  EXPECT_EQ(t.encode("a\xff"), (Ids{'a'}));  // a byte without a token is dropped
  EXPECT_EQ(t.encode("in"), (Ids{'i', 'n'}));
  expect_throw<ArgumentError>([&] { t.decode(256); }, {"id = 256", "tokens = 256"});
  expect_throw<ArgumentError>([&] { t.decode(-1); }, {"id = -1"});
}

TEST(Tokenizer, WarnsAboutMissingPreTokenizer) {
  Vocabulary v;
  v.pre = "";
  testing::internal::CaptureStderr();
  v.make();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("tokenizer.ggml.pre is missing"), std::string::npos) << said;
}

TEST(Tokenizer, ControlTokensAreNotParsedInPlainRanges) {
  Vocabulary v;
  const TokenId end = v.add("<|end|>", TokenType::control), tool = v.add("<tool>", TokenType::user_defined);
  const Tokenizer t = v.make();
  const std::string text = "<|end|>x<|end|><tool><|end|>";
  const auto encode = [&](std::vector<EncodeOptions::Range> plain) {
    Ids ids = t.encode(text, {.add_special = false, .parse_special = true, .plain = plain});
    EXPECT_EQ(t.decode(ids, true), text);
    return ids;
  };
  EXPECT_EQ(encode({}), (Ids{end, 'x', end, tool, end}));
  EXPECT_EQ(encode({{0, text.size()}}).size(), 7u + 1 + 7 + 1 + 7);
  EXPECT_EQ(encode({{7, 8}, {15, 21}}), (Ids{end, 'x', end, tool, end}));
  const Ids middle = encode({{14, 15}});  // a partial overlap is enough
  EXPECT_EQ(middle.size(), 1u + 1 + 7 + 1 + 1);
  EXPECT_EQ(middle.front(), end);
  EXPECT_EQ(middle.back(), end);
}

// --- Comparison with other tokenizers -------------------------------------------------------------------------------

// Returns the cases that tools/make_tokenizer_cases.py has written: 300 texts, and the CRC-32 of the tokens that
// `tokenizers` and `sentencepiece` produce.
const nlohmann::json& foreign() {
  static const nlohmann::json out = nlohmann::json::parse(std::ifstream(TESSERA_TOKENIZER_CASES));
  return out;
}

TEST(Tokenizer, EachFamilyMatchesHuggingFace) {
  const auto& cases = foreign().at("gpt2");
  const auto texts = foreign().at("texts").get<std::vector<std::string>>();
  ASSERT_EQ(texts.size(), 300u);
  for (const auto& [family, expected] : cases.at("families").items()) {
    GgufWriter w;
    w.set("tokenizer.ggml.model", "gpt2"s).set("tokenizer.ggml.pre", family);
    w.set("tokenizer.ggml.tokens", cases.at("tokens").get<std::vector<std::string>>());
    w.set("tokenizer.ggml.merges", cases.at("merges").get<std::vector<std::string>>());
    const auto bytes = w.bytes();
    const Tokenizer t(GgufFile::parse(bytes, family));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Ids ids = t.encode(texts[i]);
      EXPECT_EQ(crc_of(ids), expected[i].get<std::uint32_t>()) << family << ", " << texts[i] << ": " << shown(t, ids);
      EXPECT_EQ(t.decode(ids), texts[i]);
    }
  }
}

TEST(Tokenizer, LlamaMatchesSentencePiece) {
  const auto texts = foreign().at("texts").get<std::vector<std::string>>();
  for (const auto& one : foreign().at("llama")) {
    GgufWriter w;
    w.set("tokenizer.ggml.model", "llama"s)
        .set("tokenizer.ggml.tokens", one.at("tokens").get<std::vector<std::string>>());
    w.set("tokenizer.ggml.scores", one.at("scores").get<std::vector<float>>());
    w.set("tokenizer.ggml.token_type", one.at("types").get<std::vector<std::int32_t>>());
    w.set("tokenizer.ggml.unknown_token_id", std::uint32_t{0}).set("tokenizer.ggml.bos_token_id", std::uint32_t{1});
    if (!one.at("add_space_prefix").get<bool>()) w.set("tokenizer.ggml.add_space_prefix", false);
    const auto bytes = w.bytes();
    const Tokenizer t(GgufFile::parse(bytes, "llama"));
    EXPECT_TRUE(t.adds_bos());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Ids ids = t.encode(texts[i], {.add_special = false});
      EXPECT_EQ(crc_of(ids), one.at("ids")[i].get<std::uint32_t>()) << texts[i] << ": " << shown(t, ids);
      EXPECT_EQ(t.decode(ids), one.at("decoded")[i].get<std::string>());
      Ids with = t.encode(texts[i]);
      ASSERT_EQ(with.front(), 1);
      EXPECT_EQ(Ids(with.begin() + 1, with.end()), ids);
    }
  }
}

// A slow and simple reference: scans the piece for the best pair before each merge.
Ids merge_naively(const Vocabulary& v, const Tokenizer& t, std::string_view piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.push_back(byte_name(static_cast<unsigned char>(c)));
  while (true) {
    std::size_t best_rank = v.merges.size(), best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = std::find(v.merges.begin(), v.merges.end(), symbols[i] + " " + symbols[i + 1]);
      const auto rank = static_cast<std::size_t>(it - v.merges.begin());
      if (rank < best_rank) best_rank = rank, best_at = i;
    }
    if (best_rank == v.merges.size()) break;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  Ids out;
  for (const std::string& s : symbols) out.push_back(t.find(s).value());
  return out;
}

// Returns a vocabulary with random merges over a small alphabet.
Vocabulary random_vocabulary(std::mt19937_64& rng, int merges) {
  Vocabulary v;
  std::vector<std::string> known = {"a", "b", "c", "\xc3", "\xa9", "\xff"};
  while (merges > 0) {
    const std::string left = known[rng() % known.size()], right = known[rng() % known.size()];
    if (std::find(known.begin(), known.end(), left + right) != known.end() || left.size() + right.size() > 12) continue;
    v.merge(left, right);
    known.push_back(left + right);
    --merges;
  }
  return v;
}

TEST(Tokenizer, MatchesNaiveMerging) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  for (int run = 0; run < 40; ++run) {
    const Vocabulary v = random_vocabulary(rng, 1 + static_cast<int>(rng() % 60));
    const Tokenizer t = v.make();
    for (int i = 0; i < 20; ++i) {
      std::string word;
      for (std::size_t n = rng() % 40; n > 0; --n) word += "abc"[rng() % 3];
      EXPECT_EQ(t.encode(word), merge_naively(v, t, word)) << word;
    }
  }
}

TEST(Tokenizer, RandomBytesRoundTrip) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  for (const char* pre : {"gpt-2", "llama-bpe", "default", ""}) {
    Vocabulary v = random_vocabulary(rng, 80);
    v.pre = pre;
    const Tokenizer t = v.make();
    for (int run = 0; run < 300; ++run) {
      std::string text;
      for (std::size_t n = rng() % 200; n > 0; --n)
        text += rng() % 2 ? static_cast<char>(rng()) : "abc\xc3\xa9 \n1'"[rng() % 9];
      EXPECT_EQ(t.decode(t.encode(text)), text);
      EXPECT_EQ(t.decode(t.encode(text, {.parse_special = true}), true), text);
    }
  }
}

TEST(Tokenizer, EncodesConcurrently) {
  std::mt19937_64 rng(1);
  const Tokenizer t = random_vocabulary(rng, 60).make();
  const std::string text = "abcabc acb 'll 123 bcaé\n  cab";
  const Ids expected = t.encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int run = 0; run < 500; ++run) wrong += t.encode(text) != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, EncodesLongPiecesQuickly) {
  Vocabulary v;
  std::string unit = "a";
  for (int i = 0; i < 10; ++i, unit += unit) v.merge(unit, unit);
  const Tokenizer t = v.make();
  const std::string text(1 << 20, 'a');  // a single piece: an algorithm with quadratic time would take hours
  const Ids ids = t.encode(text);
  EXPECT_EQ(ids.size(), text.size() / 1024);
  EXPECT_EQ(t.decode(ids), text);
}

// --- The shipped model ----------------------------------------------------------------------------------------------

std::filesystem::path shipped_model() {
  for (const auto& entry : std::filesystem::directory_iterator("models"))
    if (entry.path().extension() == ".gguf") return entry.path();
  return {};
}

TEST(ShippedModel, TokensMatchLlamaCpp) {
  const std::filesystem::path reference = "models/reference-tokens.json";
  ASSERT_TRUE(std::filesystem::exists(reference)) << reference << " is missing";
  std::ifstream in(reference);
  const nlohmann::json cases = nlohmann::json::parse(in);
  const Tokenizer t(GgufFile::open(shipped_model()));
  ASSERT_GE(cases.at("strings").size(), 20u);
  for (const auto& one : cases.at("strings")) {
    const auto text = one.at("text").get<std::string>();
    EXPECT_EQ(t.encode(text, {.add_special = false}), one.at("tokens").get<Ids>()) << text;
    if (one.contains("tokens_with_special")) {
      EXPECT_EQ(t.encode(text, {.add_special = false, .parse_special = true}), one.at("tokens_with_special").get<Ids>())
          << text;
    }
  }
}

TEST(ShippedModel, RealTextRoundTrips) {
  ASSERT_TRUE(std::filesystem::exists("models") && !shipped_model().empty()) << "no model in models/";
  const Tokenizer t(GgufFile::open(shipped_model()));
  std::ifstream in("LICENSE");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(text.size(), 10000u);
  const Ids ids = t.encode(text, {.add_special = false});
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_LT(ids.size(), text.size() * 2 / 3);
}

// --- UTF-8 ----------------------------------------------------------------------------------------------------------

TEST(Utf8, ClassifiesCharactersAndInvalidBytes) {
  using Kind = Utf8Unit::Kind;
  const auto expect = [](std::string_view text, Kind kind, std::size_t size, char32_t code = 0) {
    const Utf8Unit unit = utf8_unit(text);
    EXPECT_EQ(unit.kind, kind);
    EXPECT_EQ(unit.size, size);
    if (kind == Kind::character) {
      EXPECT_EQ(unit.code, code);
      std::string back;
      append_utf8(back, code);
      EXPECT_EQ(back, text.substr(0, size));
    }
  };
  expect("a", Kind::character, 1, 'a');
  expect("\xc2\x80", Kind::character, 2, 0x80);
  expect("\xe0\xa0\x80", Kind::character, 3, 0x800);
  expect("\xed\x9f\xbf", Kind::character, 3, 0xd7ff);
  expect("\xee\x80\x80", Kind::character, 3, 0xe000);
  expect("\xf0\x90\x80\x80", Kind::character, 4, 0x10000);
  expect("\xf4\x8f\xbf\xbf", Kind::character, 4, 0x10ffff);
  expect("\x80", Kind::invalid, 1);
  expect("\xc0\x80", Kind::invalid, 1);  // overlong
  expect("\xc1\xbf", Kind::invalid, 1);
  expect("\xe0\x9f\xbf", Kind::invalid, 1);
  expect("\xed\xa0\x80", Kind::invalid, 1);  // surrogate
  expect("\xf0\x8f\xbf\xbf", Kind::invalid, 1);
  expect("\xf4\x90\x80\x80", Kind::invalid, 1);  // above U+10FFFF
  expect("\xf5\x80\x80\x80", Kind::invalid, 1);
  expect("\xff", Kind::invalid, 1);
  expect("\xe2\x82x", Kind::invalid, 2);
  expect("\xe2", Kind::partial, 1);
  expect("\xe2\x82", Kind::partial, 2);
  expect("\xf0\x9f\x98", Kind::partial, 3);
}

TEST(Utf8Stream, NeverSplitsACharacter) {
  const std::string text = "a é 漢字 👩‍👩‍👧 z";
  for (std::size_t step = 1; step < 8; ++step) {
    Utf8Stream stream;
    std::string all;
    for (std::size_t at = 0; at < text.size(); at += step) {
      const std::string part = stream.push(std::string_view(text).substr(at, step));
      for (std::string_view rest = part; !rest.empty();) {
        const Utf8Unit unit = utf8_unit(rest);
        ASSERT_EQ(unit.kind, Utf8Unit::Kind::character);
        rest.remove_prefix(unit.size);
      }
      EXPECT_LE(stream.pending(), 3u);
      all += part;
    }
    EXPECT_EQ(all + stream.flush(), text);
  }
}

TEST(Utf8Stream, ReplacesOrPassesInvalidBytes) {
  Utf8Stream replace, pass(Utf8Stream::Invalid::pass);
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(replace.push("a\xff"
                         "b\xe2\x82"),
            "a" + mark + "b");
  EXPECT_EQ(replace.push("x"), mark + "x");  // one mark for the two bytes of an incomplete character
  EXPECT_EQ(replace.push("\xf0\x9f"), "");
  EXPECT_EQ(replace.pending(), 2u);
  EXPECT_EQ(replace.flush(), mark);
  EXPECT_EQ(replace.flush(), "");
  EXPECT_EQ(pass.push("a\xff"
                      "b\xe2\x82"),
            "a\xff"
            "b");
  EXPECT_EQ(pass.push("x"), "\xe2\x82x");
  EXPECT_EQ(pass.push("\xf0\x9f"), "");
  EXPECT_EQ(pass.flush(), "\xf0\x9f");
}

}  // namespace
}  // namespace tessera
