// SPDX-License-Identifier: Apache-2.0
// The network of `tessera train lm`: its sizes as options and in files, how it is measured, and its GGUF file.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/llm/llama_writer.h"
#include "tessera/nn/llama_network.h"
#include "train/lm_text.h"
#include "train/run.h"

namespace tessera::app {

/// What the network is; `vocabulary` is what was asked, of which a short text may not give all.
struct LmShape {
  std::int64_t vocabulary = 2048, layers = 4, width = 192, heads = 6, key_heads = 2, hidden = 512, context = 256;
  double dropout = 0;
};
/// Its members under the names of the options, in their order.
nlohmann::ordered_json to_json(const LmShape& shape);
/// The same back. FormatError: it is not; `from` stands for its place.
LmShape lm_shape_of(const std::string& json, const std::string& from);
/// Of so many tokens. ArgumentError, naming the options, if the sizes do not fit together.
LlamaShape network_shape(const LmShape& shape, std::int64_t tokens);

using LmLearner = ModelLearner<LlamaNetwork>;
/// AdamW as the Llamas were trained: beta2 0.95, weight decay 0.1 but of norms, gradients clipped to a norm of 1, the
/// rate down to a fiftieth.
LearnerOptions lm_learner_options(LearnerOptions options);

/// Windows as a batch: the tokens, and those after them in one row.
Batch lm_batch(const std::vector<std::int32_t>& windows, std::int64_t length);
/// Mean loss and share of right tokens, `at_once` windows at a time.
HeldOut measure_lm(const Learner& learner, const MeasuredWindows& windows, std::int64_t length, std::int64_t at_once);

/// As a GGUF file of a Llama, in the place of an old one.
void write_lm(const LlamaNetwork& network, std::int64_t context, const TrainedTokenizer& tokenizer,
              const std::filesystem::path& path, const LlamaFileOptions& options);

/// Which option lowers the memory of a step the most, with a better value: "--batch (now 16)". By estimates of what a
/// step keeps of its windows, and of weights with what the optimiser keeps.
std::string suggest_option_to_lower(const LlamaShape& shape, std::int64_t batch, std::int64_t context);

}  // namespace tessera::app
