// SPDX-License-Identifier: Apache-2.0
// Names that stand for model files on the command line, and the files that other programs have downloaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/llm/gguf.h"

namespace tessera::app {

/// GgufFile::open, but where there is no such file and the name is a URL or one of the Hugging Face hub the error says
/// how to download it; and what is no GGUF file, but something that people take for one, is named.
GgufFile open_model(const std::string& name);

/// A model file in a cache.
struct CachedModel {
  std::string path, model;  ///< model: "owner/name" in the hub's cache, else empty
  std::uint64_t bytes = 0;  ///< of all its parts
  std::uint64_t parts = 1;
};
struct ModelCaches {
  std::vector<std::string> folders;  ///< that were looked into
  std::vector<CachedModel> models;   ///< by path
};
/// GGUF files in the caches of Hugging Face ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub) and of llama.cpp
/// ($LLAMA_CACHE, ~/.cache/llama.cpp); of a model in several files the first.
ModelCaches cached_models();

}  // namespace tessera::app
