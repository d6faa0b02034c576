// SPDX-License-Identifier: Apache-2.0
// The keys are documented in transformers' configuration_*.py; ggml's docs/gguf.md describes the metadata.
#include "tessera/llm/hub/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/llm/architectures.h"

namespace tessera::hub {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 30;

void refuse_unsupported(const JsonObject& c, const Family& f) {
  if (const auto quantised = c.object("quantization_config"))
    c.bad("quantization_config",
          fmt::format("weights that are quantised by {} are not supported",
                      quote_text(quantised->text_or("quant_method", "an unnamed method"))),
          "Use the folder of the original model, with --weights q8_0 or q4_0, or a GGUF file");
  if (c.flag_or("use_bidirectional_attention", false))
    c.bad("use_bidirectional_attention", "bidirectional attention is not supported");
  // Gemma 1 has "gelu" in old files, but was trained with the approximation.
  const std::string key = c.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string activation = c.text_or(key, f.gelu ? "gelu_pytorch_tanh" : "silu");
  const bool known = f.gelu ? activation == "gelu_pytorch_tanh" || (activation == "gelu" && f.architecture == "gemma")
                            : activation == "silu";
  if (!known)
    c.bad(key, fmt::format("{} is not supported; {} models use {}", quote_text(activation), f.architecture,
                           f.gelu ? "gelu_pytorch_tanh" : "silu"));
}

/// Returns which layers attend to a window, from `layer_types`, or an empty vector if the key is missing.
std::vector<bool> windowed_layers(const JsonObject& c, std::int64_t layers) {
  std::vector<bool> out;
  if (!c.has("layer_types")) return out;
  for (const nlohmann::json& type : c.array("layer_types")) {
    const bool window = type == "sliding_attention";
    if (!window && type != "full_attention")
      c.bad("layer_types", "expected \"full_attention\" or \"sliding_attention\" for each layer");
    out.push_back(window);
  }
  if (static_cast<std::int64_t>(out.size()) != layers)
    c.bad("layer_types", fmt::format("expected one entry per layer, got {} for {} layers", out.size(), layers));
  return out;
}

void add_window(const JsonObject& c, const Architecture& kind, std::int64_t layers, Metadata& to) {
  const std::string key = std::string(kind.name) + ".attention.sliding_window";
  const std::vector<bool> windowed = windowed_layers(c, layers);
  if (kind.window_period == 0) {
    // These architectures run without a window. The metadata causes a warning.
    const bool used = c.has("layer_types")          ? std::ranges::find(windowed, true) != windowed.end()
                      : c.has("use_sliding_window") ? c.flag_or("use_sliding_window", false) &&
                                                          c.integer_or("max_window_layers", 0, 0, most) < layers
                                                    : kind.name == "llama" || kind.name == "mistral3";
    if (used && c.has("sliding_window")) to.set_count(key, c.integer("sliding_window", 1, most));
    return;
  }
  to.set_count(key, c.integer_or("sliding_window", kind.window_period == 1 ? 0 : 4096, 0, most));
  if (kind.window_period == 1) return;
  std::vector<bool> each = windowed;
  const std::int64_t period = c.integer_or("sliding_window_pattern", kind.window_period, 1, most);
  for (std::int64_t i = 0; each.empty() || static_cast<std::int64_t>(each.size()) < layers; ++i)
    each.push_back((i + 1) % period != 0);
  to.set(key + "_pattern", GgufArray{std::move(each)});
}

void add_gemma(const JsonObject& c, const Architecture& kind, std::int64_t width, const ModelShape& s, Metadata& to) {
  const std::string prefix = std::string(kind.name) + ".";
  const bool second = kind.name == "gemma2";
  // null means no cap
  const auto cap = [&](const char* key, double otherwise) {
    return c.value().contains(key) ? c.number_or(key, 0) : otherwise;
  };
  to.set_number(prefix + "attn_logit_softcapping", cap("attn_logit_softcapping", second ? 50 : 0));
  to.set_number(prefix + "final_logit_softcapping", cap("final_logit_softcapping", second ? 30 : 0));
  const std::int64_t by = s.layers == kind.layers_of_wide_scale ? width / s.heads : s.head_size;
  const double scalar = c.number_or("query_pre_attn_scalar", 256);
  if (scalar != static_cast<double>(by))
    c.bad("query_pre_attn_scalar",
          fmt::format("{} is not supported; a model of this size divides attention scores by sqrt({})", scalar, by));
}

void add_experts(const JsonObject& c, const std::string& prefix, ModelShape& s, Metadata& to) {
  const std::string_view key = c.has("num_local_experts") ? "num_local_experts" : "num_experts";
  s.experts = c.integer(key, 1, 4096);
  to.set_count(prefix + "expert_count", s.experts);
  to.set_count(prefix + "expert_used_count", c.integer("num_experts_per_tok", 1, s.experts));
  if (!c.has("moe_intermediate_size")) return;
  to.set_count(prefix + "expert_feed_forward_length", c.integer("moe_intermediate_size", 1, most));
  if (!c.flag_or("norm_topk_prob", false))
    c.bad("norm_topk_prob", "routing without normalised weights of the experts is not supported");
}

void check_layers_without_rope(const JsonObject& c, std::int64_t layers, std::int64_t period) {
  if (c.has("no_rope_layers")) {
    const nlohmann::json& rotated = c.array("no_rope_layers");
    bool usual = static_cast<std::int64_t>(rotated.size()) == layers;
    for (std::int64_t i = 0; usual && i < layers; ++i)
      usual = rotated[static_cast<std::size_t>(i)] == ((i + 1) % period != 0 ? 1 : 0);
    if (!usual)
      c.bad("no_rope_layers",
            fmt::format("only models in which every layer but each {}th has RoPE are supported", period));
  } else if (c.integer_or("no_rope_layer_interval", period, 0, most) != period) {
    c.bad("no_rope_layer_interval", fmt::format("only the interval {} is supported", period));
  }
}

}  // namespace

