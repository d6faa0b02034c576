// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/llm/architectures.h"
#include "tessera/llm/hub/sentence_transformers.h"
#include "tessera/llm/hub/tensors.h"
#include "tessera/llm/hub/tokenizer_file.h"

namespace tessera::hub {
namespace {

namespace fs = std::filesystem;

std::string folder_name(const std::string& path) {
  std::error_code ignored;
  fs::path whole = fs::absolute(path, ignored).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  // In the cache of the hub, the path is models--OWNER--NAME/snapshots/REVISION.
  if (whole.parent_path().filename() == "snapshots")
    if (const std::string model = whole.parent_path().parent_path().filename().string(); model.starts_with("models--"))
      return model.substr(model.rfind("--") + 2);
  return whole.filename().string();
}

/// Adds the chat template: a file of its own, or one or more templates in tokenizer_config.json. Older folders of
/// models of images have it in chat_template.json.
void add_chat_template(const std::string& path, const JsonObject& settings, Metadata& to) {
  constexpr const char* key = "chat_template";
  const std::string gguf_key = "tokenizer.chat_template", file = path + "/chat_template.jinja";
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    to.set(gguf_key, read_text_file(file, max_config_bytes));
  } else if (const nlohmann::json* const value = settings.find(key); value && value->is_array()) {
    std::size_t index = 0;
    for (const nlohmann::json& entry : *value) {
      const JsonObject named = settings.within(entry, fmt::format("{}[{}]", key, index++));
      const std::string name = named.text("name");
      to.set(name == "default" ? gguf_key : gguf_key + "." + name, named.text("template"));
    }
  } else if (value) {
    to.set(gguf_key, settings.text(key));
  } else if (const JsonObject own = JsonObject::read_if_exists(path + "/chat_template.json"); own.has(key)) {
    to.set(gguf_key, own.text(key));
  }
}

/// Throws FormatError unless the folder has this file.
void require_file(const std::string& path, const char* name) {
  std::error_code ignored;
  if (fs::exists(path + "/" + name, ignored)) return;
  std::string remedy =
      "Use a folder as downloaded from the Hugging Face hub: `hf download OWNER/NAME --local-dir FOLDER`";
  if (name == std::string_view("tokenizer.json") && fs::exists(path + "/tokenizer.model", ignored))
    remedy =
        "tokenizer.model is not read: convert it with AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) "
        "of transformers";
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored))
    if (entry.path().extension() == ".gguf")
      remedy = "The folder contains GGUF files: use one of them, such as " + entry.path().string();
  fail<FormatError>({.operation = "load model",
                     .with = {{"folder", path}},
                     .wrong = fmt::format("the folder does not contain {}", name),
                     .remedy = remedy});
}

}  // namespace

GgufFile Folder::open(const std::string& path, std::optional<GgmlType> weights) {
  require_file(path, "config.json");
  require_file(path, "tokenizer.json");
  const JsonObject whole = JsonObject::read(path + "/config.json");
  const Family& family = family_of(whole);
  // Older files of Qwen 2 VL have the keys of the text model without text_config.
  if (family.sees && !whole.has("text_config") && !whole.has("hidden_size"))
    whole.bad("text_config", "the key is missing");
  const JsonObject config = family.sees ? whole.object("text_config").value_or(whole) : whole;
  const TokenizerFiles files{.tokenizer = JsonObject::read(path + "/tokenizer.json", max_tokenizer_bytes),
                             .settings = JsonObject::read_if_exists(path + "/tokenizer_config.json"),
                             .config = config,
                             .whole = whole,
                             .generation = JsonObject::read_if_exists(path + "/generation_config.json")};
  Metadata metadata;
  const bool is_encoder = find_encoder_architecture(family.architecture) != nullptr;
  ModelShape shape = is_encoder ? add_encoder_config(config, family, metadata) : add_config(config, family, metadata);
  if (constexpr const char* key = "tie_word_embeddings"; family.sees && whole.has(key))
    shape.tied = whole.flag_or(key, false) || config.flag_or(key, false);
  metadata.set("general.name", folder_name(path));
  ComputedTensors computed;
  if (!is_encoder) computed = add_rope(config, family, shape, metadata);
  add_embedding_modules(path, std::string(family.architecture), files, metadata);
  add_sampling(files.generation, metadata);
  add_tokenizer(files, metadata);
  add_chat_template(path, files.settings, metadata);

  GgufFile out;
  GgufFile::Contents& c = *out.contents_;
  auto tensors = std::make_unique<FolderTensors>(Shards(path), family, shape, computed, weights);
  c.name = path;
  c.entries = metadata.take();
  c.tensors = tensors->descriptions();
  for (std::size_t i = 0; i < c.entries.size(); ++i) c.entry_index.emplace(c.entries[i].key, i);
  for (std::size_t i = 0; i < c.tensors.size(); ++i) c.tensor_index.emplace(c.tensors[i].name, i);
  c.source = std::move(tensors);
  return out;
}

}  // namespace tessera::hub
