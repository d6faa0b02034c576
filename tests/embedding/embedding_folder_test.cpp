// SPDX-License-Identifier: Apache-2.0
// Folders of embedding models, as written by sentence-transformers. The models are those of tests/data/embeddings.json,
// whose figures embedding_model_test compares with sentence-transformers; a folder must have the bits of the GGUF file.
// The vocabularies are those of tests/data/embedding_tokenizers.json, with the ids of tokenizers and sentencepiece.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tessera/llm/embedding_model.h"
#include "tests/embedding/embedding_folder.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"
#include "tests/tokenizer/token_ids.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_throw;
constexpr Device cpu{Backend::cpu, 0};

const json& vocabularies() {
  static const json all = json::parse(std::ifstream("tests/data/embedding_tokenizers.json"));
  return all;
}

using test::embedding_case;
using test::unigram;
using test::word_piece;
constexpr const char *transformer = test::transformer_module, *pooling = test::pooling_module,
                     *normalize = test::normalize_module;

class EmbeddingFolders : public testing::Test {
 protected:
  /// Writes a folder with these modules, and the configuration of pooling.
  std::string write(test::ModelFolder m, std::initializer_list<const char*> modules, const std::string& config,
                    const std::string& further = {}) {
    const std::string path = scratch / std::to_string(count_++);
    std::string all;
    for (const char* module : modules) all += (all.empty() ? "[" : ",") + std::string(module);
    if (modules.size() > 0) m.further_files["modules.json"] = all + "]";
    if (!further.empty()) m.further_files["sentence_bert_config.json"] = further;
    test::write_folder(path, m);
    std::filesystem::create_directories(path + "/1_Pooling");
    test::put_file(path + "/1_Pooling/config.json", config);
    return path;
  }
  static EmbeddingModel load(const std::string& path) { return EmbeddingModel::load(path, {&cpu, 1}); }

  const test::Folder scratch;

 private:
  int count_ = 0;
};

TEST_F(EmbeddingFolders, HaveTheEmbeddingsOfFiles) {
  const std::pair<const char*, const char*> cases[] = {
      {"BERT", R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false})"},
      {"XLM-R", R"({"pooling_mode":"mean","include_prompt":true})"},
      {"Nomic Embed", R"({"pooling_mode_mean_tokens":true})"},
      {"Qwen 3 Embedding", R"({"pooling_mode_lasttoken":true})"}};
  for (const auto& [name, config] : cases) {
    SCOPED_TRACE(name);
    const EmbeddingModel folder = load(write(test::embedding_folder(name), {transformer, pooling, normalize}, config));
    const auto bytes = test::embedding_writer(embedding_case(name)).bytes();
    const EmbeddingModel file = EmbeddingModel::load(GgufFile::parse(bytes, "model.gguf"), {&cpu, 1});
    EXPECT_EQ(folder.pooling(), file.pooling());
    EXPECT_EQ(folder.context_length(), file.context_length());
    const auto texts = test::embedding_texts();
    const auto of_folder = folder.embed(texts), of_file = file.embed(texts);
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(of_folder[i].values, of_file[i].values) << i;
    EXPECT_EQ(folder.embed("a cat").values, file.embed("a cat").values);
  }
}

TEST_F(EmbeddingFolders, VocabulariesHaveTheSameIds) {
  auto texts =
      json::parse(std::ifstream("tests/data/tokenizer_cases.json")).at("texts").get<std::vector<std::string>>();
  for (const json& text : vocabularies()["texts"]) texts.push_back(text.get<std::string>());
  std::vector<std::pair<json, const json*>> all;
  for (const json& c : vocabularies()["bert"])
    all.emplace_back(word_piece(c["tokens"].get<std::vector<std::string>>(),
                                c["types"].get<std::vector<std::int32_t>>(), c["lowercase"], c["strip_accents"]),
                     &c);
  for (const json& c : vocabularies()["t5"])
    if (c["spaces"]) all.emplace_back(unigram(c), &c);
  for (const auto& [tokenizer, c] : all) {
    const bool is_bert = tokenizer["model"]["type"] == "WordPiece";
    test::ModelFolder m = test::embedding_folder(is_bert ? "BERT" : "XLM-R");
    m.tokenizer = tokenizer;
    m.config["vocab_size"] = 100000;
    const Tokenizer t(GgufFile::open(write(m, {}, "{}")));
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(test::crc_of(t.encode(texts[i], {.add_special = false})), (*c)["ids"][i].get<std::uint32_t>())
          << texts[i];
    const auto ids = t.encode("x");
    EXPECT_EQ(t.text(ids.front()), is_bert ? "[CLS]" : "<s>");
    EXPECT_EQ(t.text(ids.back()), is_bert ? "[SEP]" : "</s>");
  }
}

