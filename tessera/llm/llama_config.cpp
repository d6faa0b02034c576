// SPDX-License-Identifier: Apache-2.0
// The metadata keys are specified in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <type_traits>
#include <variant>

#include "tessera/llm/gguf_values.h"
#include "tessera/llm/llama.h"
#include "tessera/llm/model_keys.h"

namespace tessera {

namespace {

class ConfigReader : private ModelKeys {
 public:
  ConfigReader(const GgufFile& file, std::vector<UnknownPart>* unknown) : ModelKeys(file), unknown_(unknown) {}

  LlamaConfig read() {
    LlamaConfig c;
    if (file_.get_or<std::string>("general.type", "model") == "adapter")
      bad("general.type", "this is a LoRA adapter, not a model", "Merge it into its model first");
    c.architecture = file_.get<std::string>("general.architecture");
    const Architecture* kind = find_architecture(c.architecture);
    if (!kind) {
      std::string what = quote_text(c.architecture) + " is not a supported architecture";
      if (const auto why = missing_in_architecture(c.architecture); !why.empty()) what += fmt::format(": {}", why);
      bad("general.architecture", what,
          find_encoder_architecture(c.architecture) ? "Use `tessera embed`, or EmbeddingModel in C++"
                                                    : "Supported architectures: " + architecture_names());
    }
    c.rotary.pairs = kind->pairs, c.gate = kind->gate;
    c.head_norms = kind->head_norms, c.projection_norms = kind->projection_norms;
    c.input_norms = kind->input_norms, c.post_norms = kind->post_norms;
    c.layer_norms = kind->layer_norms, c.parallel = kind->parallel;
    c.value_norms = kind->value_norms;
    c.sinks = kind->sinks, c.expert_biases = kind->expert_biases;
    prefix_ = c.architecture + ".";
    c.name = file_.get_or<std::string>("general.name", file_.name());
    c.context_length = count("context_length", 1 << 30);
    c.width = count("embedding_length", 1 << 20);
    c.layers = count("block_count", 4096);
    if (kind->recurrent == LayerKind::delta_rule) skip_predictors(c);
    c.layer_kinds.resize(static_cast<std::size_t>(c.layers));
    const auto set_layers = [&](const std::string& key, std::int64_t most, std::int64_t LlamaConfig::Layer::*member) {
      const std::vector<std::int64_t> each =
          kind->varied_layers ? counts(key, c.layers, most) : std::vector(c.layer_kinds.size(), count(key, most));
      for (std::size_t i = 0; i < each.size(); ++i) c.layer_kinds[i].*member = each[i];
      return *std::ranges::max_element(each);
    };
    // In some models, all layers have experts.
    c.hidden = set_layers(kind->experts && !file_.has(prefix_ + "feed_forward_length") ? "expert_feed_forward_length"
                                                                                       : "feed_forward_length",
                          1 << 22, &LlamaConfig::Layer::hidden);
    c.heads = count("attention.head_count", 4096);
    c.gated_attention = kind->gated_attention;
    if (kind->recurrent != LayerKind::attention) read_recurrent(c, kind->recurrent);
    c.key_heads = !file_.has(prefix_ + "attention.head_count_kv") ? c.heads
                  : kind->recurrent == LayerKind::convolution
                      ? key_heads_of_attention()
                      : set_layers("attention.head_count_kv", 4096, &LlamaConfig::Layer::key_heads);
    for (LlamaConfig::Layer& l : c.layer_kinds)
      if (l.key_heads == 0) l.key_heads = c.key_heads;
    if (std::ranges::any_of(c.layer_kinds, [&](const LlamaConfig::Layer& l) { return c.heads % l.key_heads != 0; }))
      bad(prefix_ + "attention.head_count_kv", "the number of heads is not a multiple of the number of key heads", "");
    if (!file_.has(prefix_ + "attention.key_length") && c.width % c.heads != 0)
      bad(prefix_ + "attention.head_count",
          "the width is not a multiple of the number of heads, and key_length is missing", "");
    c.head_size = file_.has(prefix_ + "attention.key_length") ? count("attention.key_length", 4096) : c.width / c.heads;
    if (file_.has(prefix_ + "attention.value_length") && count("attention.value_length", 4096) != c.head_size)
      bad(prefix_ + "attention.value_length", "values must have the same size as keys", "");
    // With a smaller epsilon, the norm of a row of zeros would divide by 0.
    c.norm_epsilon =
        number(c.layer_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5f, 1e-30f, 1);
    c.rotary.dimensions =
        file_.has(prefix_ + "rope.dimension_count") ? count("rope.dimension_count", 4096) : c.head_size;
    if (c.rotary.dimensions > c.head_size || c.rotary.dimensions % 2 != 0)
      bad(prefix_ + "rope.dimension_count",
          "the number must be even and at most the head size of " + std::to_string(c.head_size) + " elements", "");
    c.rotary.base = file_.get_or<float>(prefix_ + "rope.freq_base", 10000.0f);
    if (!(c.rotary.base >= 1.0f && c.rotary.base <= 1e30f))
      bad(prefix_ + "rope.freq_base", fmt::format("{}", c.rotary.base) + " is not between 1 and 1e30", "");
    read_scaling(c, kind->exact_yarn);
    read_kind(c, *kind);
    read_layers(c, *kind);
    if (kind->scales) read_scales(c);
    if (kind->scaled_logits) c.logit_scale = number("logit_scale", 1, 1e-6f, 1e6f);
    if (kind->experts) read_experts(c, *kind);
    const GgufTensor& embedding = file_.tensor("token_embd.weight");
    c.vocabulary = embedding.dims.size() == 2 ? static_cast<std::int64_t>(embedding.dims[1]) : 0;
    c.tied = file_.find_tensor("output.weight") == nullptr;
    c.pooling = file_.get_or<std::int64_t>(prefix_ + "pooling_type", 0);
    find_unknown(c, *kind);
    return c;
  }

