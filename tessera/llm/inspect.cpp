// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/llm/chat.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {

namespace {

/// Returns a metadata string, or an empty string if the key is missing or has another type.
std::string text_of(const GgufFile& file, std::string_view key) {
  const GgufValue* v = file.find(key);
  const auto* text = v ? std::get_if<std::string>(v) : nullptr;
  return text ? *text : "";
}

void find_types(const GgufFile& file, ModelReport& r) {
  std::map<GgmlType, ModelReport::Type> by_type;
  std::map<GgmlType, std::string> first;
  for (const GgufTensor& t : file.tensors()) {
    ModelReport::Type& type = by_type[t.type];
    type.type = t.type;
    ++type.tensors, type.elements += t.elements, type.bytes += t.bytes;
    first.emplace(t.type, t.name);
    r.parameters += t.elements, r.bytes += t.bytes;
  }
  for (const auto& [id, type] : by_type) {
    r.types.push_back(type);
    if (weight_format(id)) continue;
    std::string which = first[id];
    if (type.tensors > 1) which += fmt::format(" and {} more", type.tensors - 1);
    r.missing.push_back({"type", ggml_type_text(id), "matrices of this type are not supported: " + which});
  }
  std::ranges::stable_sort(r.types, std::greater<>(), &ModelReport::Type::bytes);
}

void add_unknown(ModelReport& r, std::vector<UnknownPart>& unknown) {
  for (UnknownPart& u : unknown)
    r.missing.push_back({u.is_tensor ? "tensor" : "key", std::move(u.name), std::move(u.why)});
}

/// Calls `work` and adds an error to the report as a missing part.
template <class Work>
void try_to(ModelReport& r, const char* kind, std::string name, bool stops, const Work& work) {
  try {
    work();
  } catch (const Error& e) {
    r.missing.push_back({kind, std::move(name), e.what(), stops});
  }
}

}  // namespace

bool ModelReport::runs() const { return std::ranges::none_of(missing, &MissingPart::stops); }

namespace {
ModelReport report_of(const GgufFile& file) {
  ModelReport r;
  r.file = file.name(), r.name = text_of(file, "general.name"), r.version = file.version();
  r.architecture = text_of(file, "general.architecture");
  r.has_chat_template = file.has("tokenizer.chat_template");
  const std::string type = text_of(file, "general.type");
  const Architecture* known = find_architecture(r.architecture);
  const EncoderArchitecture* encoder = find_encoder_architecture(r.architecture);
  if (known) r.models = known->models;
  if (encoder) r.models = encoder->models;
  if (!type.empty() && type != "model") {
    r.missing.push_back({"file", "general.type",
                         type == "adapter"  ? "this is a LoRA adapter, not a model: merge it into its model first"
                         : type == "mmproj" ? "this is the vision or audio part of a model, not a language model"
                                            : "this is of type " + quote_text(type) + ", not a model"});
  } else if (encoder) {
    try_to(r, "key", r.architecture, true, [&] {
      std::vector<UnknownPart> unknown;
      r.encoder = read_encoder_config(file, unknown);
      add_unknown(r, unknown);
    });
  } else if (!known) {
    const std::string_view why = missing_in_architecture(r.architecture);
    r.missing.push_back({"architecture", r.architecture.empty() ? "general.architecture" : r.architecture,
                         r.architecture.empty() ? "the file does not name its architecture"
                         : why.empty()          ? "Tessera runs " + architecture_names()
                                                : fmt::format("{}; Tessera runs {}", why, architecture_names())});
  } else {
    try_to(r, "key", r.architecture, true, [&] {
      std::vector<UnknownPart> unknown;
      r.config = read_llama_config(file, unknown);
      add_unknown(r, unknown);
    });
  }
  if (encoder || (r.config && r.config->pooling != 0))
    try_to(r, "key", r.architecture + ".pooling_type", true, [&] { r.pooling = read_pooling(file); });
  find_types(file, r);
  if (!type.empty() && type != "model") return r;
  try_to(r, "tokenizer", text_of(file, "tokenizer.ggml.model"), true, [&] {
    r.tokenizer = file.get<std::string>("tokenizer.ggml.model");
    if (const std::string pre = text_of(file, "tokenizer.ggml.pre"); !pre.empty()) r.tokenizer += ", " + pre;
    const Tokenizer tokenizer(file);
    r.tokens = tokenizer.size();
  });
  if (r.has_chat_template)
    try_to(r, "chat template", "tokenizer.chat_template", false, [&] { ChatTemplate::of(file); });
  return r;
}
}  // namespace

ModelReport inspect_model(const GgufFile& file) {
  ModelReport r = report_of(file);
  for (std::string* text : {&r.name, &r.architecture, &r.tokenizer}) *text = printable_line(*text);
  for (MissingPart& m : r.missing) m.name = printable_line(m.name), m.why = printable_text(m.why);
  return r;
}

}  // namespace tessera
