// SPDX-License-Identifier: Apache-2.0
// Loads model folders as downloaded from the Hugging Face hub. Each model must have the tensors that llama.cpp's
// converter writes, and the logits of transformers (tests/data/architectures.json).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tessera/base/half.h"
#include "tessera/llm/chat_session.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/inspect.h"
#include "tessera/llm/llama.h"
#include "tessera/llm/quantize_model.h"
#include "tessera/llm/tokenizer.h"
#include "tests/hub/model_folder.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_throw;
using test::FolderTensor;
using test::ModelFolder;

constexpr Device cpu{Backend::cpu, 0};

std::vector<float> floats(const std::vector<std::byte>& bytes) { return ggml_to_float(GgmlType::f32, bytes); }

TEST(HubFolder, EveryFamilyHasTheTensorsOfTheConverterAndTheLogitsOfTransformers) {
  const test::Folder scratch;
  const std::string path = scratch / "model";
  for (const test::FolderCase& c : test::folder_cases) {
    SCOPED_TRACE(c.name);
    ModelFolder m = test::folder_of(c);
    m.shards = 1 + std::strlen(c.name) % 3;
    test::write_folder(path, m);
    const GgufFile file = GgufFile::open(path);
    const json& figures = test::figures_of(c.name);
    EXPECT_EQ(file.tensors().size(), figures["tensors"].size());
    for (const json& t : figures["tensors"]) {
      const GgufTensor& have = file.tensor(t[0].get<std::string>());
      const auto dims = t[1].get<std::vector<std::uint64_t>>();
      ASSERT_EQ(have.dims, dims) << have.name;
      const std::vector<float> got = floats(file.data(have));
      if (t.size() == 2) {
        EXPECT_EQ(got, test::weights_of(have.name, dims)) << have.name;
        std::vector<std::byte> part(have.bytes / 2);  // a range that begins and ends inside of rows
        const std::size_t begin = std::min<std::size_t>(5, have.bytes - part.size());
        file.read(have, begin, part);
        EXPECT_EQ(std::memcmp(part.data(), file.data(have).data() + begin, part.size()), 0) << have.name;
      } else {
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], t[2][i].get<float>(), 1e-6 * std::fabs(t[2][i].get<double>())) << have.name;
      }
    }
    const Llama model = Llama::load(file, cpu);
    KeyValueCache cache = model.make_cache(figures["context"].get<std::int64_t>(), DType::f32);
    const auto tokens = test::tokens_of(figures);
    const auto all = model.forward(tokens, cache, true).to_vector<float>();
    const auto at = figures["at"].get<std::vector<std::size_t>>();
    for (std::size_t i = 0; i < at.size(); ++i)
      EXPECT_LE(
          test::apart(std::span(all).subspan(at[i] * 64, 64), figures["transformers"][i].get<std::vector<double>>()),
          1e-5)
          << "after token " << at[i];
  }
}

const test::FolderCase& case_of(const std::string& kind) {
  for (const test::FolderCase& c : test::folder_cases)
    if (c.kind == kind) return c;
  throw std::logic_error("no such class: " + kind);
}