 private:
  // The last blocks may predict further tokens. They are not used.
  void skip_predictors(LlamaConfig& c) const {
    const std::string key = prefix_ + "nextn_predict_layers";
    const auto predictors = file_.get_or<std::int64_t>(key, 0);
    if (predictors < 0 || predictors >= c.layers)
      bad(key, fmt::format("{} is not between 0 and {}", predictors, c.layers - 1), "");
    c.layers -= predictors;
  }

  // Sizes of heads, and layers that use the keys and values of an earlier one: the last layer with the same window, or
  // also without one, that has its own.
  void read_layers(LlamaConfig& c, const Architecture& kind) const {
    std::int64_t own = c.layers;
    if (kind.varied_layers) own -= file_.get_or<std::int64_t>(prefix_ + "attention.shared_kv_layers", 0);
    if (own < 1 || own > c.layers)
      bad(prefix_ + "attention.shared_kv_layers",
          fmt::format("{} of {} layers have no keys and values", c.layers - own, c.layers), "");
    std::int64_t local_size = c.head_size;
    if (kind.varied_layers && file_.has(prefix_ + "attention.key_length_swa"))
      local_size = count("attention.key_length_swa", 4096);
    if (kind.varied_layers && file_.has(prefix_ + "attention.value_length_swa") &&
        count("attention.value_length_swa", 4096) != local_size)
      bad(prefix_ + "attention.value_length_swa", "values must have the same size as keys", "");
    for (std::int64_t i = 0; i < c.layers; ++i) {
      LlamaConfig::Layer& l = c.layer_kinds[static_cast<std::size_t>(i)];
      l.head_size = l.window > 0 ? local_size : c.head_size;
      l.source = i;
      if (i < own) continue;
      do --l.source;
      while (l.source >= 0 &&
             (l.source >= own || c.layer_kinds[static_cast<std::size_t>(l.source)].window != l.window));
      if (l.source < 0 || c.layer_kinds[static_cast<std::size_t>(l.source)].key_heads != l.key_heads)
        bad(prefix_ + "attention.shared_kv_layers", fmt::format("no earlier layer has keys and values for layer {}", i),
            "");
    }
    if (kind.varied_layers && c.local_rotary) {
      c.local_rotary->dimensions =
          file_.has(prefix_ + "rope.dimension_count_swa") ? count("rope.dimension_count_swa", 4096) : local_size;
      if (c.local_rotary->dimensions > local_size || c.local_rotary->dimensions % 2 != 0)
        bad(prefix_ + "rope.dimension_count_swa",
            fmt::format("the number must be even and at most the head size of {} elements", local_size), "");
    }
    if (kind.layer_inputs && file_.get_or<std::int64_t>(prefix_ + "embedding_length_per_layer_input", 0) != 0)
      c.layer_input = count("embedding_length_per_layer_input", 1 << 20);
  }

