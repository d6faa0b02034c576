// SPDX-License-Identifier: Apache-2.0
// Opens model files with helpful errors, and finds model files that other programs have downloaded.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/gguf.h"

namespace tessera::app {

/// Like GgufFile::open, but also opens a model OWNER/NAME or OWNER/NAME:QUANTISATION in the cache of the Hugging Face
/// hub, and has better errors: if the model is not there, or `name` is a URL, the error explains how to download it. If
/// the file has a different format, the error names that format. `weights` is the value of --weights, or empty.
GgufFile open_model(const std::string& name, const std::string& weights = {});

/// Throws ArgumentError if `to`, which a command writes, is a file of the model that it reads.
void require_other_file(const std::string& operation, const GgufFile& model, const std::string& to);

/// Describes the argument MODEL in the help of commands.
inline constexpr const char* model_help =
    "A GGUF file, a folder of a model with config.json, safetensors files and tokenizer.json, or OWNER/NAME of a model "
    "in the cache of the Hugging Face hub";
/// Declares --weights.
void add_weights_option(CLI::App& sub, std::string& weights);

/// Returns the name of a file without its extension, the name of a folder, or OWNER/NAME of a model in the hub's cache.
std::string model_name(const std::string& path);

/// A model file or folder in a cache.
struct CachedModel {
  std::string path, model;  ///< `model` is "owner/name" if the file is in the hub's cache, otherwise empty
  std::uint64_t bytes = 0;  ///< total size of all parts
  std::uint64_t parts = 1;
};
struct ModelCaches {
  std::vector<std::string> folders;  ///< searched folders
  std::vector<CachedModel> models;   ///< sorted by path
};
/// Finds GGUF files and folders with safetensors files in the caches of Hugging Face ($HF_HUB_CACHE, $HF_HOME/hub,
/// ~/.cache/huggingface/hub) and of llama.cpp ($LLAMA_CACHE, ~/.cache/llama.cpp). A model that is split into several
/// files is listed once, as part 1.
ModelCaches cached_models();

}  // namespace tessera::app
