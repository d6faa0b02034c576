// SPDX-License-Identifier: Apache-2.0
// The network of `tessera train lm`: its sizes, evaluation, and conversion to a GGUF file.
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
/// Returns the sizes as a JSON object. The keys are the names of the options.
nlohmann::ordered_json to_json(const LmShape& shape);
/// Parses the output of to_json. Throws FormatError if the text is invalid. `from` is the name of the source.
LmShape lm_shape_of(const std::string& json, const std::string& from);
/// Returns the shape of the network for a vocabulary of `tokens` tokens. Throws ArgumentError if the sizes are
/// inconsistent; the message contains the options.
LlamaShape network_shape(const LmShape& shape, std::int64_t tokens);

using LmLearner = ModelLearner<LlamaNetwork>;
/// Sets the AdamW options to Llama's: beta2 0.95, weight decay 0.1 except for norms, gradients clipped to a norm of 1,
/// and a final learning rate of 2 %.
LearnerOptions lm_learner_options(LearnerOptions options);

/// Converts windows to a batch: the input tokens (windows, length), and the next tokens as one flat array.
Batch lm_batch(const std::vector<std::int32_t>& windows, std::int64_t length);
/// Returns the mean loss and the accuracy. Evaluates `at_once` windows at a time.
HeldOut measure_lm(const Learner& learner, const MeasuredWindows& windows, std::int64_t length, std::int64_t at_once);

/// Writes the network to a GGUF file. An existing file is replaced.
void write_lm(const LlamaNetwork& network, std::int64_t context, const TrainedTokenizer& tokenizer,
              const std::filesystem::path& path, const LlamaFileOptions& options);

/// Returns the option that reduces the memory of a step the most, with its current value, such as "--batch (now 16)".
/// Compares estimates of the size of the activations and of the weights with the optimiser state.
std::string suggest_option_to_lower(const LlamaShape& shape, std::int64_t batch, std::int64_t context);

}  // namespace tessera::app