  // In LFM2's files, layers without key heads are convolutions.
  std::int64_t key_heads_of_attention() const {
    const std::string key = prefix_ + "attention.head_count_kv";
    const auto each = file_.get_array<std::int64_t>(key);
    const std::int64_t most = *std::ranges::max_element(each);
    if (most < 1 || most > 4096 || std::ranges::any_of(each, [&](std::int64_t n) { return n != 0 && n != most; }))
      bad(key, "attention layers must have the same number of key heads, between 1 and 4096", "");
    return most;
  }

  /// Reads which layers are recurrent, and their dimensions.
  void read_recurrent(LlamaConfig& c, LayerKind kind) const {
    const auto set = [&](const std::string& key, const std::vector<bool>& recurrent) {
      if (std::ssize(recurrent) < c.layers)
        bad(key, fmt::format("expected one entry per layer, got {} for {} layers", recurrent.size(), c.layers), "");
      for (std::size_t i = 0; i < c.layer_kinds.size(); ++i)
        if (recurrent[i]) c.layer_kinds[i].kind = kind;
    };
    std::vector<bool> recurrent;
    if (kind == LayerKind::convolution) {
      const std::string key = prefix_ + "attention.head_count_kv";
      if (!is_array(key)) bad(key, "expected the number of key heads of each layer; 0 means a convolution", "");
      for (const std::int64_t heads : file_.get_array<std::int64_t>(key)) recurrent.push_back(heads == 0);
      set(key, recurrent);
      c.taps = count("shortconv.l_cache", 16);
    } else {
      const std::string key = prefix_ + "attention.recurrent_layers";
      if (is_array(key)) {
        recurrent = file_.get_array<bool>(key);
      } else {
        const std::int64_t period =
            file_.has(prefix_ + "full_attention_interval") ? count("full_attention_interval", 4096) : 4;
        for (std::int64_t i = 0; i < c.layers; ++i) recurrent.push_back((i + 1) % period != 0);
      }
      set(key, recurrent);
      c.taps = count("ssm.conv_kernel", 16);
      LlamaConfig::DeltaRule& d = c.delta;
      d.grouped = find_architecture(c.architecture)->grouped_delta_heads;
      d.key_heads = count("ssm.group_count", 4096), d.heads = count("ssm.time_step_rank", 4096);
      d.key_size = count("ssm.state_size", 1024);
      const std::int64_t values = count("ssm.inner_size", 1 << 22);
      if (d.heads % d.key_heads != 0 || values % d.heads != 0)
        bad(prefix_ + "ssm.time_step_rank",
            fmt::format("{} heads do not divide {} elements, or are not a multiple of {} key heads", d.heads, values,
                        d.key_heads),
            "");
      d.value_size = values / d.heads;
    }
    if (c.taps < 2)
      bad(prefix_ + (kind == LayerKind::convolution ? "shortconv.l_cache" : "ssm.conv_kernel"),
          "a convolution must read at least 2 tokens", "");
  }

