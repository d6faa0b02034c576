// SPDX-License-Identifier: Apache-2.0
// The keys and tensors are those that llama.cpp's converter writes (conversion/bert.py).
#include <fmt/format.h>

#include <set>

#include "tessera/llm/encoder.h"
#include "tessera/llm/model_keys.h"

namespace tessera {
namespace {

class EncoderReader : private ModelKeys {
 public:
  EncoderReader(const GgufFile& file, std::vector<UnknownPart>* unknown) : ModelKeys(file), unknown_(unknown) {}

  EncoderConfig read() {
    EncoderConfig c;
    c.architecture = file_.get<std::string>("general.architecture");
    const EncoderArchitecture* kind = find_encoder_architecture(c.architecture);
    if (!kind)
      bad("general.architecture", quote_text(c.architecture) + " is not an embedding model that is supported",
          fmt::format("Supported are {}, and language models with {}.pooling_type, such as Qwen 3 Embedding",
                      encoder_architecture_names(), "ARCHITECTURE"));
    prefix_ = c.architecture + ".";
    c.name = file_.get_or<std::string>("general.name", file_.name());
    c.context_length = count("context_length", 1 << 20);
    c.width = count("embedding_length", 1 << 20);
    c.layers = count("block_count", 4096);
    c.hidden = count("feed_forward_length", 1 << 22);
    c.heads = count("attention.head_count", 4096);
    c.head_size = c.width / c.heads;
    if (c.width % c.heads != 0 || c.head_size > 256)
      bad(prefix_ + "attention.head_count",
          fmt::format("the width of {} must be a multiple of the {} heads, with at most 256 elements in each", c.width,
                      c.heads),
          "");
    if (file_.has(prefix_ + "attention.head_count_kv") && count("attention.head_count_kv", 4096) != c.heads)
      bad(prefix_ + "attention.head_count_kv", "grouped heads are not supported in encoders", "");
    for (const char* key : {"attention.key_length", "attention.value_length"})
      if (file_.has(prefix_ + key) && count(key, 4096) != c.head_size)
        bad(prefix_ + key, fmt::format("expected the width divided by the heads, {}", c.head_size), "");
    c.norm_epsilon = number("attention.layer_norm_epsilon", 1e-12f, 1e-30f, 1);
    if (file_.get_or<bool>(prefix_ + "attention.causal", false))
      bad(prefix_ + "attention.causal", "causal attention is not supported in encoders", "");
    c.is_gated = kind->is_gated;
    if (kind->rotates) read_rotary(c);
    c.token_types = rows_of("token_types.weight");
    c.vocabulary = rows_of("token_embd.weight");
    find_unknown(c);
    return c;
  }

 private:
  void read_rotary(EncoderConfig& c) const {
    c.rotary = Rotary{.pairs = RotaryPairs::halves};
    c.rotary->dimensions =
        file_.has(prefix_ + "rope.dimension_count") ? count("rope.dimension_count", 4096) : c.head_size;
    if (c.rotary->dimensions > c.head_size || c.rotary->dimensions % 2 != 0)
      bad(prefix_ + "rope.dimension_count",
          fmt::format("the number must be even and at most the head size of {} elements", c.head_size), "");
    c.rotary->base = number("rope.freq_base", 10000, 1, 1e30f);
    if (const auto type = file_.get_or<std::string>(prefix_ + "rope.scaling.type", "none"); type != "none")
      bad(prefix_ + "rope.scaling.type", quote_text(type) + " is not supported in encoders", "");
  }

  std::int64_t rows_of(const char* name) const {
    const GgufTensor* t = file_.find_tensor(name);
    return t && t->dims.size() <= 2 ? static_cast<std::int64_t>(t->elements / t->dims[0]) : 0;
  }

  void reject(bool is_tensor, const std::string& name, std::string why) const {
    if (unknown_)
      unknown_->push_back({is_tensor, name, std::move(why)});
    else
      fail<FormatError>({.operation = "load model",
                         .with = {{"file", file_.name()}, {is_tensor ? "tensor" : "key", name}},
                         .wrong = std::move(why),
                         .remedy = "Without it, the model would compute wrong results"});
  }

  /// Rejects unsupported keys and tensors, because they could change what the model computes.
  void find_unknown(const EncoderConfig& c) const {
    std::set<std::string_view> keys = {"context_length",       "embedding_length",       "block_count",
                                       "feed_forward_length",  "attention.head_count",   "attention.head_count_kv",
                                       "attention.key_length", "attention.value_length", "attention.layer_norm_epsilon",
                                       "attention.causal",     "pooling_type",           "vocab_size"};
    if (c.rotary) keys.insert({"rope.dimension_count", "rope.freq_base", "rope.scaling.type"});
    for (const GgufEntry& e : file_.metadata())
      if (e.key.starts_with(prefix_) && !keys.contains(std::string_view(e.key).substr(prefix_.size())))
        reject(false, e.key, "the feature of this key is not supported");

    std::set<std::string, std::less<>> tensors = {"token_embd.weight", "token_types.weight", "token_embd_norm.weight",
                                                  "token_embd_norm.bias"};
    if (!c.rotary) tensors.insert("position_embd.weight");
    for (std::int64_t i = 0; i < c.layers; ++i)
      for (const char* stem : {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "attn_output_norm", "ffn_up",
                               "ffn_gate", "ffn_down", "layer_output_norm"})
        for (const char* what : {"weight", "bias"})
          if (c.is_gated || std::string_view(stem) != "ffn_gate")
            tensors.insert(fmt::format("blk.{}.{}.{}", i, stem, what));
    for (const GgufTensor& t : file_.tensors()) {
      if (tensors.contains(t.name)) continue;
      const bool ranks = t.name.starts_with("cls.");
      reject(true, t.name,
             ranks ? "the model has a classifier: models that rank or classify texts are not supported"
                   : "this tensor of architecture " + c.architecture + " is not supported");
    }
  }

  std::vector<UnknownPart>* const unknown_;  ///< if null, unknown parts throw
};

}  // namespace

EncoderConfig read_encoder_config(const GgufFile& file) { return EncoderReader(file, nullptr).read(); }
EncoderConfig read_encoder_config(const GgufFile& file, std::vector<UnknownPart>& unknown) {
  return EncoderReader(file, &unknown).read();
}

}  // namespace tessera
