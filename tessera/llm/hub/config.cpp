// SPDX-License-Identifier: Apache-2.0
// The keys are documented in transformers' configuration_*.py; ggml's docs/gguf.md describes the metadata.
#include "tessera/llm/hub/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/llm/architectures.h"

namespace tessera::hub {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 30;

void refuse_unsupported(const JsonObject& c, const Family& f) {
  if (const auto quantised = c.object("quantization_config")) {
    const std::string method = quantised->text_or("quant_method", "an unnamed method");
    if (method != "mxfp4")
      c.bad("quantization_config",
            fmt::format("weights that are quantised by {} are not supported", quote_text(method)),
            "Use the folder of the original model, with --weights q8_0 or q4_0, or a GGUF file");
  }
  // In Gemma 4, "vision" concerns only the tokens of images.
  if (const nlohmann::json* const v = c.find("use_bidirectional_attention"); v && *v != false && *v != "vision")
    c.bad("use_bidirectional_attention", "bidirectional attention is not supported");
  if (c.flag_or("use_qk_norm", false)) c.bad("use_qk_norm", "a layer norm of queries and keys is not supported");
  if (c.has("clip_qkv")) c.bad("clip_qkv", "limits of queries, keys and values are not supported");
  for (const auto& [key, usual] : {std::pair("swiglu_alpha", 1.702), std::pair("swiglu_limit", 7.0)})
    if (const double v = c.number_or(key, usual); v != usual)
      c.bad(key, fmt::format("{} is not supported; gpt-oss has {}", v, usual));
  // Gemma 1 has "gelu" in old files, but was trained with the approximation.
  const std::string key = c.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string activation = c.text_or(key, f.gelu ? "gelu_pytorch_tanh" : "silu");
  const bool known = f.gelu ? activation == "gelu_pytorch_tanh" || (activation == "gelu" && f.architecture == "gemma")
                            : activation == "silu";
  if (!known)
    c.bad(key, fmt::format("{} is not supported; {} models use {}", quote_text(activation), f.architecture,
                           f.gelu ? "gelu_pytorch_tanh" : "silu"));
}

/// Adds which layers are convolutions: those without key heads (LFM2).
void add_convolutions(const JsonObject& c, const ModelShape& s, const std::string& prefix, Metadata& to) {
  if (c.flag_or("conv_bias", false)) c.bad("conv_bias", "convolutions with biases are not supported");
  std::vector<std::int32_t> key_heads(static_cast<std::size_t>(s.layers), 0);
  if (c.has("layer_types")) {
    const nlohmann::json& types = c.array("layer_types");
    if (types.size() != key_heads.size())
      c.bad("layer_types", fmt::format("expected one entry per layer, got {} for {} layers", types.size(), s.layers));
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i] != "conv" && types[i] != "full_attention")
        c.bad("layer_types", "expected \"conv\" or \"full_attention\" for each layer");
      if (types[i] != "conv") key_heads[i] = static_cast<std::int32_t>(s.key_heads);
    }
  } else {
    for (const nlohmann::json& layer : c.array("full_attn_idxs")) {
      if (!layer.is_number_unsigned() || layer.get<std::uint64_t>() >= key_heads.size())
        c.bad("full_attn_idxs", fmt::format("expected numbers of layers below {}", s.layers));
      key_heads[layer.get<std::size_t>()] = static_cast<std::int32_t>(s.key_heads);
    }
  }
  to.set(prefix + "attention.head_count_kv", GgufArray{std::move(key_heads)});
  to.set_count(prefix + "shortconv.l_cache", c.integer_or("conv_L_cache", 3, 2, 16));
}