  // In Granite's files, a scale of 0 means 1, and logits are divided by the scale. As in llama.cpp, layers do not
  // rotate if the key about fine-tuned scaling is false.
  void read_scales(LlamaConfig& c) const {
    const auto scale = [&](const char* key) {
      const float v = number(key, 0, 0, 1e6f);
      if (v != 0 && v < 1e-6f) bad(prefix_ + key, fmt::format("{} is not 0 or at least 1e-6", v), "");
      return v;
    };
    const auto or_one = [](float v) { return v == 0 ? 1.0f : v; };
    if (const float v = scale("attention.scale"); v != 0) c.attention_scale = v;
    c.embedding_scale = or_one(scale("embedding_scale"));
    c.residual_scale = or_one(scale("residual_scale"));
    c.logit_scale = 1 / or_one(scale("logit_scale"));
    if (!file_.get_or<bool>(prefix_ + "rope.scaling.finetuned", true))
      for (LlamaConfig::Layer& l : c.layer_kinds) l.rotates = false;
  }

  // Each token uses the experts with the largest logits, and the weights are a softmax of these logits or of all
  // logits. Other kinds of routing have keys that are not supported.
  void read_experts(LlamaConfig& c, const Architecture& kind) const {
    if (file_.get_or<std::int64_t>(prefix_ + "expert_count", 0) == 0) return;
    c.experts = count("expert_count", 4096);
    c.used_experts = count("expert_used_count", c.experts);
    c.expert_hidden =
        file_.has(prefix_ + "expert_feed_forward_length") ? count("expert_feed_forward_length", 1 << 22) : c.hidden;
    c.dense_and_experts = kind.dense_and_experts, c.sigmoid_router = kind.sigmoid_router;
    if (kind.sigmoid_router) {
      constexpr std::int64_t sigmoid = 2;  // of llama.cpp's functions
      if (const auto function = file_.get_or<std::int64_t>(prefix_ + "expert_gating_func", sigmoid);
          function != sigmoid)
        bad(prefix_ + "expert_gating_func", fmt::format("{} is not supported; the weights are sigmoids (2)", function),
            "");
      c.expert_scale = number("expert_weights_scale", 1, 1e-6f, 1e6f);
    }
    c.unnormalised = kind.unnormalised, c.shared_gate = kind.shared_gate;
    const std::string shared = "expert_shared_feed_forward_length";
    if (kind.shared_expert && file_.get_or<std::int64_t>(prefix_ + shared, kind.shared_gate) != 0)
      c.shared_hidden = file_.has(prefix_ + shared) ? count(shared, 1 << 22) : c.hidden;
  }

  // YaRN (Peng et al. 2023): rotary pairs that turn many times within the original context keep their frequency. The
  // frequency of pairs that turn less than once is divided by the factor. In between, the divisor changes linearly.
  // Unless `exact`, the ends of this range are rounded to whole pairs.
  void read_yarn(LlamaConfig& c, float factor, bool exact) const {
    const double dimensions = static_cast<double>(c.rotary.dimensions), base = static_cast<double>(c.rotary.base);
    const double context = static_cast<double>(c.original_context);
    const auto pair_of = [&](float turns) {  // index of the pair that turns this many times within the context
      return dimensions * std::log(context / (static_cast<double>(turns) * 2 * std::numbers::pi)) /
             (2 * std::log(base));
    };
    const double first = pair_of(number("rope.scaling.yarn_beta_fast", 32, 1e-3f, 1e6f)),
                 last = pair_of(number("rope.scaling.yarn_beta_slow", 1, 1e-3f, 1e6f));
    const double low = std::max(0.0, exact ? first : std::floor(first)),
                 high = std::min(dimensions - 1, exact ? last : std::ceil(last));
    for (std::int64_t i = 0; i < c.rotary.dimensions / 2; ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
      c.frequency_factors.push_back(static_cast<float>(1 / (ramp / static_cast<double>(factor) + (1 - ramp))));
    }
    // A value in the file takes precedence over the formula, as in transformers. llama.cpp ignores the value.
    const auto scale = [&](float part) { return 1 + 0.1f * part * std::log(factor); };
    const float part = number("rope.scaling.yarn_log_multiplier", 0, 0, 1e3f);
    c.rotary.magnitude =
        number("rope.scaling.yarn_attn_factor", part == 0 ? scale(1) : scale(1) / scale(part), 1e-3f, 1e3f);
  }

