// SPDX-License-Identifier: Apache-2.0
// Writes a GGUF file with random weights and the shapes of a Llama model. Tests and benchmarks of size and speed use it
// instead of a real model. The model generates nonsense.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cmath>
#include <cstring>

#include "tessera/base/half.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {
namespace {

struct Shape {
  std::uint64_t layers = 22, width = 2048, hidden = 5632, heads = 32, key_heads = 4, vocabulary = 32000, context = 2048;
  std::uint64_t experts = 0, used_experts = 2;
  std::uint64_t head_size() const { return width / heads; }
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
  // q4_K multiplies numbers by random factors, and subtracts a minimum. With these, its numbers have the mean 0.
  const bool q4_k = type == GgmlType::q4_K;
  const double unit = q4_k ? 257 : (type == GgmlType::q8_0 ? 256 : 16) / std::sqrt(12.0);
  const std::size_t block = ggml_type_info(type)->bytes;
  for (std::size_t at = 0; at < data.size(); at += block) {
    for (std::size_t i = 0; i < block; i += 8) {
      const std::uint64_t bits = next(state);
      std::memcpy(data.data() + at + i, &bits, std::min<std::size_t>(8, block - i));
    }
    put(data.data() + at, half_bits(static_cast<float>(deviation / unit)));
    if (q4_k) put(data.data() + at + 2, half_bits(static_cast<float>(deviation / unit * 7.5)));
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

void write_model(const std::string& path, const Shape& s, GgmlType type, std::uint64_t seed) {
  GgufWriter writer;
  writer.set("general.architecture", std::string("llama")).set("general.name", std::string("random weights"));
  const auto number = [&](const char* key, std::uint64_t value) {
    writer.set(std::string("llama.") + key, static_cast<std::uint32_t>(value));
  };
  number("context_length", s.context), number("embedding_length", s.width), number("block_count", s.layers);
  number("feed_forward_length", s.hidden), number("attention.head_count", s.heads);
  number("attention.head_count_kv", s.key_heads), number("rope.dimension_count", s.head_size());
  if (s.experts > 0) number("expert_count", s.experts), number("expert_used_count", s.used_experts);
  writer.set("llama.attention.layer_norm_rms_epsilon", 1e-5f).set("llama.rope.freq_base", 10000.0f);
  add_tokenizer(writer, s.vocabulary);
  const auto tensor = [&](const std::string& name, std::vector<std::uint64_t> dims, GgmlType kind) {
    const std::uint64_t from = next(seed);
    const auto columns = static_cast<double>(dims[0]);
    writer.add_tensor(name, std::move(dims), kind, [=](std::span<std::byte> data) { fill(data, kind, columns, from); });
  };
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    tensor(name, {columns, rows}, type);
  };
  const auto ones = [&](const std::string& name) {
    writer.add_tensor(name, {s.width}, std::vector<float>(s.width, 1.0f));
  };
  matrix("token_embd.weight", s.vocabulary, s.width);
  for (std::uint64_t i = 0; i < s.layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    ones(p + "attn_norm.weight");
    matrix(p + "attn_q.weight", s.width, s.width);
    matrix(p + "attn_k.weight", s.key_heads * s.head_size(), s.width);
    matrix(p + "attn_v.weight", s.key_heads * s.head_size(), s.width);
    matrix(p + "attn_output.weight", s.width, s.width);
    ones(p + "ffn_norm.weight");
    if (s.experts > 0) {
      tensor(p + "ffn_gate_inp.weight", {s.width, s.experts}, GgmlType::f32);
      tensor(p + "ffn_gate_exps.weight", {s.width, s.hidden, s.experts}, type);
      tensor(p + "ffn_up_exps.weight", {s.width, s.hidden, s.experts}, type);
      tensor(p + "ffn_down_exps.weight", {s.hidden, s.width, s.experts}, type);
      continue;
    }
    matrix(p + "ffn_gate.weight", s.hidden, s.width);
    matrix(p + "ffn_up.weight", s.hidden, s.width);
    matrix(p + "ffn_down.weight", s.width, s.hidden);
  }
  ones("output_norm.weight");
  matrix("output.weight", s.vocabulary, s.width);
  writer.write(path);
}

int run(int argc, char** argv) {
  CLI::App program("Write a GGUF file with random weights in the shape of a Llama (default: 1.1 billion parameters)");
  Shape s;
  std::string path, type = "q8_0";
  std::uint64_t seed = 1;
  program.add_option("FILE", path, "The file to write")->required();
  program.add_option("--type", type, "Type of the matrices")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "q8_0", "q4_0", "q4_K"}));
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
  const std::uint64_t block = type == "q4_K" ? 256 : type == "q8_0" || type == "q4_0" ? 32 : 1;
  if (s.width % s.heads != 0 || s.head_size() % 2 != 0 || s.heads % s.key_heads != 0 || s.width % block != 0 ||
      s.hidden % block != 0) {
    fmt::print(stderr,
               "width / heads must be an even integer, heads a multiple of key-heads, and the length of rows a "
               "multiple of {}\n",
               block);
    return 2;
  }
  const GgmlType kind = type == "f32"    ? GgmlType::f32
                        : type == "f16"  ? GgmlType::f16
                        : type == "q8_0" ? GgmlType::q8_0
                        : type == "q4_K" ? GgmlType::q4_K
                                         : GgmlType::q4_0;
  try {
    write_model(path, s, kind, seed);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