/// Adds which layers have the gated delta rule, and their dimensions.
void add_delta_rule(const JsonObject& c, const std::string& prefix, ModelShape& s, Metadata& to) {
  std::vector<bool> recurrent;
  if (c.has("layer_types")) {
    for (const nlohmann::json& type : c.array("layer_types")) {
      if (type != "linear_attention" && type != "full_attention")
        c.bad("layer_types", "expected \"linear_attention\" or \"full_attention\" for each layer");
      recurrent.push_back(type == "linear_attention");
    }
    if (std::ssize(recurrent) != s.layers)
      c.bad("layer_types",
            fmt::format("expected one entry per layer, got {} for {} layers", recurrent.size(), s.layers));
  } else {
    const std::int64_t period = c.integer_or("full_attention_interval", 4, 1, most);
    for (std::int64_t i = 0; i < s.layers; ++i) recurrent.push_back((i + 1) % period != 0);
  }
  to.set(prefix + "attention.recurrent_layers", GgufArray{std::move(recurrent)});
  s.delta_key_heads = c.integer_or("linear_num_key_heads", 16, 1, 4096);
  s.delta_heads = c.integer_or("linear_num_value_heads", 32, 1, 4096);
  s.delta_key_size = c.integer_or("linear_key_head_dim", 128, 1, 1024);
  s.delta_value_size = c.integer_or("linear_value_head_dim", 128, 1, 1024);
  if (s.delta_heads % s.delta_key_heads != 0)
    c.bad("linear_num_value_heads",
          fmt::format("{} is not a multiple of {} key heads", s.delta_heads, s.delta_key_heads));
  to.set_count(prefix + "ssm.conv_kernel", c.integer_or("linear_conv_kernel_dim", 4, 2, 16));
  to.set_count(prefix + "ssm.group_count", s.delta_key_heads);
  to.set_count(prefix + "ssm.time_step_rank", s.delta_heads);
  to.set_count(prefix + "ssm.state_size", s.delta_key_size);
  to.set_count(prefix + "ssm.inner_size", s.delta_heads * s.delta_value_size);
}

/// Returns the width of feed-forward layers without experts, or 0 if all layers have experts.
std::int64_t feed_forward_length(const JsonObject& c, const Family& f) {
  const Architecture& kind = *find_architecture(f.architecture);
  // In the layers without experts of Granite 4, the shared expert is an ordinary feed-forward layer.
  if (f.shared_hidden > 0 && !kind.experts) return c.integer_or("shared_intermediate_size", f.shared_hidden, 1, most);
  if (f.architecture == "qwen35moe" && !c.has("intermediate_size")) return 0;
  if (kind.recurrent != LayerKind::convolution || kind.experts) return c.integer("intermediate_size", 1, most);
  const std::int64_t hidden = c.integer(c.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size", 1, most);
  if (!c.flag_or("block_auto_adjust_ff_dim", true)) return hidden;
  const std::int64_t multiple = c.integer_or("block_multiple_of", 256, 1, most);
  const double factor = c.number_or("block_ffn_dim_multiplier", 1);
  if (!(factor > 0 && factor <= 100)) c.bad("block_ffn_dim_multiplier", fmt::format("{} is out of range", factor));
  const auto scaled = static_cast<std::int64_t>(factor * static_cast<double>(2 * hidden / 3));
  return (scaled + multiple - 1) / multiple * multiple;
}

/// Returns which layers attend to a window, from `layer_types`, or an empty vector if the key is missing.
std::vector<bool> windowed_layers(const JsonObject& c, std::int64_t layers) {
  std::vector<bool> out;
  if (!c.has("layer_types")) return out;
  for (const nlohmann::json& type : c.array("layer_types")) {
    const bool window = type == "sliding_attention";
    if (!window && type != "full_attention" && type != "attention")
      c.bad("layer_types",
            fmt::format("{} is not supported; expected \"full_attention\" or \"sliding_attention\" for each layer",
                        quote_text(type.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))));
    out.push_back(window);
  }
  if (static_cast<std::int64_t>(out.size()) != layers)
    c.bad("layer_types", fmt::format("expected one entry per layer, got {} for {} layers", out.size(), layers));
  return out;
}

/// Adds the window, and returns which layers use it, or an empty vector if all layers have the same window or none.
std::vector<bool> add_window(const JsonObject& c, const Family& f, const Architecture& kind, std::int64_t layers,
                             Metadata& to) {
  const std::string key = std::string(kind.name) + ".attention.sliding_window";
  const std::vector<bool> windowed = windowed_layers(c, layers);
  if (kind.window_period == 0) {
    // These architectures run without a window. The metadata causes a warning.
    const bool used = c.has("layer_types")          ? std::ranges::find(windowed, true) != windowed.end()
                      : c.has("use_sliding_window") ? c.flag_or("use_sliding_window", false) &&
                                                          c.integer_or("max_window_layers", 0, 0, most) < layers
                                                    : kind.name == "llama" || kind.name == "mistral3";
    if (used && c.has("sliding_window")) to.set_count(key, c.integer("sliding_window", 1, most));
    return {};
  }
  if (f.window == 0 && kind.window_period != 1) return {};  // OLMo 2 has the architecture of OLMo 3
  // null means no window
  const std::int64_t window =
      c.value().contains("sliding_window") ? c.integer_or("sliding_window", 0, 0, most) : f.window;
  to.set_count(key, window);
  if (kind.window_period == 1 || window == 0) return {};
  std::vector<bool> each = windowed;
  const std::int64_t period = c.integer_or("sliding_window_pattern", kind.window_period, 1, most);
  for (std::int64_t i = 0; each.empty() || static_cast<std::int64_t>(each.size()) < layers; ++i)
    each.push_back((i + 1) % period != 0);
  if (kind.varied_layers) each.back() = false;  // as in transformers, also if `layer_types` says otherwise
  to.set(key + "_pattern", GgufArray{each});
  return each;
}

