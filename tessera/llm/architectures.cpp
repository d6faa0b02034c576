// SPDX-License-Identifier: Apache-2.0
// Facts from the models' papers and cards, and from how llama.cpp (https://github.com/ggml-org/llama.cpp, src/models)
// reads their files: what a file does not say.
#include "tessera/llm/architectures.h"

#include <algorithm>
#include <array>

namespace tessera {

namespace {

// Gemma 2 and 3 of 27 billion parameters, which alone have 46 and 62 layers, scale scores by width / heads.
constexpr std::array architectures = {
    Architecture{
        .name = "llama", .models = "Llama 1 to 3.x, Mistral, SmolLM, TinyLlama, Yi", .pairs = RotaryPairs::adjacent},
    Architecture{.name = "qwen2", .models = "Qwen 2 and 2.5"},
    Architecture{.name = "qwen3", .models = "Qwen 3 (dense)", .head_norms = true},
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
                 .layers_of_wide_scale = 62},
};

}  // namespace

std::span<const Architecture> known_architectures() { return architectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* it = std::ranges::find(architectures, name, &Architecture::name);
  return it == architectures.end() ? nullptr : it;
}

std::string architecture_names() {
  std::string out;
  for (const Architecture& a : architectures) {
    if (!out.empty()) out += &a == &architectures.back() ? " and " : ", ";
    out += a.name;
  }
  return out;
}

}  // namespace tessera