TEST(HubFolder, RejectsMissingAndWrongExperts) {
  const test::Folder scratch;
  const auto refused = [&](const char* kind, const std::function<void(ModelFolder&)>& change,
                           std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(kind);
    ModelFolder m = test::folder_of(case_of(kind));
    m.shards = 2;
    change(m);
    test::write_folder(scratch / "m", m);
    expect_throw<FormatError>([&] { Llama::load(GgufFile::open(scratch / "m"), cpu); }, parts);
  };
  for (const auto& [kind, name] : {std::pair("Qwen3Moe", "model.layers.1.mlp.experts.2.up_proj.weight"),
                                   std::pair("Mixtral", "model.layers.1.block_sparse_moe.experts.2.w3.weight")}) {
    refused(kind, [&](ModelFolder& m) { m.tensors.erase(name); }, {"model.layers.1.", "8 experts", "7"});
    refused(kind, [&](ModelFolder& m) { m.tensors.at(name).shape[0] /= 2, m.tensors.at(name).shape[1] *= 2; },
            {name, "shape"});
    refused(kind,
            [&](ModelFolder& m) { m.config[kind == std::string("Mixtral") ? "num_local_experts" : "num_experts"] = 4; },
            {"experts.4", "4 experts"});
  }
  refused("GraniteMoe", [](ModelFolder& m) { m.config["num_local_experts"] = 4; },
          {"block_sparse_moe.output_linear.weight", "4 experts", "(8, 32, 64)"});
  refused("GptOss",
          [](ModelFolder& m) {
            m.tensors.at("model.layers.0.mlp.experts.gate_up_proj").shape = {8, 64, 32};
          },
          {"model.layers.0.mlp.experts.gate_up_proj", "4 experts", "(8, 64, 32)"});
  refused("Qwen2Moe", [](ModelFolder& m) { m.config["norm_topk_prob"] = true; }, {"config.json", "norm_topk_prob"});
  refused("Qwen3Moe", [](ModelFolder& m) { m.config["norm_topk_prob"] = nullptr; }, {"config.json", "norm_topk_prob"});
}

/// Replaces a matrix of gpt-oss by random blocks. Returns their values, as the format defines them: a code is a sign,
/// two bits of exponent and one of mantissa, and a factor is a power of two.
std::vector<float> set_mxfp4(ModelFolder& m, const std::string& name, std::int64_t rows, std::int64_t columns) {
  const std::int64_t experts = 4;
  const auto blocks = static_cast<std::size_t>(experts * rows * columns / 32);
  FolderTensor codes{"U8", {experts, rows, columns / 32, 16}, ""}, factors{"U8", {experts, rows, columns / 32}, ""};
  std::vector<float> values;
  const auto bytes = test::bits_of(name, 16 * blocks), exponents = test::bits_of(name + " factors", blocks);
  constexpr float sizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (std::size_t b = 0; b < blocks; ++b) {
    const int exponent = static_cast<int>(exponents[b] % 8) - 6;
    factors.data.push_back(static_cast<char>(exponent + 127));
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t byte = bytes[16 * b + i] & 255;
      codes.data.push_back(static_cast<char>(byte));
      for (const std::uint32_t code : {byte & 15, byte >> 4})
        values.push_back(std::ldexp(code & 8 ? -sizes[code & 7] : sizes[code & 7], exponent));
    }
  }
  m.tensors.erase(name);
  m.tensors[name + "_blocks"] = codes, m.tensors[name + "_scales"] = factors;
  return values;
}

TEST(HubFolder, ReadsMxfp4) {
  const test::Folder scratch;
  ModelFolder m = test::folder_of(case_of("GptOss"));
  m.config["quantization_config"] = {{"quant_method", "mxfp4"}};
  const std::string layer = "model.layers.1.mlp.experts.";
  const auto gate_up = set_mxfp4(m, layer + "gate_up_proj", 128, 32), down = set_mxfp4(m, layer + "down_proj", 32, 64);
  test::write_folder(scratch / "m", m);
  const GgufFile file = GgufFile::open(scratch / "m", GgmlType::q8_0);
  const auto values_of = [&](const char* name) {
    const GgufTensor& t = file.tensor(std::string("blk.1.") + name);
    EXPECT_EQ(t.type, GgmlType::mxfp4);
    std::vector<std::byte> part(t.bytes / 3);  // a range that begins and ends inside of blocks
    file.read(t, 21, part);
    EXPECT_EQ(std::memcmp(part.data(), file.data(t).data() + 21, part.size()), 0) << name;
    return ggml_to_float(t.type, file.data(t));
  };
  EXPECT_EQ(values_of("ffn_down_exps.weight"), down);
  const auto gate = values_of("ffn_gate_exps.weight"), up = values_of("ffn_up_exps.weight");
  ASSERT_EQ(gate.size() + up.size(), gate_up.size());
  for (std::size_t i = 0; i < gate_up.size(); ++i)
    ASSERT_EQ((i / 32 % 2 == 0 ? gate : up)[i / 64 * 32 + i % 32], gate_up[i]);
  EXPECT_EQ(Llama::load(file, cpu).config().experts, 4);
  m.tensors.at(layer + "down_proj_scales").shape = {4, 16, 4};
  test::write_folder(scratch / "m", m);
  expect_throw<FormatError>([&] { GgufFile::open(scratch / "m"); }, {layer + "down_proj_scales", "(4, 16, 4)"});
  m.tensors.erase(layer + "down_proj_scales");
  test::write_folder(scratch / "m", m);
  expect_throw<FormatError>([&] { GgufFile::open(scratch / "m"); }, {layer + "down_proj_blocks", "_scales"});
}