TEST_F(EmbeddingFolders, UnigramsNeedStepsThatRemoveExtraSpaces) {
  const json& all = vocabularies()["t5"];
  const json& c = *std::ranges::find_if(all, [](const json& v) { return v["spaces"].get<bool>(); });
  const json standard = unigram(c), charsmap = standard["normalizer"], metaspace = standard["pre_tokenizer"];
  const json words = metaspace["pretokenizers"][0], mark = metaspace["pretokenizers"][1];
  const auto replace = [](const char* content) {
    return json{{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", content}};
  };
  const auto strip = [](bool left, bool right) {
    return json{{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
  };
  const auto read = [&](const json& normalizers, const json& splits) {
    test::ModelFolder m = test::embedding_folder("XLM-R");
    m.tokenizer = standard;
    m.config["vocab_size"] = 100000;
    m.tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    m.tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", splits}};
    return Tokenizer(GgufFile::open(write(m, {}, "{}")));
  };
  const Tokenizer split = read(json::array({charsmap}), json::array({words, mark}));
  for (const json& normalizers : {json::array({charsmap, strip(false, true), replace("\u2581")}),
                                  json::array({charsmap, replace(" "), strip(true, true)})}) {
    const Tokenizer merged = read(normalizers, json::array({mark}));
    for (const char* text : {"the   end", "  the end  ", "the end", "   ", ""})
      EXPECT_EQ(merged.encode(text), split.encode(text)) << text;
  }
  EXPECT_EQ(split.encode("the   end  "), split.encode("the end"));
  const auto refused = [&](const json& normalizers, const json& splits, std::initializer_list<std::string_view> parts) {
    expect_throw<FormatError>([&] { read(normalizers, splits); }, parts);
  };
  refused(json::array({charsmap}), json::array({mark}), {"tokenizer.json", "no step merges spaces", "WhitespaceSplit"});
  refused(json::array({charsmap, strip(false, true)}), json::array({mark}), {"no step merges spaces"});
  refused(json::array({charsmap, replace(" ")}), json::array({mark}), {"no step removes spaces at the end"});
  refused(json::array({charsmap, replace("\u2581")}), json::array({words, mark}), {"normalizers[1].content", "Strip"});
  refused(json::array({charsmap, replace("\u2581"), strip(false, true)}), json::array({mark}), {"content", "Strip"});
  refused(json::array({charsmap, strip(true, false)}), json::array({words, mark}), {"normalizers[1].type", "Strip"});
  refused(json::array({strip(false, true), charsmap}), json::array({words, mark}), {"[1].type", "Precompiled"});
  refused(json::array(), json::array({words, mark}), {"normalizer", "Precompiled"});
}

TEST_F(EmbeddingFolders, ModulesDecideAboutLengths) {
  const char* const cls = R"({"pooling_mode":"cls"})";
  const EmbeddingModel m =
      load(write(test::embedding_folder("BERT"), {transformer, pooling}, cls, R"({"max_seq_length":20})"));
  EXPECT_EQ(m.pooling(), Pooling::cls);
  EXPECT_FALSE(m.normalizes());
  const auto length = [](const EmbeddingResult& r) {
    double squares = 0;
    for (const float v : r.values) squares += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(squares);
  };
  EXPECT_GT(std::fabs(length(m.embed("a cat")) - 1), 1e-3);
  EXPECT_NEAR(length(m.embed("a cat", {.normalize = true})), 1, 1e-6);
  EXPECT_EQ(m.context_length(), 20);
  const std::string longer(50, '.');
  expect_throw<ArgumentError>([&] { m.embed(longer); }, {"52", "20", "--truncate"});
  EXPECT_EQ(m.embed(longer, {.truncate = true}).tokens, 20);
  // Older versions of sentence-transformers named the file after the class of the model.
  for (const char* model : {"roberta", "xlm-roberta"}) {
    test::ModelFolder older = test::embedding_folder("BERT");
    older.further_files[std::string("sentence_") + model + "_config.json"] = R"({"max_seq_length":30})";
    EXPECT_EQ(load(write(older, {transformer, pooling}, cls)).context_length(), 30) << model;
    EXPECT_EQ(load(write(older, {transformer, pooling}, cls, R"({"max_seq_length":20})")).context_length(), 20);
  }
  // Without modules.json, the mean is normalised.
  const EmbeddingModel plain = load(write(test::embedding_folder("BERT"), {}, cls));
  EXPECT_EQ(plain.pooling(), Pooling::mean);
  EXPECT_TRUE(plain.normalizes());
}

TEST_F(EmbeddingFolders, RejectChangesOfTheText) {
  const char* const mean = R"({"pooling_mode":"mean"})";
  const auto with = [&](bool lowercase, const char* prompts, const char* bert) {
    test::ModelFolder m = test::embedding_folder("BERT");
    m.tokenizer["normalizer"]["lowercase"] = lowercase;
    m.further_files["config_sentence_transformers.json"] = prompts;
    return load(write(m, {transformer, pooling}, mean, bert));
  };
  const char *const keep = R"({"do_lower_case":false})", *const lower = R"({"do_lower_case":true})";
  const char* const prompts = R"({"prompts":{"query":"find: ","document":""},"default_prompt_name":null})";
  EXPECT_EQ(with(true, prompts, lower).embed("A cat").values, with(true, "{}", keep).embed("a cat").values);
  EXPECT_EQ(with(false, prompts, keep).architecture(), "bert");
  EXPECT_EQ(with(true, R"({"prompts":{"document":""},"default_prompt_name":"document"})", keep).architecture(), "bert");
  expect_throw<FormatError>([&] { with(false, prompts, lower); }, {"sentence_bert_config.json", "do_lower_case"});
  expect_throw<FormatError>(
      [&] { with(true, R"({"prompts":{"query":"find: "},"default_prompt_name":"query"})", keep); },
      {"config_sentence_transformers.json", "default_prompt_name", "query", "find: ", "--prefix"});
  expect_throw<FormatError>([&] { with(true, R"({"prompts":{},"default_prompt_name":"query"})", keep); },
                            {"default_prompt_name", "there is no prompt"});
}

TEST_F(EmbeddingFolders, RejectOtherModulesTokenizersAndConfigurations) {
  const char* const mean = R"({"pooling_mode":"mean"})";
  const auto refused = [&](std::initializer_list<const char*> modules, const std::string& config,
                           std::initializer_list<std::string_view> parts) {
    expect_throw<FormatError>([&] { load(write(test::embedding_folder("BERT"), modules, config)); }, parts);
  };
  const char* const dense = R"({"path":"2_Dense","type":"sentence_transformers.models.Dense"})";
  const char* const elsewhere = R"({"path":"0_Transformer","type":"sentence_transformers.models.Transformer"})";
  const char* const outside = R"({"path":"../1_Pooling","type":"sentence_transformers.models.Pooling"})";
  const char* const absolute = R"({"path":"/etc","type":"sentence_transformers.models.Pooling"})";
  refused({transformer, pooling, dense}, mean, {"modules.json", "modules[2].type", "Dense"});
  refused({elsewhere, pooling}, mean, {"modules.json", "modules[0].path", "0_Transformer"});
  refused({transformer, outside}, mean, {"modules.json", "modules[1].path", "../1_Pooling"});
  refused({transformer, absolute}, mean, {"modules.json", "modules[1].path", "/etc"});
  refused({transformer}, mean, {"modules.json", "no module for the pooling"});
  refused({transformer, pooling}, R"({"pooling_mode":"max"})", {"1_Pooling/config.json", "pooling_mode", "max"});
  refused({transformer, pooling}, R"({"pooling_mode":"median"})", {"pooling_mode", "unknown"});
  refused({transformer, pooling}, R"({"pooling_mode_max_tokens":true,"pooling_mode_cls_token":true})",
          {"pooling_mode_max_tokens", "several"});
  refused({transformer, pooling}, R"({"pooling_mode":"mean","include_prompt":false})", {"include_prompt"});
  const auto changed = [&](const char* pointer, const json& value, std::initializer_list<std::string_view> parts) {
    test::ModelFolder m = test::embedding_folder("XLM-R");
    const std::string where = pointer;
    json& file = where.starts_with("/config") ? m.config : m.tokenizer;
    file[json::json_pointer(where.substr(where.find('/', 1)))] = value;
    expect_throw<FormatError>([&] { load(write(m, {}, mean)); }, parts);
  };
  changed("/config/hidden_act", "relu", {"config.json", "hidden_act", "relu"});
  changed("/config/position_embedding_type", "relative_key", {"position_embedding_type"});
  changed("/config/is_decoder", true, {"is_decoder"});
  changed("/config/max_position_embeddings", 2, {"max_position_embeddings"});
  changed("/config/pad_token_id", 200, {"max_position_embeddings"});
  changed("/tokenizer/model/continuing_subword_prefix", "@@", {"model.continuing_subword_prefix"});
  changed("/tokenizer/normalizer/clean_text", false, {"normalizer.type", "BertNormalizer"});
  changed("/tokenizer/pre_tokenizer/type", "Whitespace", {"pre_tokenizer.type", "Whitespace"});
  changed("/tokenizer/post_processor", nullptr, {"post_processor"});
  test::ModelFolder nomic = test::embedding_folder("Nomic Embed");
  const json usual = nomic.config;
  for (const auto& [key, value] : {std::pair<const char*, json>("activation_function", "gelu"),
                                   {"prenorm", true},
                                   {"rotary_emb_fraction", 0.5},
                                   {"rotary_scaling_factor", 2},
                                   {"moe_every_n_layers", 2},
                                   {"head_dim", 16}}) {
    nomic.config = usual;
    nomic.config[key] = value;
    expect_throw<FormatError>([&] { load(write(nomic, {}, mean)); }, {"config.json", key});
  }
}

}  // namespace
}  // namespace tessera
