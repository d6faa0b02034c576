// SPDX-License-Identifier: Apache-2.0
// Writes a GGUF file with random weights and the shapes of a Llama, Qwen 3 (mixture of experts) or gpt-oss model. Tests
// and benchmarks of size and speed use it instead of a real model. The model generates nonsense.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tessera/base/half.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer.h"
#include "tessera/ops/weight_formats.h"

namespace tessera {
namespace {

struct Shape {
  std::string architecture = "llama";
  std::uint64_t layers = 22, width = 2048, hidden = 5632, heads = 32, key_heads = 4, vocabulary = 32000, context = 2048;
  std::uint64_t experts = 0, used_experts = 2, size_of_head = 0;
  std::uint64_t head_size() const { return size_of_head > 0 ? size_of_head : width / heads; }
};

/// splitmix64 (Steele, Lea and Flood 2014).
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

void put(std::byte* to, const auto& value) { std::memcpy(to, &value, sizeof value); }

/// Fills `data` with numbers of standard deviation 1 / sqrt(columns), so that activations keep their scale.
void fill(std::span<std::byte> data, GgmlType type, double columns, std::uint64_t seed) {
  const double deviation = 1 / std::sqrt(columns);
  std::uint64_t state = seed;
  if (type == GgmlType::f32 || type == GgmlType::f16) {
    const std::size_t size = type == GgmlType::f32 ? 4 : 2;
    const double step = deviation * std::sqrt(12.0) / 65536;  // uniform over 65536 steps
    for (std::size_t at = 0; at < data.size(); at += 4 * size) {
      const std::uint64_t word = next(state);
      for (std::size_t i = 0; i < 4 && at + i * size < data.size(); ++i) {
        const auto x = static_cast<float>((static_cast<double>(word >> 16 * i & 0xffff) - 32767.5) * step);
        if (size == 4)
          put(data.data() + at + i * size, x);
        else
          put(data.data() + at + i * size, half_bits(x));
      }
    }
    return;
  }
  if (type == GgmlType::mxfp4) {  // a block is an exponent and 32 numbers, whose standard deviation is 2.93
    const auto exponent = static_cast<std::uint8_t>(127 + std::lround(std::log2(deviation / 2.93)));
    for (std::size_t at = 0; at < data.size(); at += 17) {
      const std::uint64_t bits[2] = {next(state), next(state)};
      put(data.data() + at, exponent), put(data.data() + at + 1, bits);
    }
    return;
  }
  // The standard deviation with a scale of 1, and the minimum with which the numbers have the mean 0. Most formats
  // multiply numbers by random factors.
  struct Form {
    double unit, middle;
  };
  const Form form = type == GgmlType::q8_0      ? Form{74, 0}
                    : type == GgmlType::q4_K    ? Form{257, 7.5}
                    : type == GgmlType::q6_K    ? Form{1366, 0}
                    : type == GgmlType::q2_K    ? Form{13.9, 1.5}
                    : type == GgmlType::q3_K    ? Form{43, 0}
                    : type == GgmlType::iq4_xs  ? Form{1294, 0}
                    : type == GgmlType::iq3_s   ? Form{141, 0}
                    : type == GgmlType::iq3_xxs ? Form{141, 0}
                    : type == GgmlType::iq2_s   ? Form{55, 0}
                    : type == GgmlType::iq2_xs  ? Form{55, 0}
                    : type == GgmlType::iq2_xxs ? Form{55, 0}
                    : type == GgmlType::iq1_s   ? Form{7.4, 0}
                                                : Form{4.6, 0};
  const ops::WeightLayout& layout = ops::layout_of(*weight_format(type));
  const std::size_t block = ggml_type_info(type)->bytes;
  for (std::size_t at = 0; at < data.size(); at += block) {
    for (std::size_t i = 0; i < block; i += 8) {
      const std::uint64_t bits = next(state);
      std::memcpy(data.data() + at + i, &bits, std::min<std::size_t>(8, block - i));
    }
    std::byte* const scale = data.data() + at + layout.scale_at;
    put(scale, half_bits(static_cast<float>(deviation / form.unit)));
    if (layout.minimum) put(scale + 2, half_bits(static_cast<float>(deviation / form.unit * form.middle)));
  }
}

/// Adds a vocabulary of all bytes and of pairs of bytes, written as in byte-level BPE.
void add_tokenizer(GgufWriter& writer, std::uint64_t size) {
  std::vector<std::string> tokens, merges;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_level_text(std::string(1, static_cast<char>(byte))));
  for (std::uint64_t i = 0; tokens.size() + 1 < size; ++i) {
    const std::string a = tokens[i / 256], b = tokens[i % 256];
    merges.push_back(a + " " + b);
    tokens.push_back(a + b);
  }
  tokens.emplace_back("<|end|>");
  std::vector<std::int32_t> types(tokens.size(), 1);
  types.back() = 3;
  writer.set("tokenizer.ggml.model", std::string("gpt2"))
      .set("tokenizer.ggml.pre", std::string("gpt-2"))
      .set("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(tokens.size() - 1))
      .set("tokenizer.ggml.tokens", std::move(tokens))
      .set("tokenizer.ggml.merges", std::move(merges))
      .set("tokenizer.ggml.token_type", std::move(types));
}

void write_model(const std::string& path, const Shape& s, GgmlType type, GgmlType type_of_experts, std::uint64_t seed) {
  const bool is_gpt_oss = s.architecture == "gpt-oss";
  GgufWriter writer;
  writer.set("general.architecture", s.architecture).set("general.name", std::string("random weights"));
  const auto key = [&](const char* name) { return s.architecture + "." + name; };
  const auto number = [&](const char* name, std::uint64_t value) {
    writer.set(key(name), static_cast<std::uint32_t>(value));
  };
  number("context_length", s.context), number("embedding_length", s.width), number("block_count", s.layers);
  number("feed_forward_length", s.hidden), number("attention.head_count", s.heads);
  number("attention.head_count_kv", s.key_heads), number("rope.dimension_count", s.head_size());
  number("attention.key_length", s.head_size()), number("attention.value_length", s.head_size());
  if (s.experts > 0) {
    number("expert_count", s.experts), number("expert_used_count", s.used_experts);
    number("expert_feed_forward_length", s.hidden);
  }
  if (is_gpt_oss) number("attention.sliding_window", 128);
  writer.set(key("attention.layer_norm_rms_epsilon"), 1e-5f).set(key("rope.freq_base"), 10000.0f);
  add_tokenizer(writer, s.vocabulary);
  const auto tensor = [&](const std::string& name, std::vector<std::uint64_t> dims, GgmlType kind) {
    const std::uint64_t from = next(seed);
    const auto columns = static_cast<double>(dims[0]);
    writer.add_tensor(name, std::move(dims), kind, [=](std::span<std::byte> data) { fill(data, kind, columns, from); });
  };
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    tensor(name + ".weight", {columns, rows}, type);
    if (is_gpt_oss && name.find("attn") != std::string::npos) tensor(name + ".bias", {rows}, GgmlType::f32);
  };
  const auto of_experts = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    tensor(name + ".weight", {columns, rows, s.experts}, type_of_experts);
    if (is_gpt_oss) tensor(name + ".bias", {rows, s.experts}, GgmlType::f32);
  };
  const auto ones = [&](const std::string& name, std::uint64_t size) {
    writer.add_tensor(name, {size}, std::vector<float>(size, 1.0f));
  };
  matrix("token_embd", s.vocabulary, s.width);
  for (std::uint64_t i = 0; i < s.layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    ones(p + "attn_norm.weight", s.width);
    matrix(p + "attn_q", s.heads * s.head_size(), s.width);
    matrix(p + "attn_k", s.key_heads * s.head_size(), s.width);
    matrix(p + "attn_v", s.key_heads * s.head_size(), s.width);
    matrix(p + "attn_output", s.width, s.heads * s.head_size());
    if (s.architecture == "qwen3moe")
      ones(p + "attn_q_norm.weight", s.head_size()), ones(p + "attn_k_norm.weight", s.head_size());
    if (is_gpt_oss) tensor(p + "attn_sinks.weight", {s.heads}, GgmlType::f32);
    ones(p + (is_gpt_oss ? "post_attention_norm.weight" : "ffn_norm.weight"), s.width);
    if (s.experts > 0) {
      tensor(p + "ffn_gate_inp.weight", {s.width, s.experts}, GgmlType::f32);
      if (is_gpt_oss) tensor(p + "ffn_gate_inp.bias", {s.experts}, GgmlType::f32);
      of_experts(p + "ffn_gate_exps", s.hidden, s.width);
      of_experts(p + "ffn_up_exps", s.hidden, s.width);
      of_experts(p + "ffn_down_exps", s.width, s.hidden);
      continue;
    }
    matrix(p + "ffn_gate", s.hidden, s.width);
    matrix(p + "ffn_up", s.hidden, s.width);
    matrix(p + "ffn_down", s.width, s.hidden);
  }
  ones("output_norm.weight", s.width);
  matrix("output", s.vocabulary, s.width);
  writer.write(path);
}

