// SPDX-License-Identifier: Apache-2.0
// Runs a model in all the ways that need different kernels, so that they can be recorded and compiled ahead of time
// (pack/pack.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/device/device.h"
#include "tessera/llm/gguf.h"

namespace tessera {

/// How a model will be used.
struct ExerciseOptions {
  std::int64_t batch = 512;    ///< Maximum number of tokens in a step: of a prompt, or of several sequences together.
  std::int64_t parallel = 16;  ///< Maximum number of sequences that run at the same time (SchedulerOptions::parallel).
  std::vector<DType> cache_dtypes = {DType::f16};  ///< The dtypes of keys and values (GenerateOptions::cache_dtype).
};

/// Loads a language model or an embedding model on a device, and reads prompts of many lengths. A language model also
/// generates tokens, with recorded steps and without, of one sequence and of several in pages; computes embeddings and
/// losses; and copies its caches as growing caches and saved prompts do. The device must compute nothing
/// (pack_launches).
/// Throws the errors of Llama::load and EmbeddingModel::load, and ArgumentError if the device computes.
void exercise(const GgufFile& file, Device device, const ExerciseOptions& options = {});

}  // namespace tessera