TEST(HubFolder, ConvertsMatricesToTheRequestedType) {
  const test::Folder scratch;
  const std::string path = scratch / "model";
  ModelFolder m = test::folder_of(test::folder_cases[0]);
  test::write_folder(path, m);
  const GgufFile exact = GgufFile::open(path);
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q4_0, GgmlType::q4_K, GgmlType::f16, GgmlType::bf16}) {
    const GgufFile file = GgufFile::open(path, type);
    for (const GgufTensor& t : file.tensors()) {
      const std::vector<float> values = floats(exact.data(exact.tensor(t.name)));
      // Vectors stay f32, and so do matrices whose rows (48 elements) are not whole blocks. q4_K becomes q5_0.
      const GgmlType fitting = type_for_rows(type, t.dims[0]);
      const bool converted = t.dims.size() == 2 && t.dims[0] % ggml_type_info(fitting)->block == 0 &&
                             (fitting != GgmlType::f16 || type == GgmlType::f16);
      ASSERT_EQ(t.type, converted ? fitting : GgmlType::f32) << t.name;
      EXPECT_EQ(file.data(t), ggml_from_float(t.type, values)) << t.name;
    }
    EXPECT_GT(Llama::load(file, cpu).weight_bytes(), 0u);
  }
  expect_throw<ArgumentError>([&] { GgufFile::open(path, GgmlType::iq4_xs); }, {path, "iq4_xs", "q8_0"});
  expect_throw<ArgumentError>([&] { GgufFile::open("models/pgdocs-2m-q8_0.gguf", GgmlType::q8_0); },
                              {"pgdocs", "folder"});
}

TEST(HubFolder, ReadsSamplingTemplateAndEnds) {
  const test::Folder scratch;
  const std::string path = scratch / "tiny-chat";
  ModelFolder m = test::folder_of(test::folder_cases[0]);
  m.tokenizer["added_tokens"] =
      json::parse(R"([{"id":3,"content":"t3","special":true},{"id":4,"content":"t4","special":false},
    {"id":64,"content":"<image>","special":true}])");
  m.further_files = {
      {"generation_config.json",
       R"({"temperature":0.5,"top_k":7,"top_p":0.9,"repetition_penalty":1.25,"eos_token_id":[5,6,7,8]})"},
      {"tokenizer_config.json", R"({"bos_token":"t1","eos_token":{"content":"t3"},"add_bos_token":true,
        "chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]})"}};
  test::write_folder(path, m);
  {
    const GgufFile file = GgufFile::open(path + "/");
    EXPECT_EQ(file.get<std::string>("general.name"), "tiny-chat");
    EXPECT_EQ(file.version(), 0u);
    const SamplerOptions o = sampling_of(file);
    EXPECT_EQ(std::tuple(o.temperature, o.top_k, o.repeat_penalty), std::tuple(0.5, 7, 1.25));
    EXPECT_EQ(file.get<std::string>("tokenizer.chat_template"), "A");
    EXPECT_EQ(file.get<std::string>("tokenizer.chat_template.tool_use"), "B");
    const Tokenizer t(file);
    EXPECT_EQ(t.bos(), 1);
    EXPECT_EQ(t.eos(), 3);
    EXPECT_TRUE(t.adds_bos());
    EXPECT_EQ(std::vector(t.ends().begin(), t.ends().end()), (std::vector<TokenId>{3, 5, 6, 7, 8}));
    EXPECT_EQ(t.type(3), TokenType::control);
    EXPECT_EQ(t.type(4), TokenType::user_defined);
    EXPECT_EQ(t.size(), 64u);
    const ModelReport r = inspect_model(file);
    EXPECT_TRUE(r.runs());
    EXPECT_EQ(r.tokenizer, "gpt2, gpt-2");
  }
  m.further_files["chat_template.jinja"] = "C";
  test::write_folder(path, m);
  EXPECT_EQ(GgufFile::open(path).get<std::string>("tokenizer.chat_template"), "C");
  m.further_files = {{"chat_template.json", R"({"chat_template":"D"})"}};
  test::write_folder(path, m);
  EXPECT_EQ(GgufFile::open(path).get<std::string>("tokenizer.chat_template"), "D");
}