  // The fourth section must be empty: its position is always 0 in text, so its pairs would not be rotated.
  void read_sections(const LlamaConfig& c) const {
    const std::string key = prefix_ + "rope.dimension_sections";
    if (!file_.has(key)) return;
    const auto sections = file_.get_array<std::int64_t>(key);
    std::int64_t pairs = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, sections.size()); ++i)
      pairs += sections[i] >= 0 && sections[i] <= c.head_size ? sections[i] : c.head_size;
    if (sections.size() > 4 || pairs != c.rotary.dimensions / 2 || (sections.size() == 4 && sections[3] != 0))
      bad(key, fmt::format("expected three sections that sum to the {} pairs", c.rotary.dimensions / 2), "");
  }

  void read_kind(LlamaConfig& c, const Architecture& kind) const {
    if (kind.scaled_embedding) c.embedding_scale = std::sqrt(static_cast<float>(c.width));
    const std::int64_t scaled_by = c.layers == kind.layers_of_wide_scale ? c.width / c.heads : c.head_size;
    c.attention_scale = kind.unscaled_scores ? 1.0f : 1.0f / std::sqrt(static_cast<float>(scaled_by));
    if (kind.sections) read_sections(c);
    if (kind.temperature) c.temperature_scale = number("attention.temperature_scale", 0, 0, 1e3f);
    if (kind.caps) {
      c.attention_cap = number("attn_logit_softcapping", c.architecture == "gemma2" ? 50.0f : 0.0f, 0, 1e6f);
      c.output_cap = number("final_logit_softcapping", c.architecture == "gemma2" ? 30.0f : 0.0f, 0, 1e6f);
    }
    for (std::int64_t i = 0; i < c.layers && kind.fixed_period > 0; ++i)
      c.layer_kinds[static_cast<std::size_t>(i)].rotates = (i + 1) % kind.fixed_period != 0;
    if (kind.window_period == 0) {  // llama.cpp ignores the window for these architectures, too
      if (const std::string key = prefix_ + "attention.sliding_window"; !is_array(key))
        c.ignored_window = file_.get_or<std::int64_t>(key, 0);
      if (kind.recurrent != LayerKind::attention && c.ignored_window != 0)
        bad(prefix_ + "attention.sliding_window", "windows are not supported in this architecture", "");
      return;
    }
    const auto window = file_.get_or<std::int64_t>(prefix_ + "attention.sliding_window", kind.window);
    if (window < 0 || window > 1 << 30)
      bad(prefix_ + "attention.sliding_window", std::to_string(window) + " is not between 0 and 2^30", "");
    const std::string pattern = prefix_ + "attention.sliding_window_pattern";
    std::vector<bool> each;
    if (is_array(pattern)) {
      each = file_.get_array<bool>(pattern);
      if (static_cast<std::int64_t>(each.size()) != c.layers)
        bad(pattern, fmt::format("expected one entry per layer, got {} for {} layers", each.size(), c.layers), "");
    } else {
      const auto period = file_.get_or<std::int64_t>(pattern, kind.window_period);
      for (std::int64_t i = 0; i < c.layers; ++i) each.push_back(period <= 1 || i % period < period - 1);
    }
    for (std::size_t i = 0; i < each.size(); ++i) {
      c.layer_kinds[i].window = each[i] ? window : 0;
      if (kind.rotates_windows && window > 0) c.layer_kinds[i].rotates = each[i];
    }
    if (kind.unscaled_windows) {
      const float base = kind.local_base > 0 ? kind.local_base : c.rotary.base;
      c.local_rotary = c.rotary;
      c.local_rotary->base = number("rope.freq_base_swa", base, 1, 1e30f);
      c.local_rotary->scale = c.local_rotary->magnitude = 1;
    }
  }

