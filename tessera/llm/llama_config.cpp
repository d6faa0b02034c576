// SPDX-License-Identifier: Apache-2.0
// Metadata keys as https://github.com/ggml-org/ggml/blob/master/docs/gguf.md names them.
#include <fmt/format.h>

#include <set>
#include <type_traits>

#include "tessera/base/log.h"
#include "tessera/llm/llama.h"

namespace tessera {

namespace {

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  LlamaConfig read() {
    LlamaConfig c;
    if (file_.get_or<std::string>("general.type", "model") == "adapter")
      bad("general.type", "this is an adapter (LoRA) and no model", "Merge it into its model first");
    c.architecture = file_.get<std::string>("general.architecture");
    if (c.architecture == "qwen2")
      c.rotary.pairs = RotaryPairs::halves;
    else if (c.architecture != "llama")
      bad("general.architecture", quote_text(c.architecture) + " is not an architecture that Tessera runs",
          "It runs llama and qwen2");
    prefix_ = c.architecture + ".";
    c.name = file_.get_or<std::string>("general.name", file_.name());
    c.context_length = count("context_length", 1 << 30);
    c.width = count("embedding_length", 1 << 20);
    c.layers = count("block_count", 4096);
    c.hidden = count("feed_forward_length", 1 << 22);
    c.heads = count("attention.head_count", 4096);
    c.key_heads = file_.has(prefix_ + "attention.head_count_kv") ? count("attention.head_count_kv", 4096) : c.heads;
    if (c.heads % c.key_heads != 0)
      bad(prefix_ + "attention.head_count_kv", "the heads are not a multiple of the key heads", "");
    if (!file_.has(prefix_ + "attention.key_length") && c.width % c.heads != 0)
      bad(prefix_ + "attention.head_count", "the width is not a multiple of the heads, and no key_length is given", "");
    c.head_size = file_.has(prefix_ + "attention.key_length") ? count("attention.key_length", 4096) : c.width / c.heads;
    if (file_.has(prefix_ + "attention.value_length") && count("attention.value_length", 4096) != c.head_size)
      bad(prefix_ + "attention.value_length", "values of another size than keys are not supported", "");
    c.norm_epsilon = file_.get_or<float>(prefix_ + "attention.layer_norm_rms_epsilon", 1e-5f);
    if (!(c.norm_epsilon >= 1e-30f && c.norm_epsilon <= 1.0f))  // below, the root of a row of zeros is divided by 0
      bad(prefix_ + "attention.layer_norm_rms_epsilon",
          fmt::format("{}", c.norm_epsilon) + " is not a number above 0 and up to 1", "");
    c.rotary.dimensions =
        file_.has(prefix_ + "rope.dimension_count") ? count("rope.dimension_count", 4096) : c.head_size;
    if (c.rotary.dimensions > c.head_size || c.rotary.dimensions % 2 != 0)
      bad(prefix_ + "rope.dimension_count",
          "an even number up to the head size " + std::to_string(c.head_size) + " is expected", "");
    c.rotary.base = file_.get_or<float>(prefix_ + "rope.freq_base", 10000.0f);
    if (!(c.rotary.base >= 1.0f && c.rotary.base <= 1e30f))  // frequencies of a turn or less a position
      bad(prefix_ + "rope.freq_base", fmt::format("{}", c.rotary.base) + " is not a number from 1 to 1e30", "");
    read_scaling(c);
    const GgufTensor& embedding = file_.tensor("token_embd.weight");
    c.vocabulary = embedding.dims.size() == 2 ? static_cast<std::int64_t>(embedding.dims[1]) : 0;
    c.tied = file_.find_tensor("output.weight") == nullptr;
    require_nothing_else(c);
    return c;
  }