int run(int argc, char** argv) {
  CLI::App program("Write a GGUF file with random weights (default: a Llama of 1.1 billion parameters)");
  Shape s;
  std::string path, type = "q8_0", type_of_experts;
  std::uint64_t seed = 1;
  program.add_option("FILE", path, "The file to write")->required();
  program.add_option("--architecture", s.architecture)
      ->capture_default_str()
      ->check(CLI::IsMember({"llama", "qwen3moe", "gpt-oss"}));
  const CLI::IsMember types({"f32", "f16", "q8_0", "q4_0", "q4_K", "q6_K", "q2_K", "q3_K", "iq4_xs", "iq3_s", "iq3_xxs",
                             "iq2_s", "iq2_xs", "iq2_xxs", "iq1_s", "mxfp4"});
  program.add_option("--type", type, "Type of the matrices")->capture_default_str()->check(types);
  program.add_option("--type-of-experts", type_of_experts, "Type of the experts' matrices (default: --type)")
      ->check(types);
  program.add_option("--head-size", s.size_of_head, "Elements of a head (default: width / heads)");
  const auto size = CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 24);
  for (const auto& [name, value] : {std::pair{"--layers", &s.layers},
                                    {"--width", &s.width},
                                    {"--hidden", &s.hidden},
                                    {"--heads", &s.heads},
                                    {"--key-heads", &s.key_heads},
                                    {"--context", &s.context},
                                    {"--used-experts", &s.used_experts}})
    program.add_option(name, *value)->capture_default_str()->check(size);
  program.add_option("--experts", s.experts, "Experts of each layer; 0: none")->capture_default_str();
  program.add_option("--vocabulary", s.vocabulary)
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{257}, std::uint64_t{65792}));
  program.add_option("--seed", seed, "The same seed produces the same file")->capture_default_str();
  CLI11_PARSE(program, argc, argv);
  const auto info_of = [](const std::string& name) {
    return *std::ranges::find(ggml_types(), name, &GgmlTypeInfo::name);
  };
  const GgmlTypeInfo info = info_of(type), of_experts = info_of(type_of_experts.empty() ? type : type_of_experts);
  const std::uint64_t block = std::max(info.block, of_experts.block);
  if ((s.size_of_head == 0 && s.width % s.heads != 0) || s.head_size() % 2 != 0 || s.heads % s.key_heads != 0 ||
      s.width % block != 0 || s.hidden % block != 0 || s.heads * s.head_size() % block != 0) {
    fmt::print(
        stderr,
        "the head size must be an even integer, heads a multiple of key-heads, and the length of rows a multiple "
        "of {}\n",
        block);
    return 2;
  }
  if (s.architecture != "llama" && s.experts == 0) {
    fmt::print(stderr, "{} needs --experts\n", s.architecture);
    return 2;
  }
  try {
    write_model(path, s, info.type, of_experts.type, seed);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
