// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json files. The ids of each text must be those of Hugging Face's tokenizers, which
// tools/check_hub_folders.py wrote to tests/data/hub_tokenizers.json.
#include <gtest/gtest.h>

#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer.h"
#include "tests/hub/model_folder.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_throw;
using test::ModelFolder;

const json& cases() {
  static const json all = json::parse(std::ifstream("tests/data/hub_tokenizers.json"));
  return all;
}

const json& tokenizer_of(const std::string& name) {
  for (const json& c : cases()["cases"])
    if (c["name"] == name) return c["tokenizer"];
  throw std::logic_error("no such tokenizer: " + name);
}

/// Writes a folder with this tokenizer and returns its tokenizer.
Tokenizer load(const test::Folder& scratch, const json& tokenizer, const std::string& settings = "{}") {
  ModelFolder m = test::folder_of(test::folder_cases[0]);
  m.tokenizer = tokenizer;
  m.config["vocab_size"] = 1000;
  m.further_files["tokenizer_config.json"] = settings;
  test::write_folder(scratch / "m", m);
  return Tokenizer(GgufFile::open(scratch / "m"));
}

TEST(HubTokenizer, IdsAreThoseOfTokenizers) {
  const test::Folder scratch;
  for (const json& c : cases()["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const Tokenizer t = load(scratch, c["tokenizer"]);
    for (std::size_t i = 0; i < cases()["texts"].size(); ++i) {
      const auto text = cases()["texts"][i].get<std::string>();
      EXPECT_EQ(t.encode(text, {.parse_special = true}), c["ids"][i].get<std::vector<TokenId>>()) << text;
    }
  }
}

TEST(HubTokenizer, TextIsNormalisedIfTheTokenizerDoesSo) {
  const test::Folder scratch;
  json tokenizer = tokenizer_of("qwen2");
  const std::string apart = "nai\u0308ve e\u0301 <|end|>e\u0301", together = "na\u00efve \u00e9 <|end|>\u00e9";
  const Tokenizer normalises = load(scratch, tokenizer);
  EXPECT_EQ(normalises.encode(apart, {.parse_special = true}), normalises.encode(together, {.parse_special = true}));
  tokenizer.erase("normalizer");
  const Tokenizer plain = load(scratch, tokenizer);
  EXPECT_NE(plain.encode(apart), plain.encode(together));
  EXPECT_EQ(plain.encode(together), normalises.encode(apart));
}

// Files of Gemma 4 have the vocabulary and the ranked merges of its tokenizer.json, and no key about spaces.
TEST(HubTokenizer, FilesOfGemma4HaveTheSameIds) {
  const test::Folder scratch;
  for (const json& c : cases()["cases"]) {
    if (c["name"] != "gemma") continue;
    ModelFolder m = test::folder_of(test::folder_cases[0]);
    m.tokenizer = c["tokenizer"];
    m.config["vocab_size"] = 1000;
    test::write_folder(scratch / "m", m);
    const GgufFile folder = GgufFile::open(scratch / "m");
    GgufWriter w;
    w.set("tokenizer.ggml.model", std::string("gemma4")).set("tokenizer.ggml.add_bos_token", false);
    for (const char* key : {"tokens", "token_type", "merges", "bos_token_id", "eos_token_id", "unknown_token_id"})
      if (const GgufValue* value = folder.find(std::string("tokenizer.ggml.") + key))
        w.set(std::string("tokenizer.ggml.") + key, *value);
    const auto bytes = w.bytes();
    const Tokenizer t(GgufFile::parse(bytes, "gemma4.gguf"));
    EXPECT_TRUE(t.adds_bos());
    std::size_t i = 0;
    for (const json& text : cases()["texts"]) {
      const auto ids = c["ids"][i++].get<std::vector<TokenId>>();
      // This tokenizer removes white space after <|user|>, which is not recorded in GGUF files, and not in Gemma 4's.
      if (text.get<std::string>().find("<|user|>") == std::string::npos) {
        EXPECT_EQ(t.encode(text.get<std::string>(), {.parse_special = true}), ids) << text;
      }
    }
    return;
  }
  FAIL() << "no such tokenizer";
}

TEST(HubTokenizer, MergesMayBePairs) {
  const test::Folder scratch;
  json tokenizer = tokenizer_of("llama3");
  for (json& merge : tokenizer["model"]["merges"]) {
    if (merge.is_array()) continue;
    const auto line = merge.get<std::string>();
    const std::size_t space = line.find(' ');
    merge = json{line.substr(0, space), line.substr(space + 1)};
  }
  const std::string text = "The quick brown kernel";
  const auto pairs = load(scratch, tokenizer).encode(text);
  for (json& merge : tokenizer["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  EXPECT_EQ(load(scratch, tokenizer).encode(text), pairs);
  EXPECT_LT(pairs.size(), text.size());
}

TEST(HubTokenizer, ConfigurationDecidesAboutBeginTokensWithoutTemplate) {
  const test::Folder scratch;
  json tokenizer = tokenizer_of("llama3");
  const Tokenizer with_template = load(scratch, tokenizer);
  EXPECT_TRUE(with_template.adds_bos());
  EXPECT_EQ(with_template.bos(), with_template.find("<s>"));
  tokenizer.erase("post_processor");
  EXPECT_FALSE(load(scratch, tokenizer).adds_bos());
  EXPECT_TRUE(load(scratch, tokenizer, R"({"bos_token":"<s>","add_bos_token":true})").adds_bos());
  EXPECT_FALSE(load(scratch, tokenizer, R"({"bos_token":"<s>","add_bos_token":false})").adds_bos());
}

TEST(HubTokenizer, RejectsOtherWaysToPrepareText) {
  const test::Folder scratch;
  const auto refused = [&](const char* name, const char* pointer, const json& value,
                           std::initializer_list<std::string_view> parts) {
    json tokenizer = tokenizer_of(name);
    tokenizer[json::json_pointer(pointer)] = value;
    expect_throw<FormatError>([&] { load(scratch, tokenizer); }, parts);
  };
  refused("llama3", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+", {"pre_tokenizer", "\\w+", "Llama 3"});
  refused("llama3", "/pre_tokenizer/pretokenizers/0/behavior", "Removed", {"pretokenizers[0].type", "Split"});
  refused("qwen2", "/model/ignore_merges", true, {"pre_tokenizer", "ignore_merges"});
  refused("qwen2", "/normalizer/type", "NFKC", {"normalizer.type", "NFKC"});
  refused("llama2", "/model/vocab/<0x41>", nullptr, {"model.vocab.<0x41>"});
  refused("llama2", "/normalizer/normalizers/0/prepend", "x", {"normalizers[0].type", "Prepend"});
  refused("llama2", "/normalizer", nullptr, {"normalizer", "U+2581"});
  refused("llama2", "/model/ignore_merges", true, {"model.ignore_merges"});
  refused("metaspace", "/pre_tokenizer/split", true, {"pre_tokenizer.type", "Metaspace"});
  refused("metaspace", "/added_tokens/0/single_word", true, {"added_tokens[0].single_word"});
}

}  // namespace
}  // namespace tessera