GgufValue each_layer(const std::vector<std::int64_t>& values) {
  return GgufArray{std::vector<std::int32_t>(values.begin(), values.end())};
}

/// Adds the sizes in which the layers of Gemma 4 differ: of heads, and the number of key heads, which layers without a
/// window have of their own; and of the feed-forward layer in those that use keys and values of an earlier layer.
void add_varied_layers(const JsonObject& c, const std::vector<bool>& windowed, const std::string& prefix, ModelShape& s,
                       Metadata& to) {
  if (windowed.empty()) c.bad("sliding_window", "models without a window are not supported");
  std::vector<std::int64_t> sizes(windowed.size(), s.head_size), key_heads(windowed.size(), s.key_heads);
  if (const auto each = c.object("per_layer_config")) {
    for (const auto& [number, value] : each->value().items()) {
      const JsonObject layer = each->within(value, number);
      std::size_t i = windowed.size();  // transformers writes numbers with leading zeros
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), i);
      if (error != std::errc() || end != number.data() + number.size() || i >= windowed.size())
        each->bad(number, fmt::format("expected the number of a layer below {}", s.layers));
      for (const auto& [key, ignored] : layer.value().items())
        if (key != "head_dim" && key != "num_key_value_heads")
          layer.bad(key, "a value of its own for a layer is not supported");
      sizes[i] = layer.integer_or("head_dim", s.head_size, 1, 4096);
      key_heads[i] = layer.integer_or("num_key_value_heads", s.key_heads, 1, 4096);
    }
  } else {
    const std::int64_t size = c.integer_or("global_head_dim", 512, 1, 4096);
    const std::int64_t heads = c.flag_or("attention_k_eq_v", false)
                                   ? c.integer_or("num_global_key_value_heads", s.key_heads, 1, 4096)
                                   : s.key_heads;
    for (std::size_t i = 0; i < windowed.size(); ++i)
      if (!windowed[i]) sizes[i] = size, key_heads[i] = heads;
  }
  const auto first = std::ranges::find(windowed, true);
  const std::int64_t local_size = first == windowed.end() ? s.head_size : sizes[first - windowed.begin()];
  s.head_size = sizes.back();  // the last layer has no window
  for (std::size_t i = 0; i < windowed.size(); ++i)
    if (sizes[i] != (windowed[i] ? local_size : s.head_size))
      c.bad("per_layer_config", "layers with the same type must have the same head_dim");
  for (const char* const what : {"attention.key_length", "attention.value_length"}) {
    to.set_count(prefix + what, s.head_size);
    to.set_count(prefix + what + "_swa", local_size);
  }
  to.set_count(prefix + "rope.dimension_count_swa", local_size);
  to.set(prefix + "attention.head_count_kv", each_layer(key_heads));
  const std::int64_t shared = c.integer_or("num_kv_shared_layers", 0, 0, s.layers);
  to.set_count(prefix + "attention.shared_kv_layers", shared);
  const std::int64_t hidden = c.integer("intermediate_size", 1, most);
  std::vector<std::int64_t> widths(windowed.size(), hidden);
  if (c.flag_or("use_double_wide_mlp", false)) std::fill(widths.end() - shared, widths.end(), 2 * hidden);
  to.set(prefix + "feed_forward_length", each_layer(widths));
  to.set_count(prefix + "embedding_length_per_layer_input",
               c.integer_or("hidden_size_per_layer_input", 256, 0, 1 << 20));
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
  if (kind.unscaled_scores) return;
  const std::int64_t by = s.layers == kind.layers_of_wide_scale ? width / s.heads : s.head_size;
  const double scalar = c.number_or("query_pre_attn_scalar", 256);
  if (scalar != static_cast<double>(by))
    c.bad("query_pre_attn_scalar",
          fmt::format("{} is not supported; a model of this size divides attention scores by sqrt({})", scalar, by));
}

