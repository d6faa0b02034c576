// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/llama_writer.h"

#include <filesystem>

#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_writer.h"

namespace tessera {
namespace {

/// Returns the value of "general.file_type" for this matrix type (llama.cpp's llama_ftype).
std::uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::f32: return 0;
    case GgmlType::f16: return 1;
    case GgmlType::q8_0: return 7;
    default:
      fail<ArgumentError>({.operation = "write_llama",
                           .with = {{"type", ggml_type_text(type)}},
                           .wrong = "the type of matrices must be f32, f16 or q8_0"});
  }
}

void describe(GgufWriter& file, const LlamaConfig& c, const LlamaFileOptions& o) {
  const auto number = [&](const std::string& key, std::int64_t value) {
    file.set("llama." + key, static_cast<std::uint32_t>(value));
  };
  file.set("general.architecture", std::string("llama"));
  if (!o.name.empty()) file.set("general.name", o.name);
  if (!o.description.empty()) file.set("general.description", o.description);
  file.set("general.file_type", file_type(o.type));
  file.set("general.quantization_version", std::uint32_t{2});
  number("vocab_size", c.vocabulary);
  number("context_length", c.context_length);
  number("embedding_length", c.width);
  number("block_count", c.layers);
  number("feed_forward_length", c.hidden);
  number("attention.head_count", c.heads);
  number("attention.head_count_kv", c.key_heads);
  number("attention.key_length", c.head_size);
  number("attention.value_length", c.head_size);
  file.set("llama.attention.layer_norm_rms_epsilon", c.norm_epsilon);
  number("rope.dimension_count", c.head_size);
  file.set("llama.rope.freq_base", c.rotary.base);
}

}  // namespace

void write_llama(const std::string& path, const LlamaConfig& c, const LlamaArrays& arrays,
                 const TrainedTokenizer& tokenizer, const LlamaFileOptions& o) {
  if (static_cast<std::int64_t>(tokenizer.tokens.size()) != c.vocabulary ||
      static_cast<std::int64_t>(arrays.layers.size()) != c.layers)
    fail<ArgumentError>({.operation = "write_llama",
                         .with = {{"vocabulary", std::to_string(c.vocabulary)},
                                  {"tokens of the tokenizer", std::to_string(tokenizer.tokens.size())},
                                  {"layers", std::to_string(c.layers)},
                                  {"layers with weights", std::to_string(arrays.layers.size())}},
                         .wrong = "the sizes do not match"});
  GgufWriter file;
  describe(file, c, o);
  tokenizer.describe(file);
  const auto put = [&](const std::string& name, const Array& a, const Shape& shape, GgmlType type) {
    if (a.shape() != shape || a.dtype() != DType::f32)
      fail<ArgumentError>(
          {.operation = "write_llama",
           .with = {{"tensor", name}, {"shape", to_string(a.shape())}, {"dtype", std::string(dtype_name(a.dtype()))}},
           .wrong = "the configuration requires f32 with shape " + to_string(shape)});
    if (type == GgmlType::q8_0 && shape.back() % 32 != 0)
      fail<ArgumentError>({.operation = "write_llama",
                           .with = {{"tensor", name}, {"shape", to_string(shape)}},
                           .wrong = "rows of q8_0 must have a multiple of 32 elements",
                           .remedy = "Write it as f16, or choose other sizes"});
    const auto values = a.to_vector<float>();
    file.add_tensor(name + ".weight", {shape.rbegin(), shape.rend()}, type, ggml_from_float(type, values));
  };
  const auto matrix = [&](const std::string& name, const Array& a, std::int64_t rows, std::int64_t columns) {
    put(name, a, {rows, columns}, o.type);
  };
  const auto norm = [&](const std::string& name, const Array& a) { put(name, a, {c.width}, GgmlType::f32); };
  const std::int64_t queries = c.heads * c.head_size, keys = c.key_heads * c.head_size;
  matrix("token_embd", arrays.embedding, c.vocabulary, c.width);
  for (std::size_t i = 0; i < arrays.layers.size(); ++i) {
    const LlamaArrays::Layer& l = arrays.layers[i];
    const std::string at = "blk." + std::to_string(i) + ".";
    norm(at + "attn_norm", l.attention_norm);
    matrix(at + "attn_q", l.query, queries, c.width);
    matrix(at + "attn_k", l.key, keys, c.width);
    matrix(at + "attn_v", l.value, keys, c.width);
    matrix(at + "attn_output", l.attention_output, c.width, queries);
    norm(at + "ffn_norm", l.feed_forward_norm);
    matrix(at + "ffn_gate", l.gate, c.hidden, c.width);
    matrix(at + "ffn_up", l.up, c.hidden, c.width);
    matrix(at + "ffn_down", l.down, c.width, c.hidden);
  }
  norm("output_norm", arrays.output_norm);
  if (arrays.output) matrix("output", *arrays.output, c.vocabulary, c.width);
  file.write(path);
}

}  // namespace tessera
