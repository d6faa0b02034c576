// SPDX-License-Identifier: Apache-2.0
// Opens model files by the names that users type, and finds files that other programs have downloaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/llm/gguf.h"

namespace tessera::app {

/// GgufFile::open with better errors: for a URL or the name of a model of the Hugging Face hub, how to download it; for
/// other file formats, their name.
GgufFile open_model(const std::string& name);

/// A model file in a cache.
struct CachedModel {
  std::string path, model;  ///< model: "owner/name" in the hub's cache, otherwise empty
  std::uint64_t bytes = 0;  ///< of all its parts
  std::uint64_t parts = 1;
};
struct ModelCaches {
  std::vector<std::string> folders;  ///< searched folders
  std::vector<CachedModel> models;   ///< sorted by path
};
/// GGUF files in the caches of Hugging Face ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub) and of llama.cpp
/// ($LLAMA_CACHE, ~/.cache/llama.cpp); for a model in several files, the first.
ModelCaches cached_models();

}  // namespace tessera::app
