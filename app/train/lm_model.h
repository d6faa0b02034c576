// SPDX-License-Identifier: Apache-2.0
// The network of `tessera train lm`: sizes as options and in files, evaluation, and its GGUF file.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/llm/llama_writer.h"
#include "tessera/nn/llama_network.h"
#include "train/lm_text.h"
#include "train/run.h"

namespace tessera::app {

/// Sizes of the network. `vocabulary` is the requested size; a short text may have fewer tokens.
struct LmShape {
  std::int64_t vocabulary = 2048, layers = 4, width = 192, heads = 6, key_heads = 2, hidden = 512, context = 256;
  double dropout = 0;
};
/// Members under the names of the options, in their order.
nlohmann::ordered_json to_json(const LmShape& shape);
/// Parses the output of to_json. Throws FormatError for other text; `from` is the source's name.
LmShape lm_shape_of(const std::string& json, const std::string& from);
/// The network's shape for this vocabulary. Throws ArgumentError, with the options, if the sizes do not fit together.
LlamaShape network_shape(const LmShape& shape, std::int64_t tokens);

using LmLearner = ModelLearner<LlamaNetwork>;
/// AdamW with the settings of Llama: beta2 0.95, weight decay 0.1 except for norms, gradients clipped to a norm of 1,
/// final rate one fiftieth.
LearnerOptions lm_learner_options(LearnerOptions options);

/// A batch of windows: the tokens, and the next tokens as one row.
Batch lm_batch(const std::vector<std::int32_t>& windows, std::int64_t length);
/// Mean loss and accuracy, evaluating `at_once` windows at a time.
HeldOut measure_lm(const Learner& learner, const MeasuredWindows& windows, std::int64_t length, std::int64_t at_once);

/// Writes a Llama GGUF file; an existing file is replaced.
void write_lm(const LlamaNetwork& network, std::int64_t context, const TrainedTokenizer& tokenizer,
              const std::filesystem::path& path, const LlamaFileOptions& options);

/// The option that reduces a step's memory the most, with a better value: "--batch (now 16)". Estimated from
/// activations per window, and from weights and optimiser state.
std::string suggest_option_to_lower(const LlamaShape& shape, std::int64_t batch, std::int64_t context);

}  // namespace tessera::app
