// SPDX-License-Identifier: Apache-2.0
// `tessera quantize` and `tessera perplexity`, with the shipped models.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/language_model.h"
#include "tessera/llm/quantize_model.h"
#include "tessera/llm/sampler.h"
#include "tests/app/app_program.h"

using namespace tessera::test;
using nlohmann::json;
using tessera::GgmlType;
using tessera::GgufFile;

namespace {

const std::string f16 = "models/pgdocs-2m-f16.gguf";

std::string text() { return text_of("docs/glossary.md").substr(0, 3000); }

/// Runs the program with a cache of kernels that all tests share.
Outcome tessera_with(const std::vector<std::string>& arguments, const std::string& in = {}) {
  static const TemporaryFolder folder;
  static const std::string cache = folder / "kernels";
  std::filesystem::create_directory(cache);
  return run(arguments, {.environment = {{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", cache}}, .in = in});
}

json perplexity_of(const std::string& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"perplexity", "-m", model, "-f", "-", "--device", "cpu", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome o = tessera_with(arguments, text());
  EXPECT_EQ(o.code, 0) << o.err;
  return json::parse(o.out);
}

TEST(Quantize, ConvertsMatricesAndCopiesTheRest) {
  const TemporaryFolder folder;
  const GgufFile from = GgufFile::open(f16);
  for (const auto& [name, type, number] : {std::tuple{"Q8_0", GgmlType::q8_0, 7u}, {"q4_0", GgmlType::q4_0, 2u}}) {
    const std::string path = folder / "out.gguf";
    const Outcome o = run({"quantize", f16, path, name});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, "");
    const GgufFile to = GgufFile::open(path);
    EXPECT_EQ(to.get<std::uint32_t>("general.file_type"), number);
    EXPECT_EQ(to.get<std::uint32_t>("general.quantization_version"), 2u);
    for (const auto& e : from.metadata()) {
      if (e.key == "general.file_type" || e.key == "general.alignment") continue;
      ASSERT_TRUE(to.has(e.key)) << e.key;
      EXPECT_TRUE(*to.find(e.key) == e.value) << e.key;
    }
    ASSERT_EQ(to.tensors().size(), from.tensors().size());
    for (const auto& t : from.tensors()) {
      const auto& made = to.tensor(t.name);
      EXPECT_EQ(made.dims, t.dims);
      EXPECT_EQ(made.type, t.dims.size() > 1 ? type : GgmlType::f32) << t.name;
      const auto values = tessera::ggml_to_float(t.type, from.data(t));
      EXPECT_EQ(to.data(made), tessera::ggml_from_float(made.type, values)) << t.name;
    }
  }
}

TEST(Quantize, KeepsMatricesWhoseRowsAreNotWholeBlocks) {
  const TemporaryFolder folder;
  const std::string from = folder / "from.gguf", path = folder / "out.gguf";
  const std::vector<float> values(2 * 48, 0.5f);
  tessera::GgufWriter w(3, 64);
  w.set("general.architecture", std::string("llama")).set("split.count", std::uint16_t{1});
  w.add_tensor("a.weight", {48, 2}, values).add_tensor("b.weight", {32, 3}, values);
  w.add_tensor("blk.0.ffn_gate_inp.weight", {32, 3}, values).add_tensor("b.bias", {32, 3}, values);
  w.add_tensor("norm.weight", {96}, values).write(from);
  const Outcome o = run({"quantize", from, path, "q4_0"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.err, {"a.weight becomes f16, because its row length 48 is not a multiple of 32\n",
                            "f16: 1 tensor, f32: 3 tensors, q4_0: 1 tensor"}));
  const GgufFile to = GgufFile::open(path);
  EXPECT_EQ(to.alignment(), 64u);
  EXPECT_FALSE(to.has("split.count"));
  EXPECT_EQ(to.tensor("a.weight").type, GgmlType::f16);
  EXPECT_EQ(to.tensor("b.weight").type, GgmlType::q4_0);
  for (const char* name : {"blk.0.ffn_gate_inp.weight", "b.bias", "norm.weight"})
    EXPECT_EQ(to.tensor(name).type, GgmlType::f32) << name;
  EXPECT_TRUE(holds(run({"quantize", path, folder / "again.gguf", "q8_0"}).err, {"warning: ", "already quantised"}));
  EXPECT_EQ(run({"quantize", from, path, "f32", "-q"}).err, "");
}

/// A file with the matrices of a Llama of `layers` layers. Rows have 256 elements.
void write_llama(const std::string& path, int layers, std::uint32_t experts, float value = 0.5f) {
  tessera::GgufWriter w;
  w.set("general.architecture", std::string("llama")).set("llama.block_count", static_cast<std::uint32_t>(layers));
  w.set("llama.attention.head_count", std::uint32_t{8}).set("llama.attention.head_count_kv", std::uint32_t{2});
  if (experts != 0) w.set("llama.expert_count", experts);
  const std::vector<float> bias(256, 0.5f);
  const std::vector<float> values(2 * 256, value);
  w.add_tensor("token_embd.weight", {256, 2}, values).add_tensor("output.weight", {256, 2}, values);
  for (int i = layers - 1; i >= 0; --i)  // as in files that are sorted by name
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      w.add_tensor("blk." + std::to_string(i) + "." + name + ".weight", {256, 2}, values);
  for (int i = 0; i < layers; ++i) w.add_tensor("blk." + std::to_string(i) + ".ffn_down.bias", {256}, bias);
  w.write(path);
}

// By the rules of llama-quantize: llama_tensor_get_type_impl in src/llama-quant.cpp.
TEST(Quantize, MixesGiveSomeMatricesMoreBits) {
  const TemporaryFolder folder;
  const std::string dense = folder / "dense.gguf", experts = folder / "experts.gguf", out = folder / "out.gguf";
  write_llama(dense, 16, 0);
  write_llama(experts, 16, 8);
  const auto types = [&](const std::string& from, const char* mix, const std::string& matrix) {
    const GgufFile file = GgufFile::open(from);
    const std::vector<GgmlType> all = tessera::quantized_types(file, mix);
    std::string text;
    for (int layer = 0; layer < 16; ++layer)
      for (std::size_t i = 0; i < all.size(); ++i)
        if (file.tensors()[i].name == "blk." + std::to_string(layer) + "." + matrix + ".weight")
          text += tessera::ggml_type_info(all[i])->name[1];
    return text;
  };
  EXPECT_EQ(types(dense, "q4_k_m", "attn_v"), "6644644644644666");
  EXPECT_EQ(types(dense, "q4_k_m", "ffn_down"), "6644644644644666");
  EXPECT_EQ(types(dense, "q4_k_m", "ffn_up"), "4444444444444444");
  EXPECT_EQ(types(dense, "q5_k_m", "attn_v"), "6655655655655666");
  EXPECT_EQ(types(dense, "q4_k_s", "attn_v"), "5555444444444444");
  EXPECT_EQ(types(dense, "q4_k_s", "ffn_down"), "5544444444444444");
  EXPECT_EQ(types(dense, "q3_k_m", "attn_v"), "5544444444444444");
  EXPECT_EQ(types(dense, "q3_k_m", "ffn_down"), "5444444444444444");
  EXPECT_EQ(types(dense, "q3_k_l", "attn_output"), "5555555555555555");
  EXPECT_EQ(types(dense, "q2_k", "attn_v"), "4444444444444444");
  EXPECT_EQ(types(dense, "q2_k", "attn_k"), "2222222222222222");
  EXPECT_EQ(types(experts, "q4_k_m", "attn_k"), "8888888888888888");
  EXPECT_EQ(types(experts, "q4_k_m", "attn_output"), "5555555555555555");
  ASSERT_EQ(run({"quantize", dense, out, "Q4_K_M"}).code, 0);
  const GgufFile file = GgufFile::open(out);
  EXPECT_EQ(file.get<std::uint32_t>("general.file_type"), 15u);
  EXPECT_EQ(file.tensor("output.weight").type, GgmlType::q6_K);
  EXPECT_EQ(file.tensor("token_embd.weight").type, GgmlType::q4_K);
  EXPECT_NEAR(tessera::ggml_to_float(GgmlType::q4_K, file.data(file.tensor("blk.3.ffn_up.weight")))[300], 0.5f, 1e-3);
}

TEST(Quantize, RejectsNumbersThatBlocksCannotContain) {
  const TemporaryFolder folder;
  const std::string from = folder / "from.gguf", out = folder / "out.gguf";
  write_llama(from, 1, 0, 1e5f);
  for (const char* type : {"q4_1", "q6_k", "f16"})
    EXPECT_TRUE(fails(run({"quantize", from, out, type}), 1, {"tensor = token_embd.weight", "100000"})) << type;
  write_llama(from, 1, 0, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(fails(run({"quantize", from, out, "q4_k_m"}), 1, {"tensor = token_embd.weight", "infinite numbers"}));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(run({"quantize", from, out, "bf16", "-q"}).code, 0);
}

TEST(Quantize, RejectsUnknownTypesAndPaths) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails(run({"quantize", f16, folder / "x.gguf", "q5_x"}), 2, {"TYPE", "q5_x", "q8_0", "q5_k_m"}));
  EXPECT_TRUE(fails(run({"quantize", f16, folder / "x.gguf", "q4_K"}), 2, {"use q4_k_m or q4_k_s"}));
  EXPECT_TRUE(fails(run({"quantize", f16, folder / "x.gguf", "IQ4_XS"}), 2, {"iq4_xs can be read, but not written"}));
  EXPECT_TRUE(fails(run({"quantize", f16, "/nonexistent/x.gguf", "q8_0"}), 1, {"/nonexistent/x.gguf"}));
  EXPECT_TRUE(fails(run({"quantize", "README.md", folder / "x.gguf", "q8_0"}), 1, {"README.md"}));
  EXPECT_FALSE(std::filesystem::exists(folder / "x.gguf"));
}

// Recomputes a window with the host functions, from the logits of one token at a time.
TEST(Perplexity, AgreesWithProbabilitiesOfSingleTokens) {
  const json p = perplexity_of(f16, {"--ctx", "64", "--cache", "f32", "--batch", "20"});
  const auto model = tessera::LanguageModel::load(f16, tessera::Device{tessera::Backend::cpu, 0});
  std::vector<tessera::TokenId> tokens = model.tokenizer().encode(text());
  const std::size_t windows = tokens.size() / 64;
  ASSERT_EQ(p["windows"], windows);
  EXPECT_EQ(p["tokens"], 31 * windows);
  double sum = 0, squares = 0;
  auto cache = model.model().make_cache(64, tessera::DType::f32);
  for (std::size_t at = 0; at + 64 <= tokens.size(); at += 64) {
    cache.truncate(0);
    tokens[at] = *model.tokenizer().bos();
    for (std::size_t i = 0; i + 1 < 64; ++i) {
      const auto logits = model.model().forward(std::span(tokens).subspan(at + i, 1), cache).to_vector<float>();
      if (i < 32) continue;
      const double loss = -tessera::log_probabilities(logits, tokens[at + i + 1], 0)[0].log_probability;
      sum += loss, squares += loss * loss;
    }
  }
  const double n = 31.0 * static_cast<double>(windows), mean = sum / n;
  EXPECT_NEAR(p["nats_per_token"].get<double>(), mean, 1e-3);
  EXPECT_NEAR(p["perplexity"].get<double>(), std::exp(mean), 2e-3 * std::exp(mean));
  EXPECT_NEAR(p["standard_error"].get<double>(), std::exp(mean) * std::sqrt((squares / n - mean * mean) / (n - 1)),
              0.1);
}

TEST(Perplexity, IsSimilarForQuantisedFiles) {
  const TemporaryFolder folder;
  const std::string q4 = folder / "q4.gguf", mix = folder / "mix.gguf";
  ASSERT_EQ(run({"quantize", f16, q4, "q4_0", "-q"}).code, 0);
  // Most rows have 192 elements.
  const Outcome mixed = run({"quantize", f16, mix, "q4_k_m"});
  EXPECT_TRUE(holds(mixed.err, {" more become q5_0, because their row length 192 is not a multiple of 256\n",
                                "token_embd.weight and 2 more become q8_0", "q6_K: "}));
  const double half = perplexity_of(f16)["perplexity"],
               eight = perplexity_of("models/pgdocs-2m-q8_0.gguf")["perplexity"],
               four = perplexity_of(q4)["perplexity"];
  EXPECT_NEAR(eight, half, 0.01 * half);
  EXPECT_NEAR(four, half, 0.3 * half);
  EXPECT_NEAR(perplexity_of(mix)["perplexity"].get<double>(), half, 0.1 * half);
  const Outcome o = tessera_with({"perplexity", q4, "-f", "-", "--device", "cpu"}, text());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.out, {"perplexity ", " +- ", " windows of 512 tokens, "}));
  EXPECT_TRUE(fails(tessera_with({"perplexity", q4, "-f", "-", "--device", "cpu"}, "short"), 1,
                    {"shorter than a window", "context = 512", "--ctx"}));
  EXPECT_TRUE(fails(run({"perplexity", q4, "-f", "README.md", "--ctx", "5000"}), 1, {"5000", "1024"}));
  EXPECT_TRUE(fails(run({"perplexity", q4}), 2, {"--file"}));
}

}  // namespace
