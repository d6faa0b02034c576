// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/family.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/error.h"
#include "tessera/llm/gguf_types.h"

namespace tessera::hub {
namespace {

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
    Family{.name = "Qwen2ForCausalLM", .architecture = "qwen2", .context = 32768, .key_heads = 32},
    Family{.name = "Qwen3ForCausalLM", .architecture = "qwen3", .context = 32768, .key_heads = 32, .head_size = 128},
    Family{.name = "Qwen3MoeForCausalLM", .architecture = "qwen3moe", .context = 32768, .key_heads = 4},
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
           .norms_plus_one = true},
    Family{.name = "Gemma3ForCausalLM",
           .architecture = "gemma3",
           .context = 131072,
           .key_heads = 4,
           .head_size = 256,
           .rope_base = 1e6,
           .tied = true,
           .gelu = true,
           .norms_plus_one = true},
};

std::string names() {
  std::string out;
  for (const Family& f : families) out += (out.empty() ? "" : ", ") + std::string(f.name);
  return out;
}

}  // namespace

const Family& family_of(const JsonObject& config) {
  const nlohmann::json& classes = config.array("architectures");
  if (classes.size() != 1 || !classes[0].is_string())
    config.bad("architectures", "expected one model class", "Supported classes: " + names());
  const auto name = classes[0].get<std::string>();
  for (const Family& f : families)
    if (f.name == name) return f;
  config.bad("architectures", quote_text(name) + " is not supported", "Supported classes: " + names());
}

}  // namespace tessera::hub
