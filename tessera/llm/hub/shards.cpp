// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tessera/array/safetensors.h"
#include "tessera/base/error.h"
#include "tessera/llm/gguf_types.h"
#include "tessera/llm/hub/json_file.h"

namespace tessera::hub {
namespace {

namespace fs = std::filesystem;

/// Explains why a folder without safetensors files cannot be loaded.
[[noreturn]] void no_weights(const std::string& folder) {
  std::string remedy = "Download model.safetensors, or all parts and model.safetensors.index.json";
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(".gguf"))
      remedy = "The folder contains GGUF files: use one of them, such as " + at->path().string();
    if (name.starts_with("pytorch_model"))
      remedy = "PyTorch's .bin files are not read: save the model with save_pretrained of transformers";
  }
  fail<FormatError>({.operation = "load model",
                     .with = {{"folder", folder}},
                     .wrong = "the folder contains neither model.safetensors nor model.safetensors.index.json",
                     .remedy = remedy});
}

}  // namespace

Shards::Shards(const std::string& folder) {
  const std::string index = folder + "/model.safetensors.index.json", single = folder + "/model.safetensors";
  std::error_code ignored;
  if (fs::exists(index, ignored))
    add_indexed(folder, index);
  else if (fs::exists(single, ignored))
    add(single, nullptr);
  else
    no_weights(folder);
  std::ranges::sort(tensors_, {}, &StoredTensor::name);
}

const StoredTensor* Shards::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(tensors_, name, {}, &StoredTensor::name);
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

void Shards::add_indexed(const std::string& folder, const std::string& index) {
  const JsonObject file = JsonObject::read(index, max_tokenizer_bytes);
  const auto map = file.object("weight_map");
  if (!map) file.bad("weight_map", "the key is missing", "The file is not an index of safetensors files");
  std::map<std::string, std::vector<std::string>> by_shard;
  for (const auto& [tensor, shard] : map->value().items()) {
    if (!shard.is_string()) map->bad(tensor, "expected the name of a file");
    const auto name = shard.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      map->bad(tensor, quote_text(name) + " is not the name of a file in this folder");
    by_shard[name].push_back(tensor);
  }
  std::string missing;
  std::error_code ignored;
  for (const auto& [name, tensors] : by_shard)
    if (!fs::exists(folder + "/" + name, ignored)) missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty())
    file.bad("weight_map", "these files are missing: " + missing, "Put all files in the same folder");
  for (const auto& [name, tensors] : by_shard) add(folder + "/" + name, &tensors);
}

void Shards::add(const std::string& path, const std::vector<std::string>* wanted) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto take = [&](const SafetensorsTensor& t) {
    tensors_.push_back({t.name, t.dtype_name, t.shape, files_.size(), t.offset, t.bytes});
  };
  if (wanted == nullptr) {
    for (const SafetensorsTensor& t : file.tensors()) take(t);
  } else {
    for (const std::string& name : *wanted) {
      const SafetensorsTensor* const found = file.find(name);
      if (found == nullptr)
        fail<FormatError>({.operation = "load model",
                           .with = {{"file", path}, {"tensor", name}},
                           .wrong = "the file does not contain this tensor, which model.safetensors.index.json lists",
                           .remedy = "Download the folder again"});
      take(*found);
    }
  }
  paths_.push_back(path);
  files_.emplace_back(path);
}

}  // namespace tessera::hub
