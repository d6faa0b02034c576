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

namespace tessera {

namespace {

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::vector<UnknownPart>* unknown) : file_(file), unknown_(unknown) {}

  LlamaConfig read() {
    LlamaConfig c;
    if (file_.get_or<std::string>("general.type", "model") == "adapter")
      bad("general.type", "this is a LoRA adapter, not a model", "Merge it into its model first");
    c.architecture = file_.get<std::string>("general.architecture");
    const Architecture* kind = find_architecture(c.architecture);
    if (!kind) {
      std::string what = quote_text(c.architecture) + " is not a supported architecture";
      if (const auto why = missing_in_architecture(c.architecture); !why.empty()) what += fmt::format(": {}", why);
      bad("general.architecture", what, "Supported architectures: " + architecture_names());
    }
    c.rotary.pairs = kind->pairs, c.gate = kind->gate;
    c.head_norms = kind->head_norms, c.projection_norms = kind->projection_norms;
    c.input_norms = kind->input_norms, c.post_norms = kind->post_norms;
    c.layer_norms = kind->layer_norms, c.parallel = kind->parallel;
    c.sinks = kind->sinks, c.expert_biases = kind->expert_biases;
    prefix_ = c.architecture + ".";
    c.name = file_.get_or<std::string>("general.name", file_.name());
    c.context_length = count("context_length", 1 << 30);
    c.width = count("embedding_length", 1 << 20);
    c.layers = count("block_count", 4096);
    c.hidden = count("feed_forward_length", 1 << 22);
    c.heads = count("attention.head_count", 4096);
    c.key_heads = file_.has(prefix_ + "attention.head_count_kv") ? count("attention.head_count_kv", 4096) : c.heads;
    if (c.heads % c.key_heads != 0)
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
    if (kind->scales) read_scales(c);
    if (kind->scaled_logits) c.logit_scale = number("logit_scale", 1, 1e-6f, 1e6f);
    if (kind->experts) read_experts(c, *kind);
    const GgufTensor& embedding = file_.tensor("token_embd.weight");
    c.vocabulary = embedding.dims.size() == 2 ? static_cast<std::int64_t>(embedding.dims[1]) : 0;
    c.tied = file_.find_tensor("output.weight") == nullptr;
    find_unknown(c, *kind);
    return c;
  }