  // As in llama.cpp, a factor without a type means linear scaling, and old files use the key rope.scale_linear.
  void read_scaling(LlamaConfig& c, bool exact_yarn) const {
    c.original_context = file_.get_or<std::int64_t>(prefix_ + "rope.scaling.original_context_length", c.context_length);
    if (c.original_context < 1 || c.original_context > 1 << 30)
      bad(prefix_ + "rope.scaling.original_context_length",
          std::to_string(c.original_context) + " is not between 1 and 2^30", "");
    const bool long_factors = file_.find_tensor("rope_factors_long.weight") != nullptr;
    if (long_factors != (file_.find_tensor("rope_factors_short.weight") != nullptr))
      bad("rope_factors_short.weight",
          "a file with one of rope_factors_short.weight and rope_factors_long.weight must have both", "");
    if (long_factors && file_.find_tensor("rope_freqs.weight"))
      bad("rope_freqs.weight", "a file with rope_factors_long.weight must not have other factors", "");
    const std::string factor_key = prefix_ + "rope.scaling.factor", old_key = prefix_ + "rope.scale_linear";
    const std::string key = file_.has(factor_key) || !file_.has(old_key) ? factor_key : old_key;
    const float factor = file_.get_or<float>(key, 1.0f);
    const std::string type =
        file_.get_or<std::string>(prefix_ + "rope.scaling.type", file_.has(key) ? "linear" : "none");
    if (type == "linear") {
      if (!(factor >= 1e-6f && factor <= 1e6f))
        bad(key, fmt::format("{}", factor) + " is not between 1e-6 and 1e6", "");
      c.rotary.scale = 1.0f / factor;
    } else if (type == "yarn") {
      if (!(factor >= 1 && factor <= 1e6f)) bad(key, fmt::format("{} is not between 1 and 1e6", factor), "");
      if (file_.find_tensor("rope_freqs.weight") || long_factors)
        bad(prefix_ + "rope.scaling.type", "yarn cannot be combined with a tensor of rotary factors", "");
      read_yarn(c, factor, exact_yarn);
    } else if (type != "none" && !(type == "longrope" && long_factors)) {
      bad(prefix_ + "rope.scaling.type", quote_text(type) + " is not supported",
          "Supported types: none, linear, yarn, and longrope with its tensors of factors. The factors of Llama 3.1 "
          "(tensor "
          "rope_freqs.weight) are also supported");
    }
    c.rotary.magnitude *= number("rope.scaling.attn_factor", 1, 1e-3f, 1e3f);
  }

