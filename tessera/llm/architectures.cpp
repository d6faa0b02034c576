// SPDX-License-Identifier: Apache-2.0
// Properties of architectures that model files do not contain. Sources: the models' papers, their model cards, and the
// loaders of llama.cpp (https://github.com/ggml-org/llama.cpp, src/models).
#include "tessera/llm/architectures.h"

#include <algorithm>
#include <array>

namespace tessera {

namespace {

// Only the 27-billion-parameter models of Gemma 2 and 3 (46 and 62 layers) divide scores by sqrt(width / heads).
constexpr std::array architectures = {
    Architecture{.name = "llama",
                 .models = "Llama 1 to 3.x, Mistral, Mixtral, SmolLM, TinyLlama, Yi",
                 .pairs = RotaryPairs::adjacent,
                 .experts = true},
    Architecture{.name = "mistral3",
                 .models = "Ministral 3, Mistral Small 3.1 and later",
                 .pairs = RotaryPairs::adjacent,
                 .temperature = true},
    Architecture{.name = "qwen2", .models = "Qwen 2 and 2.5"},
    Architecture{.name = "qwen2moe",
                 .models = "Qwen 1.5 and 2 (mixture of experts)",
                 .experts = true,
                 .unnormalised = true,
                 .shared_expert = true,
                 .shared_gate = true},
    Architecture{.name = "qwen2vl", .models = "Qwen 2 and 2.5 VL (text)", .sections = true},
    Architecture{.name = "qwen3", .models = "Qwen 3 (dense)", .head_norms = true},
    Architecture{.name = "qwen3moe", .models = "Qwen 3 (mixture of experts)", .head_norms = true, .experts = true},
    Architecture{.name = "qwen3vl", .models = "Qwen 3 VL (dense, text)", .head_norms = true, .sections = true},
    Architecture{.name = "smollm3", .models = "SmolLM 3", .pairs = RotaryPairs::adjacent, .fixed_period = 4},
    Architecture{.name = "phi3", .models = "Phi 3, 3.5 and 4", .window_period = 1},
    Architecture{.name = "gemma", .models = "Gemma 1", .gate = Gate::gelu, .scaled_embedding = true},
    Architecture{.name = "gemma2",
                 .models = "Gemma 2",
                 .gate = Gate::gelu,
                 .post_norms = true,
                 .scaled_embedding = true,
                 .caps = true,
                 .window_period = 2,
                 .window = 4096,
                 .layers_of_wide_scale = 46},
    Architecture{.name = "gemma3",
                 .models = "Gemma 3 (text)",
                 .gate = Gate::gelu,
                 .head_norms = true,
                 .post_norms = true,
                 .scaled_embedding = true,
                 .caps = true,
                 .window_period = 6,
                 .local_base = 10000,
                 .unscaled_windows = true,
                 .layers_of_wide_scale = 62},
    Architecture{.name = "gemma4",
                 .models = "Gemma 4 (text)",
                 .gate = Gate::gelu,
                 .head_norms = true,
                 .post_norms = true,
                 .scaled_embedding = true,
                 .caps = true,
                 .window_period = 6,
                 .local_base = 10000,
                 .unscaled_windows = true,
                 .experts = true,
                 .value_norms = true,
                 .unscaled_scores = true,
                 .varied_layers = true,
                 .layer_inputs = true,
                 .layer_scales = true,
                 .dense_and_experts = true},
    Architecture{
        .name = "granite", .models = "Granite 3 and 4 (dense)", .pairs = RotaryPairs::adjacent, .scales = true},
    Architecture{.name = "granitemoe",
                 .models = "Granite 3 (mixture of experts)",
                 .pairs = RotaryPairs::adjacent,
                 .scales = true,
                 .experts = true,
                 .shared_expert = true},
    Architecture{.name = "olmo2",
                 .models = "OLMo 2 and 3",
                 .projection_norms = true,
                 .input_norms = false,
                 .post_norms = true,
                 .window_period = 4,
                 .unscaled_windows = true},
    Architecture{.name = "olmoe", .models = "OLMoE", .projection_norms = true, .experts = true, .unnormalised = true},
    Architecture{.name = "glm4", .models = "GLM 4 (dense)", .pairs = RotaryPairs::adjacent, .post_norms = true},
    Architecture{.name = "exaone4",
                 .models = "EXAONE 4",
                 .head_norms = true,
                 .input_norms = false,
                 .post_norms = true,
                 .window_period = 4,
                 .rotates_windows = true},
    Architecture{.name = "ernie4_5", .models = "ERNIE 4.5 (dense)", .pairs = RotaryPairs::adjacent},
    Architecture{.name = "command-r",
                 .models = "Command R, Aya",
                 .pairs = RotaryPairs::adjacent,
                 .layer_norms = true,
                 .parallel = true,
                 .scaled_logits = true},
    Architecture{.name = "cohere2",
                 .models = "Command R7B and A",
                 .pairs = RotaryPairs::adjacent,
                 .layer_norms = true,
                 .parallel = true,
                 .scaled_logits = true,
                 .window_period = 4,
                 .rotates_windows = true},
    Architecture{.name = "chatglm", .models = "ChatGLM 3, GLM 4 9B", .pairs = RotaryPairs::adjacent},
    Architecture{.name = "gpt-oss",
                 .models = "gpt-oss",
                 .gate = Gate::clamped_silu,
                 .window_period = 2,
                 .window = 128,
                 .experts = true,
                 .sinks = true,
                 .expert_biases = true,
                 .exact_yarn = true,
                 .feed_forward_norm = "post_attention_norm.weight"},
    Architecture{.name = "lfm2",
                 .models = "LFM2 and 2.5 (dense)",
                 .head_norms = true,
                 .recurrent = LayerKind::convolution,
                 .output_norm = "token_embd_norm.weight"},
    Architecture{.name = "qwen35",
                 .models = "Qwen 3.5 (dense, text)",
                 .head_norms = true,
                 .sections = true,
                 .recurrent = LayerKind::delta_rule,
                 .gated_attention = true,
                 .feed_forward_norm = "post_attention_norm.weight"},
    Architecture{.name = "lfm2moe",
                 .models = "LFM2 (mixture of experts)",
                 .head_norms = true,
                 .experts = true,
                 .sigmoid_router = true,
                 .recurrent = LayerKind::convolution,
                 .output_norm = "token_embd_norm.weight"},
    Architecture{.name = "qwen35moe",
                 .models = "Qwen 3.5 (mixture of experts, text)",
                 .head_norms = true,
                 .sections = true,
                 .experts = true,
                 .shared_expert = true,
                 .shared_gate = true,
                 .recurrent = LayerKind::delta_rule,
                 .gated_attention = true,
                 .feed_forward_norm = "post_attention_norm.weight"},
    Architecture{.name = "qwen3next",
                 .models = "Qwen 3 Next",
                 .head_norms = true,
                 .experts = true,
                 .shared_expert = true,
                 .shared_gate = true,
                 .recurrent = LayerKind::delta_rule,
                 .grouped_delta_heads = true,
                 .gated_attention = true,
                 .feed_forward_norm = "post_attention_norm.weight"},
};

constexpr std::array encoders = {
    EncoderArchitecture{.name = "bert", .models = "BERT, BGE, MiniLM, E5, XLM-R"},
    EncoderArchitecture{.name = "nomic-bert", .models = "Nomic Embed 1 and 1.5", .rotates = true, .is_gated = true},
};

// Unsupported architectures, with names from llama.cpp's src/llama-arch.cpp.
struct Absent {
  std::string_view why, names;  ///< `names` has a space before and after each name
};
constexpr std::array absent = {
    Absent{"this kind of mixture of experts is not supported",
           " llama4 mistral4 qwen3vlmoe phimoe deepseek deepseek2 deepseek32 deepseek4 "
           "dbrx grok arctic glm4moe glm-dsa ernie4_5-moe hunyuan-moe bailingmoe bailingmoe2 dots1 "
           "exaone-moe afmoe grovemoe smallthinker minimax-m2 minimax-m3 cohere2moe mimo2 step35 kimi-k3 "},
    Absent{"this kind of recurrent layers (state-space or linear attention) is not supported",
           " mamba mamba2 jamba falcon-h1 nemotron_h nemotron_h_moe granitehybrid plamo2 rwkv6 rwkv6qwen2 rwkv7 arwkv7 "
           "kimi-linear "},
    Absent{"it is an embedding model and does not generate text",
           " bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert gemma-embedding "
           "llama-embed t5encoder "},
    Absent{"encoder-decoder models are not supported", " t5 "},
    Absent{"diffusion language models are not supported", " dream llada llada-moe rnd1 "},
    Absent{"it is the vision or audio part of a model, not a language model", " clip wavtokenizer-dec "},
    Absent{"per-layer embeddings and shared KV caches are not supported", " gemma3n "},
    Absent{"norms with biases and parallel layers are not supported", " phi2 gptneox falcon stablelm "},
};

}  // namespace

std::string_view missing_in_architecture(std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return {};
  const std::string word = " " + std::string(name) + " ";
  for (const Absent& a : absent)
    if (a.names.find(word) != std::string_view::npos) return a.why;
  return {};
}

std::span<const Architecture> known_architectures() { return architectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* it = std::ranges::find(architectures, name, &Architecture::name);
  return it == architectures.end() ? nullptr : it;
}

const EncoderArchitecture* find_encoder_architecture(std::string_view name) {
  const auto* it = std::ranges::find(encoders, name, &EncoderArchitecture::name);
  return it == encoders.end() ? nullptr : it;
}

namespace {
template <class Architectures>
std::string names_of(const Architectures& all) {
  std::string out;
  for (const auto& a : all) {
    if (!out.empty()) out += &a == &all.back() ? " and " : ", ";
    out += a.name;
  }
  return out;
}
}  // namespace

std::string architecture_names() { return names_of(architectures); }
std::string encoder_architecture_names() { return names_of(encoders); }

}  // namespace tessera
