// SPDX-License-Identifier: Apache-2.0
// The modules are documented in sentence_transformers/models (versions 2 to 5), and since version 6 in
// sentence_transformers/base/modules.
#include "tessera/llm/hub/sentence_transformers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/llm/embedding_model.h"
#include "tessera/llm/gguf_types.h"
#include "tessera/llm/hub/pre_tokenizer.h"

namespace tessera::hub {
namespace {

/// The kinds of pooling, in `pooling_mode`, and as a flag in the files of older versions. Others have no `value`.
struct PoolingName {
  std::string_view mode, flag;
  std::optional<Pooling> value = {};
};
constexpr std::array pooling_names = {
    PoolingName{"mean", "pooling_mode_mean_tokens", Pooling::mean},
    PoolingName{"cls", "pooling_mode_cls_token", Pooling::cls},
    PoolingName{"lasttoken", "pooling_mode_lasttoken", Pooling::last},
    PoolingName{"max", "pooling_mode_max_tokens"},
    PoolingName{"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
    PoolingName{"weightedmean", "pooling_mode_weightedmean_tokens"},
};

Pooling read_pooling_module(const JsonObject& c) {
  const PoolingName* found = nullptr;
  std::string_view key = "pooling_mode";
  for (const PoolingName& p : pooling_names) {
    if (c.has("pooling_mode") ? c.text("pooling_mode") != p.mode : !c.flag_or(p.flag, false)) continue;
    if (!c.has("pooling_mode")) key = p.flag;
    if (found != nullptr) c.bad(key, "several kinds of pooling are not supported");
    found = &p;
  }
  if (found == nullptr || !found->value)
    c.bad(key,
          found == nullptr ? "the kind of pooling is unknown"
                           : fmt::format("the pooling {} is not supported", found->mode),
          "Supported kinds: mean, cls and lasttoken");
  if (!c.flag_or("include_prompt", true)) c.bad("include_prompt", "pooling without the prompt is not supported");
  return *found->value;
}

/// Reads the configuration of the transformer. Older versions named the file after the class of the model.
JsonObject read_transformer_module(const std::string& folder) {
  for (const char* model : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const std::string path = fmt::format("{}/sentence_{}_config.json", folder, model);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return JsonObject::read(path);
  }
  return JsonObject::parse("{}", folder + "/sentence_bert_config.json");
}

/// Throws FormatError if a prompt is added to each text by default.
void check_default_prompt(const JsonObject& c) {
  constexpr const char* key = "default_prompt_name";
  if (!c.has(key)) return;
  const std::string name = c.text(key);
  const auto prompts = c.object("prompts");
  if (!prompts || !prompts->has(name)) c.bad(key, fmt::format("there is no prompt {}", quote_text(name)));
  if (!prompts->text(name).empty())
    c.bad(key, fmt::format("the default prompt {} is not supported", quote_text(name)),
          fmt::format("Replace it by null, and pass {} as the prefix of texts (--prefix, EmbeddingOptions::prefix)",
                      quote_text(prompts->text(name))));
}

}  // namespace

void add_embedding_modules(const std::string& folder, const std::string& architecture, const TokenizerFiles& files,
                           Metadata& to) {
  const std::string path = folder + "/modules.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const JsonObject file = JsonObject::parse("{\"modules\":" + read_text_file(path, max_config_bytes) + "}", path);
  std::optional<Pooling> pooling;
  bool normalises = false;
  std::size_t index = 0;
  for (const nlohmann::json& entry : file.array("modules")) {
    const JsonObject module = file.within(entry, fmt::format("modules[{}]", index++));
    const std::string type = module.text("type"), place = module.text_or("path", "");
    const std::string name = type.substr(type.rfind('.') + 1);
    if (index == 1 && name == "Transformer") {
      if (!place.empty())
        module.bad("path", fmt::format("the Transformer in {} is not supported", quote_text(place)),
                   "Supported is a Transformer in the folder itself, with an empty path");
    } else if (index == 2 && name == "Pooling") {
      if (std::filesystem::path(place).is_absolute() || place.find("..") != std::string::npos)
        module.bad("path", fmt::format("{} may be outside of the model folder", quote_text(place)),
                   "Use a path in the model folder, such as 1_Pooling");
      pooling = read_pooling_module(JsonObject::read(folder + "/" + place + "/config.json"));
    } else if (index == 3 && name == "Normalize") {
      normalises = true;
    } else {
      module.bad("type", fmt::format("the module {} is not supported at this place", quote_text(type)),
                 "Supported are a Transformer in the folder itself, Pooling, and Normalize");
    }
  }
  if (!pooling) file.bad("modules", "there is no module for the pooling");
  to.set_count(architecture + ".pooling_type", static_cast<std::int64_t>(*pooling));
  to.set(std::string(normalize_key), normalises);
  check_default_prompt(JsonObject::read_if_exists(folder + "/config_sentence_transformers.json"));
  const JsonObject transformer = read_transformer_module(folder);
  if (transformer.flag_or("do_lower_case", false) && !lowercases(files.tokenizer))
    transformer.bad("do_lower_case", "lowercase text is supported only if the tokenizer converts it",
                    "Replace it by false, and pass texts in lowercase");
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (transformer.has("max_seq_length"))
    to.set_count(std::string(max_tokens_key), transformer.integer("max_seq_length", 1, most));
  else if (const double v = files.settings.number_or("model_max_length", 0); v >= 1 && v <= static_cast<double>(most))
    to.set_count(std::string(max_tokens_key), static_cast<std::int64_t>(v));  // a huge number means no limit
}

}  // namespace tessera::hub