  /// Rejects unsupported keys and tensors, because they could change what the model computes. Ignores keys that have no
  /// effect, and keys whose value means that a feature is not used.
  void find_unknown(const LlamaConfig& c, const Architecture& kind) const {
    static const std::set<std::string_view> read = {"context_length",
                                                    "embedding_length",
                                                    "block_count",
                                                    "feed_forward_length",
                                                    "attention.head_count",
                                                    "attention.head_count_kv",
                                                    "attention.key_length",
                                                    "attention.value_length",
                                                    "attention.layer_norm_rms_epsilon",
                                                    "rope.dimension_count",
                                                    "rope.freq_base",
                                                    "rope.scaling.type",
                                                    "rope.scaling.factor",
                                                    "rope.scale_linear",
                                                    "rope.scaling.attn_factor",
                                                    "rope.scaling.original_context_length",
                                                    "pooling_type"};
    std::set<std::string_view> of_kind;
    if (c.rotary.magnitude != 1 || !c.frequency_factors.empty())
      of_kind = {"rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_attn_factor",
                 "rope.scaling.yarn_log_multiplier"};
    if (kind.temperature) of_kind.insert("attention.temperature_scale");
    if (c.experts > 0) of_kind.insert({"expert_count", "expert_used_count", "expert_feed_forward_length"});
    if (kind.shared_expert) of_kind.insert("expert_shared_feed_forward_length");
    if (kind.sigmoid_router)
      of_kind.insert({"expert_gating_func", "expert_weights_scale", "leading_dense_block_count"});
    if (kind.scaled_logits) of_kind.insert("logit_scale");
    if (kind.scales) of_kind.insert({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"});
    if (kind.sections) of_kind.insert({"rope.dimension_sections", "n_deepstack_layers"});
    if (kind.caps) of_kind.insert({"attn_logit_softcapping", "final_logit_softcapping"});
    if (kind.window_period > 0) of_kind.insert({"attention.sliding_window", "attention.sliding_window_pattern"});
    if (kind.unscaled_windows) of_kind.insert("rope.freq_base_swa");
    if (kind.varied_layers)
      of_kind.insert({"attention.key_length_swa", "attention.value_length_swa", "attention.shared_kv_layers",
                      "rope.dimension_count_swa"});
    if (kind.layer_inputs) of_kind.insert("embedding_length_per_layer_input");
    if (kind.recurrent == LayerKind::convolution) of_kind.insert("shortconv.l_cache");
    if (kind.recurrent == LayerKind::delta_rule)
      of_kind.insert({"ssm.conv_kernel", "ssm.group_count", "ssm.time_step_rank", "ssm.state_size", "ssm.inner_size",
                      "full_attention_interval", "attention.recurrent_layers", "nextn_predict_layers"});
    static const std::set<std::string_view> harmless = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned",
                                                        "attention.layer_norm_epsilon", "attention.sliding_window"};
    static const std::set<std::string_view> harmless_as_zero = {"expert_count",
                                                                "expert_used_count",
                                                                "expert_shared_count",
                                                                "use_parallel_residual",
                                                                "attention.max_alibi_bias",
                                                                "attention.clamp_kqv",
                                                                "logit_scale"};
    for (const GgufEntry& e : file_.metadata()) {
      if (e.key.compare(0, prefix_.size(), prefix_) != 0) continue;
      const std::string_view key = std::string_view(e.key).substr(prefix_.size());
      if (read.count(key) || of_kind.count(key) || harmless.count(key)) continue;
      const bool zero = std::visit(
          [](const auto& v) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) return v == 0;
            return false;
          },
          e.value);
      if (harmless_as_zero.count(key) && zero) continue;
      // Granite 4 models without recurrent layers and experts have the keys of both.
      if (kind.scales && c.experts == 0 && key == "expert_shared_feed_forward_length") continue;
      if (kind.scales && key.starts_with("ssm.")) continue;
      const std::string why = key.starts_with("expert_") ? "this kind of mixture of experts is not supported"
                                                         : "the feature of this key is not supported";
      if (!unknown_) bad(e.key, why, "");
      unknown_->push_back({false, e.key, why});
    }
    std::set<std::string, std::less<>> tensors = {"token_embd.weight",         "output.weight",
                                                  "rope_freqs.weight",         "rope_factors_long.weight",
                                                  "rope_factors_short.weight", std::string(kind.output_norm)};
    if (c.layer_input > 0)
      tensors.insert({"per_layer_token_embd.weight", "per_layer_model_proj.weight", "per_layer_proj_norm.weight"});
    for (std::int64_t i = 0; i < c.layers; ++i) {
      const std::string p = "blk." + std::to_string(i) + ".";
      std::vector<std::string_view> names;
      const auto add = [&](std::initializer_list<std::string_view> more) { names.insert(names.end(), more); };
      const LayerKind layer = c.kind_of(static_cast<std::size_t>(i));
      if (layer == LayerKind::convolution)
        add({"shortconv.in_proj.weight", "shortconv.conv.weight", "shortconv.out_proj.weight"});
      else if (layer == LayerKind::delta_rule)
        add({"attn_qkv.weight", "attn_gate.weight", "ssm_conv1d.weight", "ssm_dt.bias", "ssm_a", "ssm_norm.weight",
             "ssm_out.weight"});
      else if (kind.gated_attention)
        add({"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"});
      else if (file_.find_tensor(p + "attn_qkv.weight"))
        add({"attn_qkv.weight", "attn_qkv.bias", "attn_output.weight", "attn_output.bias"});
      else
        add({"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_q.bias", "attn_k.bias", "attn_v.bias",
             "attn_output.weight", "attn_output.bias"});
      if (layer == LayerKind::delta_rule && kind.grouped_delta_heads) add({"ssm_ba.weight"});
      if (layer == LayerKind::delta_rule && !kind.grouped_delta_heads) add({"ssm_beta.weight", "ssm_alpha.weight"});
      if (layer == LayerKind::attention) add({"attn_rot_embd.weight"});  // redundant: the metadata has the same values
      if (c.experts > 0 && file_.find_tensor(p + "ffn_gate_inp.weight")) {
        add({"ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"});
        if (kind.sigmoid_router) add({"exp_probs_b.bias"});
        if (kind.expert_biases)
          add({"ffn_gate_inp.bias", "ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias"});
        if (kind.dense_and_experts)
          add({"ffn_gate_up_exps.weight", "ffn_gate_inp.scale", "ffn_down_exps.scale", "pre_ffw_norm_2.weight",
               "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"});
      }
      if (c.experts == 0 || kind.dense_and_experts || !file_.find_tensor(p + "ffn_gate_inp.weight")) {
        add({"ffn_up.weight", "ffn_down.weight", "ffn_up.bias", "ffn_down.bias"});
      }
      if (file_.find_tensor(p + "ffn_gate.weight")) add({"ffn_gate.weight", "ffn_gate.bias"});
      if (c.shared_hidden > 0) add({"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"});
      if (c.shared_hidden > 0 && c.shared_gate) add({"ffn_gate_inp_shexp.weight"});
      if (kind.input_norms) add({"attn_norm.weight"});
      if (kind.input_norms && !kind.parallel) add({kind.feed_forward_norm});
      if (kind.sinks) add({"attn_sinks.weight"});
      if (layer == LayerKind::attention && (kind.head_norms || kind.projection_norms))
        add({"attn_q_norm.weight", "attn_k_norm.weight"});
      if (kind.post_norms) add({"post_attention_norm.weight", "post_ffw_norm.weight"});
      if (kind.layer_scales) add({"layer_output_scale.weight"});
      if (c.layer_input > 0) add({"inp_gate.weight", "proj.weight", "post_norm.weight"});
      for (const std::string_view name : names) tensors.insert(p + std::string(name));
    }
    const bool predicts = kind.recurrent == LayerKind::delta_rule && file_.has(prefix_ + "nextn_predict_layers");
    const std::int64_t blocks = c.layers + (predicts ? file_.get<std::int64_t>(prefix_ + "nextn_predict_layers") : 0);
    const auto is_of_predictor = [&](const std::string& name) {
      for (std::int64_t block = c.layers; block < blocks; ++block)
        if (name.starts_with(fmt::format("blk.{}.", block))) return true;
      return false;
    };
    for (const GgufTensor& t : file_.tensors()) {
      if (tensors.count(t.name) || is_of_predictor(t.name)) continue;
      std::string why = "this tensor of architecture " + c.architecture + " is not supported";
      if (!unknown_)
        fail<FormatError>({.operation = "load model",
                           .with = {{"file", file_.name(t)}, {"tensor", t.name}},
                           .wrong = std::move(why),
                           .remedy = "Without it, the model would compute wrong results"});
      unknown_->push_back({true, t.name, std::move(why)});
    }
  }
  std::vector<UnknownPart>* const unknown_;  ///< if null, unknown parts throw
};

}  // namespace

LlamaConfig read_llama_config(const GgufFile& file) { return ConfigReader(file, nullptr).read(); }
LlamaConfig read_llama_config(const GgufFile& file, std::vector<UnknownPart>& unknown) {
  return ConfigReader(file, &unknown).read();
}

}  // namespace tessera