void add_experts(const JsonObject& c, const Family& f, const std::string& prefix, ModelShape& s, Metadata& to) {
  const Architecture& kind = *find_architecture(f.architecture);
  const std::string_view key = c.has("num_local_experts") ? "num_local_experts" : "num_experts";
  s.experts = c.integer(key, 1, 4096);
  to.set_count(prefix + "expert_count", s.experts);
  to.set_count(prefix + "expert_used_count",
               c.integer(kind.dense_and_experts ? "top_k_experts" : "num_experts_per_tok", 1, s.experts));
  if (f.expert_hidden) to.set_count(prefix + "expert_feed_forward_length", c.integer("moe_intermediate_size", 1, most));
  if (kind.sigmoid_router) to.set_number(prefix + "expert_weights_scale", c.number_or("routed_scaling_factor", 1));
  if (kind.shared_expert)
    to.set_count(prefix + "expert_shared_feed_forward_length",
                 c.integer_or(kind.shared_gate ? "shared_expert_intermediate_size" : "shared_intermediate_size",
                              f.shared_hidden, 0, most));
  if (const bool normalised = c.flag_or("norm_topk_prob", f.normalised); normalised == kind.unnormalised)
    c.bad("norm_topk_prob", fmt::format("{} is not supported; the weights of the experts of {} models are {}normalised",
                                        normalised, f.architecture, kind.unnormalised ? "not " : ""));
}

