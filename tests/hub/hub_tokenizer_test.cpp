// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json files. The ids of each text must be those of Hugging Face's tokenizers, which
// tools/check_hub_folders.py wrote to tests/data/hub_tokenizers.json.
#include <gtest/gtest.h>

#include "tessera/llm/gguf_values.h"
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