 private:
  bool is_array(const std::string& key) const {
    const GgufValue* v = file_.find(key);
    return v && std::holds_alternative<GgufArray>(*v);
  }
  [[noreturn]] void bad(const std::string& key, const std::string& what, const std::string& remedy) const {
    fail<FormatError>(
        {.operation = "load model", .with = {{"file", file_.name()}, {"key", key}}, .wrong = what, .remedy = remedy});
  }
  std::int64_t count(const std::string& key, std::int64_t most) const {
    std::int64_t v = 0;
    // Some files contain an array with one number per layer.
    if (is_array(prefix_ + key)) {
      const auto each = file_.get_array<std::int64_t>(prefix_ + key);
      if (each.empty() || std::ranges::any_of(each, [&](std::int64_t n) { return n != each[0]; }))
        bad(prefix_ + key, "different values for different layers are not supported", "");
      v = each[0];
    } else {
      v = file_.get<std::int64_t>(prefix_ + key);
    }
    if (v < 1 || v > most) bad(prefix_ + key, std::to_string(v) + " is not between 1 and " + std::to_string(most), "");
    return v;
  }
  float number(const std::string& key, float otherwise, float least, float most) const {
    const float v = file_.get_or<float>(prefix_ + key, otherwise);
    if (!(v >= least && v <= most)) bad(prefix_ + key, fmt::format("{} is not between {} and {}", v, least, most), "");
    return v;
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
    c.attention_scale = 1.0f / std::sqrt(static_cast<float>(scaled_by));
    if (kind.sections) read_sections(c);
    if (kind.temperature) c.temperature_scale = number("attention.temperature_scale", 0, 0, 1e3f);
    if (kind.caps) {
      c.attention_cap = number("attn_logit_softcapping", c.architecture == "gemma2" ? 50.0f : 0.0f, 0, 1e6f);
      c.output_cap = number("final_logit_softcapping", c.architecture == "gemma2" ? 30.0f : 0.0f, 0, 1e6f);
    }
    c.layer_kinds.resize(static_cast<std::size_t>(c.layers));
    for (std::int64_t i = 0; i < c.layers && kind.fixed_period > 0; ++i)
      c.layer_kinds[static_cast<std::size_t>(i)].rotates = (i + 1) % kind.fixed_period != 0;
    if (kind.window_period == 0) {  // llama.cpp ignores the window for these architectures, too
      if (const std::string key = prefix_ + "attention.sliding_window"; !is_array(key))
        c.ignored_window = file_.get_or<std::int64_t>(key, 0);
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
                                                    "rope.scaling.original_context_length"};
    std::set<std::string_view> of_kind;
    if (c.rotary.magnitude != 1 || !c.frequency_factors.empty())
      of_kind = {"rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_attn_factor",
                 "rope.scaling.yarn_log_multiplier"};
    if (kind.temperature) of_kind.insert("attention.temperature_scale");
    if (c.experts > 0) of_kind.insert({"expert_count", "expert_used_count", "expert_feed_forward_length"});
    if (kind.shared_expert) of_kind.insert("expert_shared_feed_forward_length");
    if (kind.scaled_logits) of_kind.insert("logit_scale");
    if (kind.scales) of_kind.insert({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"});
    if (kind.sections) of_kind.insert({"rope.dimension_sections", "n_deepstack_layers"});
    if (kind.caps) of_kind.insert({"attn_logit_softcapping", "final_logit_softcapping"});
    if (kind.window_period > 0) of_kind.insert({"attention.sliding_window", "attention.sliding_window_pattern"});
    if (kind.unscaled_windows) of_kind.insert("rope.freq_base_swa");
    static const std::set<std::string_view> harmless = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned",
                                                        "attention.layer_norm_epsilon", "attention.sliding_window"};
    static const std::set<std::string_view> harmless_as_zero = {"expert_count",
                                                                "expert_used_count",
                                                                "expert_shared_count",
                                                                "use_parallel_residual",
                                                                "attention.max_alibi_bias",
                                                                "attention.clamp_kqv",
                                                                "logit_scale",
                                                                "pooling_type"};
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
    std::set<std::string, std::less<>> tensors = {"token_embd.weight",        "output.weight",
                                                  "output_norm.weight",       "rope_freqs.weight",
                                                  "rope_factors_long.weight", "rope_factors_short.weight"};
    for (std::int64_t i = 0; i < c.layers; ++i) {
      const std::string p = "blk." + std::to_string(i) + ".";
      std::vector<std::string_view> names = {"attn_output.weight", "attn_output.bias",
                                             "attn_rot_embd.weight"};  // redundant: the metadata has the same values
      const auto add = [&](std::initializer_list<std::string_view> more) { names.insert(names.end(), more); };
      if (file_.find_tensor(p + "attn_qkv.weight"))
        add({"attn_qkv.weight", "attn_qkv.bias"});
      else
        add({"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_q.bias", "attn_k.bias", "attn_v.bias"});
      if (c.experts > 0 && file_.find_tensor(p + "ffn_gate_inp.weight")) {
        add({"ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"});
        if (kind.expert_biases)
          add({"ffn_gate_inp.bias", "ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias"});
      } else {
        add({"ffn_up.weight", "ffn_down.weight", "ffn_up.bias", "ffn_down.bias"});
      }
      if (file_.find_tensor(p + "ffn_gate.weight")) add({"ffn_gate.weight", "ffn_gate.bias"});
      if (c.shared_hidden > 0) add({"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"});
      if (c.shared_hidden > 0 && c.shared_gate) add({"ffn_gate_inp_shexp.weight"});
      if (kind.input_norms) add({"attn_norm.weight"});
      if (kind.input_norms && !kind.parallel) add({kind.feed_forward_norm});
      if (kind.sinks) add({"attn_sinks.weight"});
      if (kind.head_norms || kind.projection_norms) add({"attn_q_norm.weight", "attn_k_norm.weight"});
      if (kind.post_norms) add({"post_attention_norm.weight", "post_ffw_norm.weight"});
      for (const std::string_view name : names) tensors.insert(p + std::string(name));
    }
    for (const GgufTensor& t : file_.tensors()) {
      if (tensors.count(t.name)) continue;
      std::string why = "this tensor of architecture " + c.architecture + " is not supported";
      if (!unknown_)
        fail<FormatError>({.operation = "load model",
                           .with = {{"file", file_.name(t)}, {"tensor", t.name}},
                           .wrong = std::move(why),
                           .remedy = "Without it, the model would compute wrong results"});
      unknown_->push_back({true, t.name, std::move(why)});
    }
  }
  const GgufFile& file_;
  std::vector<UnknownPart>* const unknown_;  ///< if null, unknown parts throw
  std::string prefix_;
};

}  // namespace

LlamaConfig read_llama_config(const GgufFile& file) { return ConfigReader(file, nullptr).read(); }
LlamaConfig read_llama_config(const GgufFile& file, std::vector<UnknownPart>& unknown) {
  return ConfigReader(file, &unknown).read();
}

}  // namespace tessera