/// The scales of Granite. In GGUF files, 0 means that a scale is not used.
void add_scales(const JsonObject& c, const std::string& prefix, Metadata& to) {
  for (const auto& [theirs, ours] :
       {std::pair("attention_multiplier", "attention.scale"), std::pair("embedding_multiplier", "embedding_scale"),
        std::pair("residual_multiplier", "residual_scale"), std::pair("logits_scaling", "logit_scale")})
    to.set_number(prefix + ours, c.number_or(theirs, 1));
  if (c.has("mamba_n_heads") && c.text_or("position_embedding_type", "nope") != "rope")
    to.set(prefix + "rope.scaling.finetuned", false);
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
  s.heads =
      f.heads == 0 ? c.integer("num_attention_heads", 1, 4096) : c.integer_or("num_attention_heads", f.heads, 1, 4096);
  // null means as many as heads
  const std::int64_t otherwise = f.key_heads == 0 || c.value().contains("num_key_value_heads") ? s.heads : f.key_heads;
  s.key_heads = c.integer_or("num_key_value_heads", otherwise, 1, 4096);
  const std::int64_t divided = f.head_size == 0 || c.value().contains("head_dim") ? width / s.heads : f.head_size;
  s.head_size = c.integer_or("head_dim", divided, 1, 4096);
  if (s.head_size == 0)  // `divided` is not checked
    c.bad("num_attention_heads", fmt::format("{} is more than the width, {}", s.heads, width));
  s.tied = c.flag_or("tie_embedding", c.flag_or("tie_word_embeddings", f.tied));  // the first is LFM2's
  to.set_count(prefix + "context_length", c.integer_or("max_position_embeddings", f.context, 1, most));
  to.set_count(prefix + "embedding_length", width);
  to.set_count(prefix + "block_count", s.layers);
  const bool experts = kind.experts && (c.has("num_local_experts") || c.has("num_experts")) &&
                       (!kind.dense_and_experts || c.flag_or("enable_moe_block", false));
  if (const std::int64_t hidden = feed_forward_length(c, f); hidden > 0)
    to.set_count(prefix + "feed_forward_length", hidden);
  to.set_count(prefix + "attention.head_count", s.heads);
  to.set_count(prefix + "attention.head_count_kv", s.key_heads);
  to.set_count(prefix + "attention.key_length", s.head_size);
  to.set_count(prefix + "attention.value_length", s.head_size);
  to.set_number(prefix + (kind.layer_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
                c.number_or(f.norm_key, f.norm_epsilon));
  if (kind.recurrent == LayerKind::convolution)
    add_convolutions(c, s, prefix, to);
  else if (kind.recurrent == LayerKind::delta_rule)
    add_delta_rule(c, prefix, s, to);
  else if (const std::vector<bool> windowed = add_window(c, f, kind, s.layers, to); kind.varied_layers)
    add_varied_layers(c, windowed, prefix, s, to);
  if (kind.caps) add_gemma(c, kind, width, s, to);
  if (kind.scales) add_scales(c, prefix, to);
  if (kind.scaled_logits) to.set_number(prefix + "logit_scale", c.number_or("logit_scale", 0.0625));
  if (experts) add_experts(c, f, prefix, s, to);
  if (kind.fixed_period > 0) check_layers_without_rope(c, s.layers, kind.fixed_period);
  return s;
}

namespace {

/// Adds the rotary positions of Nomic Embed, and refuses what other models of its class have.
void add_rotary_encoder(const JsonObject& c, const Family& f, const std::string& prefix, Metadata& to) {
  for (const char* key : {"prenorm", "use_rms_norm", "rotary_emb_interleaved", "causal"})
    if (c.flag_or(key, false)) c.bad(key, "true is not supported");
  for (const char* key : {"rotary_scaling_factor", "rotary_emb_scale_base", "rope_scaling"})
    if (c.has(key)) c.bad(key, "scaling of rotary positions is not supported in encoders");
  if (c.number_or("rotary_emb_fraction", 1) != 1)
    c.bad("rotary_emb_fraction", "only rotary positions of whole heads are supported");
  if (c.number_or("moe_every_n_layers", 0) != 0) c.bad("moe_every_n_layers", "experts are not supported in encoders");
  double base = c.number_or("rotary_emb_base", c.number_or("rope_theta", f.rope_base));
  if (const auto rope = c.object("rope_parameters")) {
    if (const std::string v = rope->text_or("rope_type", "default"); v != "default")
      rope->bad("rope_type", fmt::format("{} is not supported in encoders", quote_text(v)));
    base = rope->number_or("rope_theta", base);
  }
  to.set_number(prefix + "rope.freq_base", base);
}

}  // namespace

ModelShape add_encoder_config(const JsonObject& c, const Family& f, Metadata& to) {
  const EncoderArchitecture& kind = *find_encoder_architecture(f.architecture);
  // The class that Nomic publishes has other names of keys than transformers.
  const auto named = [&](std::string_view key, std::string_view other) {
    return kind.rotates && c.has(other) ? other : key;
  };
  const std::string prefix = std::string(f.architecture) + ".";
  to.set("general.architecture", std::string(f.architecture));
  to.set("general.type", std::string("model"));
  const std::string_view key = named("hidden_act", "activation_function");
  const std::string activation = key != "hidden_act" ? "swiglu" : kind.is_gated ? "silu" : "gelu";
  if (const std::string v = c.text_or(key, activation); v != activation)
    c.bad(key, fmt::format("{} is not supported; expected {}", quote_text(v), activation));
  if (const std::string v = c.text_or("position_embedding_type", "absolute"); v != "absolute")
    c.bad("position_embedding_type", fmt::format("{} is not supported", quote_text(v)));
  for (const char* key : {"is_decoder", "add_cross_attention"})
    if (c.flag_or(key, false)) c.bad(key, "decoders of this class are not supported");
  if (c.has("quantization_config")) c.bad("quantization_config", "quantised weights are not supported");
  ModelShape s;
  s.tied = true;
  s.layers = c.integer(named("num_hidden_layers", "n_layer"), 1, 4096);
  // RoBERTa's positions begin after the padding token's.
  if (f.skips_positions) s.skipped_positions = c.integer_or("pad_token_id", 1, 0, 1 << 20) + 1;
  const std::int64_t positions =
      c.integer_or(named("max_position_embeddings", "max_trained_positions"), f.context, 1, most);
  if (positions <= s.skipped_positions)
    c.bad("max_position_embeddings", fmt::format("{} leaves no positions for tokens", positions));
  to.set_count(prefix + "context_length", positions - s.skipped_positions);
  const std::int64_t width = c.integer(named("hidden_size", "n_embd"), 1, most);
  to.set_count(prefix + "embedding_length", width);
  to.set_count(prefix + "block_count", s.layers);
  to.set_count(prefix + "feed_forward_length", c.integer(named("intermediate_size", "n_inner"), 1, most));
  s.heads = c.integer(named("num_attention_heads", "n_head"), 1, 4096);
  to.set_count(prefix + "attention.head_count", s.heads);
  if (c.integer_or("head_dim", width / s.heads, 1, most) != width / s.heads)
    c.bad("head_dim", fmt::format("expected the width divided by the heads, {}", width / s.heads));
  to.set_number(prefix + "attention.layer_norm_epsilon",
                c.number_or(named(f.norm_key, "layer_norm_epsilon"), f.norm_epsilon));
  if (kind.rotates) add_rotary_encoder(c, f, prefix, to);
  to.set(prefix + "attention.causal", false);
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