/// A class of models of images, the class of its text model, and the names of parts of published folders.
struct ImageClass {
  const char *name, *text, *prefix, *output, *part;
};
constexpr ImageClass image_classes[] = {
    {"Qwen3_5ForConditionalGeneration", "Qwen3_5", "model.language_model.", "lm_head.", "model.visual."},
    {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5Moe", "model.language_model.", "lm_head.", "model.visual."},
    {"Qwen3VLForConditionalGeneration", "Qwen3VL", "model.language_model.", "lm_head.", "model.visual."},
    {"Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VL", "model.", "lm_head.", "visual."},
    {"Gemma3ForConditionalGeneration", "Gemma3", "language_model.model.", "", "multi_modal_projector."},
    {"Gemma4ForConditionalGeneration", "Gemma4", "model.language_model.", "", "model.embed_vision."},
    {"Mistral3ForConditionalGeneration", "Ministral3", "language_model.model.", "language_model.lm_head.",
     "vision_tower."},
};

TEST(HubFolder, ReadsTheTextPartOfModelsOfImages) {
  const test::Folder scratch;
  for (const ImageClass& c : image_classes) {
    SCOPED_TRACE(c.name);
    ModelFolder m = test::folder_of(case_of(c.text));
    test::write_folder(scratch / "text", m);
    json text = m.config;
    text.erase("architectures");
    if (c.text == std::string("Ministral3")) text["model_type"] = "ministral3";
    m.config = {{"architectures", {c.name}}, {"text_config", text}};
    test::FolderTensors tensors;
    for (const auto& [name, t] : m.tensors)
      tensors[name.starts_with("model.") ? c.prefix + name.substr(6) : c.output + name.substr(8)] = t;
    const FolderTensor further{"F32", {2, 2}, std::string(16, '\0')};
    tensors[c.part + std::string("weight")] = further;
    if (c.text == std::string("Qwen3_5")) tensors["mtp.fc.weight"] = further;
    m.tensors = tensors;
    test::write_folder(scratch / "whole", m);
    const GgufFile alone = GgufFile::open(scratch / "text"), part = GgufFile::open(scratch / "whole");
    ASSERT_EQ(alone.tensors().size(), part.tensors().size());
    for (const GgufTensor& t : alone.tensors()) EXPECT_EQ(part.data(part.tensor(t.name)), alone.data(t)) << t.name;
    EXPECT_EQ(Llama::load(part, cpu).config().layers, Llama::load(alone, cpu).config().layers);
    m.config["text_config"] = nullptr;
    test::write_folder(scratch / "whole", m);
    expect_throw<FormatError>([&] { GgufFile::open(scratch / "whole"); }, {"config.json", "text_config"});
  }
  ModelFolder m = test::folder_of(case_of("Ministral3"));
  m.config = {{"architectures", {"Mistral3ForConditionalGeneration"}}, {"text_config", {{"model_type", "mixtral"}}}};
  test::write_folder(scratch / "other", m);
  expect_throw<FormatError>([&] { GgufFile::open(scratch / "other"); }, {"text_config.model_type", "mixtral"});
}

TEST(HubFolder, UsesAnOutputMatrixThatDiffersFromTheEmbedding) {
  const test::Folder scratch;
  ModelFolder m = test::folder_of(case_of("Qwen2"));  // tied
  m.tensors["lm_head.weight"] = m.tensors.at("model.embed_tokens.weight");
  test::write_folder(scratch / "m", m);
  EXPECT_EQ(GgufFile::open(scratch / "m").find_tensor("output.weight"), nullptr);
  m.tensors["lm_head.weight"].data.back() ^= 1;
  test::write_folder(scratch / "m", m);
  EXPECT_NE(GgufFile::open(scratch / "m").find_tensor("output.weight"), nullptr);
}

TEST(HubFolder, RejectsLayersOfGemma4ThatDifferInOtherWays) {
  const test::Folder scratch;
  const ModelFolder m = test::folder_of(case_of("Gemma4"));
  test::write_folder(scratch / "m", m);
  const auto refused = [&](const char* key, const json& value, std::initializer_list<std::string_view> parts) {
    json config = m.config;
    config[key] = value;
    test::put_file(scratch / "m/config.json", config.dump());
    expect_throw<FormatError>([&] { GgufFile::open(scratch / "m"); }, parts);
  };
  refused("per_layer_config", {{"1", {{"sliding_window", 4}}}}, {"per_layer_config.1.sliding_window"});
  refused("per_layer_config", {{"4", {{"head_dim", 4}}}}, {"per_layer_config.4", "below 4"});
  refused("per_layer_config", {{"1", {{"head_dim", 32}}}}, {"per_layer_config", "the same head_dim"});
  refused("sliding_window", nullptr, {"sliding_window", "without a window"});
  refused("use_bidirectional_attention", "all", {"use_bidirectional_attention"});
  refused("rope_parameters",
          {{"full_attention", {{"rope_type", "default"}}}, {"sliding_attention", {{"partial_rotary_factor", 0.5}}}},
          {"rope_parameters.sliding_attention.partial_rotary_factor"});
}

TEST(HubFolder, RejectsOtherSizesOfTheGatedDeltaRule) {
  const test::Folder scratch;
  for (const char* key : {"linear_value_head_dim", "linear_key_head_dim", "linear_num_value_heads"}) {
    ModelFolder m = test::folder_of(case_of("Qwen3_5"));
    m.config[key] = 2 * m.config[key].get<int>();
    test::write_folder(scratch / "m", m);
    expect_throw<FormatError>([&] { GgufFile::open(scratch / "m"); }, {"heads of the gated delta rule"});
  }
}

struct Fault {
  std::function<void(ModelFolder&)> make;
  std::vector<std::string_view> message;
};

TEST(HubFolder, ErrorsNameFileAndKey) {
  const test::Folder scratch;
  const std::string path = scratch / "m";
  const auto config = [](const char* key, const json& value) { return [=](ModelFolder& m) { m.config[key] = value; }; };
  const auto tokenizer = [](const char* pointer, const json& value) {
    return [=](ModelFolder& m) { m.tokenizer[json::json_pointer(pointer)] = value; };
  };
  const std::string query = "model.layers.1.self_attn.q_proj.weight";
  const std::vector<Fault> faults = {
      {config("architectures", {"FalconForCausalLM"}), {"config.json", "architectures", "Falcon", "Qwen3ForCausalLM"}},
      {config("architectures", nullptr), {"config.json", "architectures", "missing"}},
      {config("quantization_config", {{"quant_method", "bitsandbytes"}}),
       {"config.json", "quantization_config", "bitsandbytes", "--weights"}},
      {config("quantization_config", 3), {"config.json", "quantization_config", "number", "object"}},
      {config("hidden_size", "32"), {"config.json", "hidden_size", "string", "integer"}},
      {config("hidden_size", nullptr), {"config.json", "hidden_size", "missing"}},
      {[](ModelFolder& m) { m.config.erase("head_dim"), m.config["num_attention_heads"] = 64; },
       {"config.json", "num_attention_heads", "64", "32"}},
      {config("num_hidden_layers", -1), {"config.json", "num_hidden_layers", "-1"}},
      {config("num_hidden_layers", std::uint64_t{1} << 63), {"config.json", "num_hidden_layers", "4096"}},
      {config("hidden_act", "relu"), {"config.json", "hidden_act", "relu", "silu"}},
      {config("rope_scaling", {{"type", "dynamic"}, {"factor", 2}}), {"rope_scaling.type", "dynamic", "yarn"}},
      {config("rope_scaling", {{"type", "yarn"}, {"truncate", false}}), {"rope_scaling.truncate"}},
      {config("rope_scaling", {{"type", "llama3"}}), {"rope_scaling.factor", "missing"}},
      {config("rope_scaling", {{"type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}),
       {"rope_scaling.short_factor", "4 factors"}},
      {config("partial_rotary_factor", 0.5), {"partial_rotary_factor", "whole heads"}},
      {config("tie_word_embeddings", 1), {"tie_word_embeddings", "true or false"}},
      {config("layer_types", {"mamba", "attention"}), {"config.json", "layer_types", "mamba", "full_attention"}},
      {config("use_qk_norm", true), {"config.json", "use_qk_norm", "layer norm"}},
      {config("clip_qkv", 8.0), {"config.json", "clip_qkv"}},
      {config("swiglu_limit", 5.0), {"config.json", "swiglu_limit", "5", "7"}},
      {config("eos_token_id", 64), {"config.json", "eos_token_id", "64 tokens"}},
      {[](ModelFolder& m) { m.further_files["config.json"] = m.config.dump().substr(0, 60); },
       {"config.json", "not JSON", "byte 60"}},
      {[](ModelFolder& m) { m.further_files["config.json"] = "[1]"; }, {"config.json", "object"}},
      {[](ModelFolder& m) { m.further_files["config.json"] = "{\"a\": 1e999}"; }, {"config.json", "range"}},
      {[](ModelFolder& m) { m.further_files["config.json"] = std::string(1000, '['); }, {"config.json", "64 levels"}},
      {[](ModelFolder& m) { m.further_files["tokenizer.json"] = m.tokenizer.dump().substr(0, 99); },
       {"tokenizer.json", "not JSON"}},
      {[](ModelFolder& m) { m.further_files["generation_config.json"] = R"({"top_k":"x"})"; },
       {"generation_config.json", "top_k"}},
      {[](ModelFolder& m) { m.further_files["tokenizer_config.json"] = R"({"bos_token":"none"})"; },
       {"tokenizer_config.json", "bos_token"}},
      {tokenizer("/model/type", "WordLevel"), {"tokenizer.json", "model.type", "WordLevel", "BPE"}},
      {tokenizer("/model/vocab/t3", 7), {"tokenizer.json", "id 7", "t3", "t7"}},
      {tokenizer("/model/vocab/t3", 1 << 30), {"tokenizer.json", "model.vocab.t3", "1073741824"}},
      {tokenizer("/model/merges", {"t1"}), {"tokenizer.json", "model.merges", "merge 0"}},
      {tokenizer("/model/dropout", 0.1), {"tokenizer.json", "model.dropout"}},
      {tokenizer("/pre_tokenizer", {{"type", "Whitespace"}}), {"tokenizer.json", "byte_fallback"}},
      {tokenizer("/pre_tokenizer/add_prefix_space", true), {"pre_tokenizer.type", "ByteLevel"}},
      {tokenizer("/normalizer", {{"type", "Lowercase"}}), {"normalizer.type", "Lowercase"}},
      {tokenizer("/post_processor", {{"type", "ByteProcessing"}}), {"post_processor.type", "ByteProcessing"}},
      {tokenizer("/added_tokens", {{{"id", 9}, {"content", "other"}}}), {"added_tokens[0].id", "t9", "other"}},
      {[](ModelFolder& m) { m.tensors.erase("lm_head.weight"); }, {"lm_head.weight", "tie_word_embeddings"}},
      {[](ModelFolder& m) {
         m.tensors["model.layers.0.self_attn.sinks"] = {"F32", {1}, "1234"};
       },
       {"model.safetensors: model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight", "llama"}},
      {[](ModelFolder& m) {
         m.tensors["model.layers.0.self_attn.other"] = {"F32", {1}, "1234"};
       },
       {"model.safetensors", "model.layers.0.self_attn.other", "LlamaForCausalLM"}},
      {[&](ModelFolder& m) {
         m.tensors[query] = {"F8_E4M3", {32, 32}, std::string(1024, '\0')};
       },
       {"model.safetensors", query, "F8_E4M3", "BF16"}},
      {[&](ModelFolder& m) {
         m.tensors[query].shape = {32, 16, 2};
       },
       {"model.safetensors", query, "(32, 16, 2)"}},
      {[&](ModelFolder& m) {
         m.tensors[query] = {"F32", {20, 32}, std::string(2560, '\0')};
       },
       {query, "20 rows", "8 elements"}},
      {[&](ModelFolder& m) { m.tensors.erase(query); }, {"blk.1.attn_q.weight"}},
      {[&](ModelFolder& m) {
         m.tensors[query] = {"F32", {16, 32}, std::string(2048, '\0')};
       },
       {"model.safetensors: model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", "(32, 16)"}},
      {[](ModelFolder& m) { m.further_files["model.safetensors.index.json"] = R"({"weight_map":{"a":"../x"}})"; },
       {"weight_map.a", "../x"}},
      {[](ModelFolder& m) { m.further_files["model.safetensors.index.json"] = "{}"; }, {"index.json", "weight_map"}},
      {[](ModelFolder& m) {
         m.further_files["model.safetensors.index.json"] = R"({"weight_map":{"a":"b.safetensors"}})";
       },
       {"weight_map", "missing: b.safetensors"}},
      {[](ModelFolder& m) {
         m.further_files["model.safetensors.index.json"] = R"({"weight_map":{"a":"model.safetensors"}})";
       },
       {"model.safetensors", "a", "index.json lists"}},
  };
  std::size_t index = 0;
  for (const Fault& fault : faults) {
    SCOPED_TRACE(index++);
    ModelFolder m = test::folder_of(test::folder_cases[0]);
    fault.make(m);
    test::write_folder(path, m);
    const std::string text = test::message([&] {
      const GgufFile file = GgufFile::open(path);
      const Tokenizer made(file);
      Llama::load(file, cpu);
    });
    test::expect_contains(text, fault.message);
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    test::write_folder(path, test::folder_of(test::folder_cases[0]));
    std::filesystem::remove(path + "/" + name);
    expect_throw<FormatError>([&] { GgufFile::open(path); }, {path, name});
    test::put_file(path + "/model.gguf", "");
    expect_throw<FormatError>([&] { GgufFile::open(path); }, {path + "/model.gguf"});
  }
  test::write_folder(path, test::folder_of(test::folder_cases[0]));
  std::filesystem::resize_file(path + "/model.safetensors", 5000);
  expect_throw<FormatError>([&] { GgufFile::open(path); }, {"model.safetensors"});
}

}  // namespace
}  // namespace tessera
