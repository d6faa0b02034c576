// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/rope_scaling.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {

std::string_view rope_scaling_name(RopeScaling::Type type) {
  return type == RopeScaling::Type::none ? "none" : type == RopeScaling::Type::linear ? "linear" : "yarn";
}

void set_rope_scaling(GgufFile& file, const RopeScaling& s) {
  using Type = RopeScaling::Type;
  const std::string prefix = file.get<std::string>("general.architecture") + ".",
                    context_key = prefix + "context_length",
                    original_key = prefix + "rope.scaling.original_context_length";
  const auto wrong = [&](const std::string& what, const std::string& remedy = {}) {
    fail<ArgumentError>({.operation = "set_rope_scaling",
                         .with = {{"file", file.name()},
                                  {"type", std::string(rope_scaling_name(s.type))},
                                  {"factor", fmt::format("{}", s.factor)},
                                  {"original context", std::to_string(s.original_context)}},
                         .wrong = what,
                         .remedy = remedy});
  };
  if (!(s.factor >= 1 && s.factor <= 1e6)) wrong("the factor must be between 1 and 1e6");
  if (s.original_context < 0) wrong("the original context length must not be negative");
  if (file.find_tensor("rope_factors_long.weight") != nullptr)
    wrong("the model has its own factors for long texts (LongRoPE)", "Use the model without rotary scaling");
  if (s.type != Type::linear && file.find_tensor("rope_freqs.weight") != nullptr)
    wrong("this type cannot be combined with the rotary factors of the model", "Use linear scaling");
  if (!file.get_or<bool>(prefix + "rope.scaling.finetuned", true))
    wrong("the model does not use rotary positions", "Use the model without rotary scaling");
  // A file with linear scaling names the scaled length only.
  std::int64_t trained = file.get<std::int64_t>(context_key);
  const auto old_factor =
      file.get_or<float>(prefix + "rope.scaling.factor", file.get_or<float>(prefix + "rope.scale_linear", 1.0f));
  if (file.get_or<std::string>(prefix + "rope.scaling.type", "linear") == "linear" && old_factor > 1)
    trained = static_cast<std::int64_t>(static_cast<double>(trained) / static_cast<double>(old_factor));
  const std::int64_t original =
      s.original_context > 0 ? s.original_context : file.get_or<std::int64_t>(original_key, trained);
  if (original < 1) wrong("the file's context length is less than one token");
  const double context =
      s.type == Type::none ? static_cast<double>(original) : std::floor(static_cast<double>(original) * s.factor);
  if (!(context >= 1 && context <= 0x1p30))
    wrong(fmt::format("the context of {:.0f} tokens is not between 1 and 2^30", context));
  // The magnitude of attention belongs to the old factor. The other parameters of yarn remain.
  std::vector<std::string> old;
  for (const GgufEntry& e : file.metadata()) {
    const bool stays = s.type == Type::yarn && (e.key == prefix + "rope.scaling.yarn_beta_fast" ||
                                                e.key == prefix + "rope.scaling.yarn_beta_slow" ||
                                                e.key == prefix + "rope.scaling.yarn_log_multiplier");
    if (!stays && (e.key.starts_with(prefix + "rope.scaling.") || e.key == prefix + "rope.scale_linear"))
      old.push_back(e.key);
  }
  for (const std::string& key : old) file.remove_metadata(key);
  file.set_metadata(prefix + "rope.scaling.type", std::string(rope_scaling_name(s.type)));
  file.set_metadata(context_key, static_cast<std::uint32_t>(context));
  if (s.type == Type::none) return;
  file.set_metadata(prefix + "rope.scaling.factor", static_cast<float>(s.factor));
  file.set_metadata(original_key, static_cast<std::uint32_t>(original));
}

}  // namespace tessera