 private:
  [[noreturn]] void bad(const std::string& key, const std::string& what, const std::string& todo) const {
    fail<FormatError>(
        {.asked = "load model", .with = {{"file", file_.name()}, {"key", key}}, .wrong = what, .todo = todo});
  }
  std::int64_t count(const std::string& key, std::int64_t most) const {
    const auto v = file_.get<std::int64_t>(prefix_ + key);
    if (v < 1 || v > most) bad(prefix_ + key, std::to_string(v) + " is not between 1 and " + std::to_string(most), "");
    return v;
  }
  // As llama.cpp reads it: a factor without a type is linear, and old files have it under another name.
  void read_scaling(LlamaConfig& c) const {
    const std::string factor_key = prefix_ + "rope.scaling.factor", old_key = prefix_ + "rope.scale_linear";
    const std::string key = file_.has(factor_key) || !file_.has(old_key) ? factor_key : old_key;
    const float factor = file_.get_or<float>(key, 1.0f);
    const std::string type =
        file_.get_or<std::string>(prefix_ + "rope.scaling.type", file_.has(key) ? "linear" : "none");
    if (type == "linear") {
      if (!(factor >= 1e-6f && factor <= 1e6f))
        bad(key, fmt::format("{}", factor) + " is not a number from 1e-6 to 1e6", "");
      c.rotary.scale = 1.0f / factor;
    } else if (type != "none") {
      bad(prefix_ + "rope.scaling.type", quote_text(type) + " is not supported",
          "none, linear and the factors of Llama 3.1 (tensor rope_freqs.weight) are");
    }
    const std::string attention = prefix_ + "rope.scaling.attn_factor";
    if (const float f = file_.get_or<float>(attention, 1.0f); f != 1)
      bad(attention, fmt::format("a factor of {} on attention is not supported", f), "");
  }

  /// What a file has and nobody reads could change what the model computes: it is refused by its name. Keys that change
  /// nothing, or nothing at these values, are passed over.
  void require_nothing_else(const LlamaConfig& c) const {
    static const std::set<std::string_view> read = {
        "context_length",       "embedding_length",       "block_count",
        "feed_forward_length",  "attention.head_count",   "attention.head_count_kv",
        "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
        "rope.dimension_count", "rope.freq_base",         "rope.scaling.type",
        "rope.scaling.factor",  "rope.scale_linear",      "rope.scaling.attn_factor"};
    static const std::set<std::string_view> harmless = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned",
                                                        "rope.scaling.original_context_length",
                                                        "attention.layer_norm_epsilon"};
    static const std::set<std::string_view> harmless_as_zero = {
        "expert_count",        "expert_used_count", "use_parallel_residual", "attention.max_alibi_bias",
        "attention.clamp_kqv", "logit_scale",       "pooling_type"};
    for (const GgufEntry& e : file_.metadata()) {
      if (e.key.compare(0, prefix_.size(), prefix_) != 0) continue;
      const std::string_view key = std::string_view(e.key).substr(prefix_.size());
      if (read.count(key) || harmless.count(key)) continue;
      const bool zero = std::visit(
          [](const auto& v) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) return v == 0;
            return false;
          },
          e.value);
      if (harmless_as_zero.count(key) && zero) continue;
      if (key == "attention.sliding_window") {  // which llama.cpp does not apply to these architectures either
        logging::warn(fmt::format("{}: {} is not applied: beyond it the model attends to more than it was made for",
                                  file_.name(), e.key));
        continue;
      }
      bad(e.key,
          key.compare(0, 7, "expert_") == 0 ? "models of experts are not supported"
                                            : "what this key asks for is not supported",
          "");
    }
    std::set<std::string, std::less<>> tensors = {"token_embd.weight", "output.weight", "output_norm.weight",
                                                  "rope_freqs.weight"};
    for (std::int64_t i = 0; i < c.layers; ++i)
      for (const char* name :
           {"attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_q.bias", "attn_k.bias",
            "attn_v.bias", "attn_output.weight", "attn_output.bias", "ffn_norm.weight", "ffn_gate.weight",
            "ffn_up.weight", "ffn_down.weight", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias",
            "attn_rot_embd.weight"})  // the last repeats what the metadata say
        tensors.insert("blk." + std::to_string(i) + "." + name);
    for (const GgufTensor& t : file_.tensors())
      if (!tensors.count(t.name))
        fail<FormatError>(
            {.asked = "load model",
             .with = {{"file", file_.name()}, {"tensor", t.name}},
             .wrong = "Tessera does not know what this tensor of architecture " + c.architecture + " does",
             .todo = "Without it the model would write something else"});
  }
  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace

LlamaConfig read_llama_config(const GgufFile& file) { return ConfigReader(file).read(); }

}  // namespace tessera
