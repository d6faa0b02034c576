// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/family.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/llm/architectures.h"
#include "tessera/llm/gguf_types.h"

namespace tessera::hub {
namespace {

/// The same family under the name of another class.
constexpr Family renamed(Family family, std::string_view name) {
  family.name = name;
  return family;
}
/// The class of a model of images whose text model is this family.
constexpr Family of_images(Family family, std::string_view name) {
  family.sees = true;
  return renamed(family, name);
}

// Families with several classes.
constexpr Family gemma3 = {.name = "Gemma3ForCausalLM",
                           .architecture = "gemma3",
                           .context = 131072,
                           .heads = 8,
                           .key_heads = 4,
                           .head_size = 256,
                           .rope_base = 1e6,
                           .tied = true,
                           .gelu = true,
                           .norms_plus_one = true,
                           .window = 4096,
                           .after_attention = "post_attention_norm"};
constexpr Family gemma4 = {.name = "Gemma4ForCausalLM",
                           .architecture = "gemma4",
                           .context = 131072,
                           .heads = 8,
                           .key_heads = 4,
                           .head_size = 256,
                           .rope_base = 1e6,
                           .tied = true,
                           .gelu = true,
                           .rotary_part = 0.25,
                           .window = 512,
                           .expert_hidden = true,
                           .after_attention = "post_attention_norm"};
constexpr Family qwen35 = {.name = "Qwen3_5ForCausalLM",
                           .architecture = "qwen35",
                           .context = 32768,
                           .key_heads = 4,
                           .head_size = 256,
                           .norms_plus_one = true,
                           .rotary_part = 0.25,
                           .after_attention = "post_attention_norm"};
constexpr Family qwen35moe = {.name = "Qwen3_5MoeForCausalLM",
                              .architecture = "qwen35moe",
                              .context = 32768,
                              .key_heads = 2,
                              .head_size = 256,
                              .norms_plus_one = true,
                              .rotary_part = 0.25,
                              .expert_hidden = true,
                              .shared_hidden = 512,
                              .after_attention = "post_attention_norm"};
constexpr Family qwen2vl = {.name = "Qwen2VLForConditionalGeneration",
                            .architecture = "qwen2vl",
                            .context = 32768,
                            .key_heads = 8,
                            .norm_epsilon = 1e-5,
                            .rope_base = 1e6,
                            .sees = true};
constexpr Family bert = {.name = "BertModel",
                         .architecture = "bert",
                         .context = 512,
                         .norm_epsilon = 1e-12,
                         .adjacent = true,
                         .norm_key = "layer_norm_eps"};
constexpr Family xlm_roberta = {.name = "XLMRobertaModel",
                                .architecture = "bert",
                                .context = 514,
                                .norm_epsilon = 1e-5,
                                .adjacent = true,
                                .skips_positions = true,
                                .norm_key = "layer_norm_eps"};

constexpr std::array families = {
    Family{.name = "LlamaForCausalLM", .architecture = "llama"},
    Family{.name = "MistralForCausalLM", .architecture = "llama", .context = 131072, .key_heads = 8},
    Family{.name = "MixtralForCausalLM",
           .architecture = "llama",
           .context = 131072,
           .key_heads = 8,
           .norm_epsilon = 1e-5,
           .rope_base = 1e6},
    Family{.name = "Ministral3ForCausalLM",
           .architecture = "mistral3",
           .context = 262144,
           .key_heads = 8,
           .head_size = 128,
           .norm_epsilon = 1e-5},
    Family{.name = "Mistral3ForConditionalGeneration",
           .architecture = "llama",
           .text_model = "mistral",
           .context = 131072,
           .key_heads = 8,
           .tied = true,
           .sees = true},
    Family{.name = "Mistral3ForConditionalGeneration",
           .architecture = "mistral3",
           .text_model = "ministral3",
           .context = 262144,
           .key_heads = 8,
           .head_size = 128,
           .norm_epsilon = 1e-5,
           .tied = true,
           .sees = true},
    Family{.name = "Qwen2ForCausalLM", .architecture = "qwen2", .context = 32768, .key_heads = 32},
    Family{.name = "Qwen3ForCausalLM", .architecture = "qwen3", .context = 32768, .key_heads = 32, .head_size = 128},
    Family{.name = "Qwen2MoeForCausalLM",
           .architecture = "qwen2moe",
           .context = 32768,
           .key_heads = 16,
           .normalised = false,
           .expert_hidden = true,
           .shared_hidden = 5632},
    Family{.name = "Qwen3MoeForCausalLM",
           .architecture = "qwen3moe",
           .context = 32768,
           .key_heads = 4,
           .normalised = false,
           .expert_hidden = true},
    qwen2vl,
    renamed(qwen2vl, "Qwen2_5_VLForConditionalGeneration"),
    Family{.name = "Qwen3VLForConditionalGeneration",
           .architecture = "qwen3vl",
           .context = 128000,
           .key_heads = 32,
           .head_size = 128,
           .rope_base = 5e5,
           .sees = true},
    Family{.name = "SmolLM3ForCausalLM",
           .architecture = "smollm3",
           .context = 32768,
           .key_heads = 4,
           .rope_base = 2e6,
           .tied = true},
    Family{.name = "Phi3ForCausalLM", .architecture = "phi3", .context = 4096, .norm_epsilon = 1e-5},
    Family{.name = "GemmaForCausalLM",
           .architecture = "gemma",
           .context = 8192,
           .key_heads = 16,
           .head_size = 256,
           .tied = true,
           .gelu = true,
           .norms_plus_one = true},
    Family{.name = "Gemma2ForCausalLM",
           .architecture = "gemma2",
           .context = 8192,
           .key_heads = 4,
           .head_size = 256,
           .tied = true,
           .gelu = true,
           .norms_plus_one = true,
           .window = 4096,
           .after_attention = "post_attention_norm"},
    gemma3,
    of_images(gemma3, "Gemma3ForConditionalGeneration"),
    gemma4,
    of_images(gemma4, "Gemma4ForConditionalGeneration"),
    Family{.name = "GraniteForCausalLM", .architecture = "granite"},
    Family{.name = "GraniteMoeForCausalLM", .architecture = "granitemoe"},
    Family{.name = "GraniteMoeSharedForCausalLM", .architecture = "granitemoe"},
    Family{.name = "GraniteMoeHybridForCausalLM", .architecture = "granite", .shared_hidden = 1024},
    Family{.name = "GraniteMoeHybridForCausalLM", .architecture = "granitemoe", .shared_hidden = 1024},
    Family{.name = "Olmo2ForCausalLM",
           .architecture = "olmo2",
           .norm_epsilon = 1e-5,
           .after_attention = "post_attention_norm"},
    Family{.name = "Olmo3ForCausalLM",
           .architecture = "olmo2",
           .norm_epsilon = 1e-5,
           .rope_base = 5e5,
           .window = 4096,
           .after_attention = "post_attention_norm"},
    Family{.name = "OlmoeForCausalLM",
           .architecture = "olmoe",
           .context = 4096,
           .norm_epsilon = 1e-5,
           .normalised = false},
    Family{.name = "GlmForCausalLM",
           .architecture = "chatglm",
           .context = 131072,
           .key_heads = 2,
           .head_size = 128,
           .norm_epsilon = 1.5625e-7,
           .rotary_part = 0.5,
           .adjacent = true},
    Family{.name = "Glm4ForCausalLM",
           .architecture = "glm4",
           .context = 131072,
           .key_heads = 2,
           .head_size = 128,
           .norm_epsilon = 1.5625e-7,
           .rotary_part = 0.5,
           .adjacent = true},
    Family{.name = "Exaone4ForCausalLM",
           .architecture = "exaone4",
           .key_heads = 32,
           .norm_epsilon = 1e-5,
           .window = 4096,
           .after_attention = "post_attention_norm"},
    Family{.name = "Ernie4_5ForCausalLM",
           .architecture = "ernie4_5",
           .context = 131072,
           .key_heads = 2,
           .head_size = 128,
           .norm_epsilon = 1e-5,
           .rope_base = 5e5,
           .tied = true,
           .adjacent = true},
    Family{.name = "CohereForCausalLM",
           .architecture = "command-r",
           .context = 8192,
           .norm_epsilon = 1e-5,
           .rope_base = 5e5,
           .tied = true,
           .adjacent = true,
           .norm_key = "layer_norm_eps"},
    Family{.name = "Cohere2ForCausalLM",
           .architecture = "cohere2",
           .context = 8192,
           .norm_epsilon = 1e-5,
           .tied = true,
           .window = 4096,
           .adjacent = true,
           .norm_key = "layer_norm_eps"},
    Family{.name = "GptOssForCausalLM",
           .architecture = "gpt-oss",
           .context = 131072,
           .key_heads = 8,
           .head_size = 64,
           .norm_epsilon = 1e-5,
           .rope_base = 1.5e5,
           .window = 128,
           .after_attention = "post_attention_norm"},
    Family{.name = "Lfm2ForCausalLM",
           .architecture = "lfm2",
           .context = 128000,
           .key_heads = 8,
           .norm_epsilon = 1e-5,
           .rope_base = 1e6,
           .tied = true,
           .norm_key = "norm_eps"},
    Family{.name = "Lfm2MoeForCausalLM",
           .architecture = "lfm2moe",
           .context = 128000,
           .key_heads = 8,
           .norm_epsilon = 1e-5,
           .rope_base = 1e6,
           .tied = true,
           .expert_hidden = true,
           .norm_key = "norm_eps"},
    qwen35,
    of_images(qwen35, "Qwen3_5ForConditionalGeneration"),
    qwen35moe,
    of_images(qwen35moe, "Qwen3_5MoeForConditionalGeneration"),
    Family{.name = "Qwen3NextForCausalLM",
           .architecture = "qwen3next",
           .context = 32768,
           .key_heads = 2,
           .head_size = 256,
           .norms_plus_one = true,
           .rotary_part = 0.25,
           .expert_hidden = true,
           .shared_hidden = 512,
           .after_attention = "post_attention_norm"},
    bert,
    renamed(bert, "BertForMaskedLM"),
    Family{.name = "NomicBertModel",
           .architecture = "nomic-bert",
           .norm_epsilon = 1e-12,
           .rope_base = 1e3,
           .adjacent = true,
           .norm_key = "layer_norm_eps"},
    xlm_roberta,
    renamed(xlm_roberta, "XLMRobertaForMaskedLM"),
};

std::string names() {
  std::string out;
  std::string_view last;
  for (const Family& f : families)
    if (f.name != std::exchange(last, f.name)) out += (out.empty() ? "" : ", ") + std::string(f.name);
  return out;
}

}  // namespace

const Family& family_of(const JsonObject& config) {
  const nlohmann::json& classes = config.array("architectures");
  if (classes.size() != 1 || !classes[0].is_string())
    config.bad("architectures", "expected one model class", "Supported classes: " + names());
  const auto name = classes[0].get<std::string>();
  const auto text = config.object("text_config");
  const std::string text_model = text ? text->text_or("model_type", "") : "";
  const Family* found = nullptr;
  bool known = false;
  for (const Family& f : families) {
    if (f.name != name) continue;
    known = true;
    if (!f.text_model.empty() && f.text_model != text_model) continue;
    const Architecture* const kind = find_architecture(f.architecture);  // null for encoders
    const bool experts = kind != nullptr && kind->experts;
    if (found == nullptr || experts == (config.integer_or("num_local_experts", 8, 0, 4096) > 0)) found = &f;
  }
  if (known && found == nullptr)
    config.bad("text_config.model_type", fmt::format("{} is not supported in {}", quote_text(text_model), name));
  if (found != nullptr) return *found;
  config.bad("architectures", quote_text(name) + " is not supported", "Supported classes: " + names());
}

}  // namespace tessera::hub