ModelShape add_config(const JsonObject& c, const Family& f, Metadata& to) {
  refuse_unsupported(c, f);
  const Architecture& kind = *find_architecture(f.architecture);
  const std::string prefix = std::string(f.architecture) + ".";
  to.set("general.architecture", std::string(f.architecture));
  to.set("general.type", std::string("model"));
  ModelShape s;
  const std::int64_t width = c.integer("hidden_size", 1, most);
  s.layers = c.integer("num_hidden_layers", 1, 4096);
  s.heads = c.integer("num_attention_heads", 1, 4096);
  // null means as many as heads
  const std::int64_t otherwise = f.key_heads == 0 || c.value().contains("num_key_value_heads") ? s.heads : f.key_heads;
  s.key_heads = c.integer_or("num_key_value_heads", otherwise, 1, 4096);
  const std::int64_t divided = f.head_size == 0 || c.value().contains("head_dim") ? width / s.heads : f.head_size;
  s.head_size = c.integer_or("head_dim", divided, 1, 4096);
  s.tied = c.flag_or("tie_word_embeddings", f.tied);
  to.set_count(prefix + "context_length", c.integer_or("max_position_embeddings", f.context, 1, most));
  to.set_count(prefix + "embedding_length", width);
  to.set_count(prefix + "block_count", s.layers);
  to.set_count(prefix + "feed_forward_length", c.integer("intermediate_size", 1, most));
  to.set_count(prefix + "attention.head_count", s.heads);
  to.set_count(prefix + "attention.head_count_kv", s.key_heads);
  to.set_count(prefix + "attention.key_length", s.head_size);
  to.set_count(prefix + "attention.value_length", s.head_size);
  to.set_number(prefix + "attention.layer_norm_rms_epsilon", c.number_or("rms_norm_eps", f.norm_epsilon));
  add_window(c, kind, s.layers, to);
  if (kind.caps) add_gemma(c, kind, width, s, to);
  if (kind.experts && (c.has("num_local_experts") || c.has("num_experts"))) add_experts(c, prefix, s, to);
  if (kind.fixed_period > 0) check_layers_without_rope(c, s.layers, kind.fixed_period);
  return s;
}

void add_sampling(const JsonObject& generation, Metadata& to) {
  const auto number = [&](const char* key, const char* name) {
    if (generation.has(key)) to.set_number(std::string("general.sampling.") + name, generation.number(key));
  };
  number("temperature", "temp");
  number("top_p", "top_p");
  number("min_p", "min_p");
  number("repetition_penalty", "penalty_repeat");
  if (generation.has("top_k"))  // some files have -1 for all
    to.set_count("general.sampling.top_k", std::max<std::int64_t>(0, generation.integer("top_k", -most, most)));
}

}  // namespace tessera::hub
