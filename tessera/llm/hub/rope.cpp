// SPDX-License-Identifier: Apache-2.0
// The kinds of scaling are defined in transformers' modeling_rope_utils.py.
#include "tessera/llm/hub/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/llm/architectures.h"

namespace tessera::hub {
namespace {

constexpr std::int64_t most_context = std::int64_t{1} << 30;
constexpr float unrotated = 1e30f;  // the factor of a pair that is not rotated

class RopeReader {
 public:
  RopeReader(const JsonObject& config, const Family& family, const ModelShape& shape, Metadata& to)
      : config_(config), family_(family), kind_(*find_architecture(family.architecture)), shape_(shape), to_(to) {}

  ComputedTensors read() {
    std::optional<JsonObject> global = config_.object("rope_parameters");
    if (family_.architecture == "mistral3" && !global && !config_.object("rope_scaling"))
      config_.bad("rope_parameters",
                  "the key is missing");            // the default of transformers is not the same in all versions
    if (global && global->has("full_attention")) {  // one entry for each kind of layer
      const auto local = global->object("sliding_attention");
      global = global->object("full_attention");
      if (local) add_local(*local);
    } else if (kind_.local_base > 0 && config_.has("rope_local_base_freq")) {
      to_.set_number(key("freq_base_swa"), config_.number("rope_local_base_freq"));
    }
    // As in transformers, this older key replaces the newer one.
    if (const auto scaling = config_.object("rope_scaling")) global = scaling;
    const JsonObject& r = global ? *global : config_;
    // `rope_type` of config.json itself would have no meaning.
    const std::string type = global ? type_of(r) : kind_.varied_layers ? "proportional" : "default";
    // The defaults of Gemma 4 apply only if all parameters are missing.
    is_default_ = !(kind_.varied_layers && global);
    base_ = is_default_ ? r.number_or("rope_theta", config_.number_or("rope_theta", family_.rope_base))
                        : r.number("rope_theta");
    if (!(base_ >= 1)) r.bad("rope_theta", fmt::format("{} is less than 1", base_));
    to_.set_number(key("freq_base"), base_);
    add_dimensions(r, type == "proportional");
    add_scaling(r, type);
    return std::move(tensors_);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.rope.{}", family_.architecture, name); }
  static std::string type_of(const JsonObject& r) { return r.text_or("rope_type", r.text_or("type", "default")); }

  void add_local(const JsonObject& local) {
    if (!kind_.unscaled_windows || type_of(local) != "default")
      local.bad("rope_type", "scaling of layers with a window is not supported");
    if (const double part = local.number_or("partial_rotary_factor", 1); part != 1)
      local.bad("partial_rotary_factor", fmt::format("{} is not supported in layers with a window", part));
    to_.set_number(key("freq_base_swa"),
                   local.number_or("rope_theta",
                                   kind_.local_base > 0 ? static_cast<double>(kind_.local_base) : family_.rope_base));
  }

  /// If `proportional`, the frequencies are those of whole heads, and only the first pairs are rotated (Gemma 4).
  void add_dimensions(const JsonObject& r, bool proportional) {
    const double part =
        !is_default_ && !proportional
            ? 1
            : r.number_or("partial_rotary_factor",
                          is_default_ ? config_.number_or("partial_rotary_factor", family_.rotary_part) : 1);
    if (!(part > 0 && part <= 1)) r.bad("partial_rotary_factor", fmt::format("{} is not between 0 and 1", part));
    dimensions_ = static_cast<std::int64_t>(static_cast<double>(shape_.head_size) * part);
    if (proportional) {
      const auto factor = static_cast<float>(r.number_or("factor", 1));
      if (!(factor >= 1)) r.bad("factor", fmt::format("{} is less than 1", factor));
      std::vector<float> factors(static_cast<std::size_t>(shape_.head_size / 2), unrotated);
      std::fill_n(factors.begin(), dimensions_ / 2, factor);
      tensors_.emplace_back("rope_freqs.weight", std::move(factors));
      dimensions_ = shape_.head_size;
    }
    if (dimensions_ != shape_.head_size && kind_.pairs == RotaryPairs::adjacent && !family_.adjacent)
      r.bad("partial_rotary_factor", fmt::format("{} models must rotate whole heads", family_.architecture));
    to_.set_count(key("dimension_count"), dimensions_);
  }

  void add_scaling(const JsonObject& r, const std::string& type) {
    if (type == "linear") {
      to_.set(key("scaling.type"), std::string("linear"));
      to_.set_number(key("scaling.factor"), r.number("factor"));
    } else if (type == "llama3") {
      add_llama3(r);
    } else if (type == "yarn") {
      add_yarn(r);
    } else if (type == "longrope" || type == "su") {
      add_longrope(r);
    } else if (type != "default" && type != "mrope" && type != "proportional") {
      r.bad(r.has("rope_type") ? "rope_type" : "type", quote_text(type) + " is not supported",
            "Supported types: default, linear, llama3, yarn, longrope and proportional");
    }
    if (kind_.temperature && r.has("llama_4_scaling_beta"))
      to_.set_number(fmt::format("{}.attention.temperature_scale", family_.architecture),
                     r.number("llama_4_scaling_beta"));
  }

  std::int64_t context() const {
    return config_.integer_or("max_position_embeddings", family_.context, 1, most_context);
  }
  /// Returns the context length before scaling. Phi 3 stores it next to the other values of the configuration.
  std::int64_t original_context(const JsonObject& r) {
    constexpr const char* name = "original_max_position_embeddings";
    const std::int64_t original =
        config_.integer_or(name, r.integer_or(name, context(), 1, most_context), 1, most_context);
    to_.set_count(key("scaling.original_context_length"), original);
    return original;
  }
  double factor_of(const JsonObject& r, std::int64_t original) const {
    return r.number_or("factor", static_cast<double>(context()) / static_cast<double>(original));
  }

  /// Llama 3.1: frequencies that turn rarely within the original context are divided by the factor.
  void add_llama3(const JsonObject& r) {
    const double factor = r.number("factor"), low = r.number("low_freq_factor"), high = r.number("high_freq_factor");
    if (!(factor > 0 && low > 0 && high > low))
      r.bad("factor", "factor and low_freq_factor must be positive, and high_freq_factor must be greater");
    const auto original =
        static_cast<double>(r.integer_or("original_max_position_embeddings", context(), 1, most_context));
    std::vector<float> factors;
    for (std::int64_t i = 0; i < dimensions_; i += 2) {
      const double length =
          2 * std::numbers::pi * std::pow(base_, static_cast<double>(i) / static_cast<double>(dimensions_));
      const double smooth = (original / length - low) / (high - low);
      const double divisor = length > original / low    ? factor
                             : length < original / high ? 1
                                                        : 1 / ((1 - smooth) / factor + smooth);
      factors.push_back(static_cast<float>(divisor));
    }
    tensors_.emplace_back("rope_freqs.weight", std::move(factors));
  }

  void add_yarn(const JsonObject& r) {
    if (const bool truncates = r.flag_or("truncate", true); truncates == kind_.exact_yarn)
      r.bad("truncate", fmt::format("{} is not supported for {} models", truncates, family_.architecture));
    const std::int64_t original = original_context(r);
    const double factor = factor_of(r, original), part = r.number_or("mscale", 0),
                 all = r.number_or("mscale_all_dim", 0);
    if (!(factor >= 1)) r.bad("factor", fmt::format("{} is less than 1", factor));
    const auto scale = [&](double m) { return 1 + 0.1 * m * std::log(factor); };
    to_.set(key("scaling.type"), std::string("yarn"));
    to_.set_number(key("scaling.factor"), factor);
    const auto turns = [&](const char* name, double otherwise) {
      const double v = r.number_or(name, 0);
      return v == 0 ? otherwise : v;
    };
    to_.set_number(key("scaling.yarn_beta_fast"), turns("beta_fast", 32));
    to_.set_number(key("scaling.yarn_beta_slow"), turns("beta_slow", 1));
    to_.set_number(key("scaling.yarn_attn_factor"),
                   r.number_or("attention_factor", part != 0 && all != 0 ? scale(part) / scale(all) : scale(1)));
  }

  void add_longrope(const JsonObject& r) {
    const std::int64_t original = original_context(r);
    const double factor = factor_of(r, original);
    const double scale =
        factor <= 1 || original < 2 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
    to_.set_number(key("scaling.attn_factor"), r.number_or("attention_factor", scale));
    add_factors(r, "short_factor", "rope_factors_short.weight");
    add_factors(r, "long_factor", "rope_factors_long.weight");
  }
  void add_factors(const JsonObject& r, const char* name, const char* tensor) {
    std::vector<float> values;
    for (const nlohmann::json& v : r.array(name)) {
      if (!v.is_number()) r.bad(name, "expected an array of numbers");
      values.push_back(v.get<float>());
      if (!(values.back() > 0 && values.back() < 1e30f)) r.bad(name, fmt::format("{} is out of range", v.dump()));
    }
    if (static_cast<std::int64_t>(values.size()) != dimensions_ / 2)
      r.bad(name, fmt::format("expected {} factors, one for each rotary pair, got {}", dimensions_ / 2, values.size()));
    tensors_.emplace_back(tensor, std::move(values));
  }

  const JsonObject& config_;
  const Family& family_;
  const Architecture& kind_;
  const ModelShape& shape_;
  Metadata& to_;
  double base_ = 0;
  bool is_default_ = true;  ///< values that are missing have the family's defaults
  std::int64_t dimensions_ = 0;
  ComputedTensors tensors_;
};

}  // namespace

ComputedTensors add_rope(const JsonObject& config, const Family& family, const ModelShape& shape, Metadata& to) {
  return RopeReader(config, family, shape, to).read();
}

}  // namespace tessera::hub
