// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/saved_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <type_traits>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/sha256.h"
#include "tessera/device/to_string.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {
namespace {

constexpr const char* format_name = "tessera saved prompt 1";

/// The metadata of a file, except for the model.
std::map<std::string, std::string> circumstances(const LanguageModel& model, const KeyValueCache& cache) {
  std::string devices;
  for (const Device device : model.model().layer_devices()) {
    const std::string name = to_string(device) + " (" + device_info(device).name + ")";
    if (!devices.ends_with(name)) devices += (devices.empty() ? "" : ", ") + name;
  }
  const DType dtype = cache.arrays().front().dtype();
  const std::int64_t original = model.model().config().original_context;
  return {{"version", TESSERA_VERSION},
          {"cache", dtype == DType::i8 ? "q8_0" : std::string(dtype_name(dtype))},
          {"device", devices},
          // A model with LongRoPE has other keys in long contexts.
          {"context", cache.expected() > original ? fmt::format("more than {} tokens", original) : "short"}};
}

/// The names of the cache's arrays in a file.
std::vector<std::string> names_of(const KeyValueCache& cache) {
  std::vector<std::string> names;
  const std::size_t layers = cache.arrays().size() / 2;
  for (const char* const what : {"keys.", "values."})
    for (std::size_t i = 0; i < layers; ++i) names.push_back(what + std::to_string(i));
  return names;
}

std::string text_of_value(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>)
          return v;
        else if constexpr (std::is_arithmetic_v<T>)
          return fmt::format("{}", v);
        else
          return fmt::format("{} elements", v.size());
      },
      value);
}

}  // namespace

std::string model_fingerprint(const GgufFile& file) {
  constexpr std::uint64_t sample = 4096;  // bytes of each tensor
  std::string all;
  for (const GgufEntry& e : file.metadata()) all += e.key + '\0' + text_of_value(e.value) + '\0';
  for (const GgufTensor& t : file.tensors()) {
    all += t.name + '\0' + ggml_type_text(t.type);
    for (const std::uint64_t d : t.dims) all += ' ' + std::to_string(d);
    std::vector<std::byte> data(std::min(sample, t.bytes));
    file.read(t, (t.bytes - data.size()) / 2, data);
    all.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  return sha256(all);
}

/// SHA-256 of the bytes of a contiguous array.
std::string hash_of(const Array& a) {
  std::string bytes(a.bytes(), '\0');
  a.download(bytes.data());
  return sha256(bytes);
}

void save_prompt(const std::string& path, const LanguageModel& model, const KeyValueCache& cache,
                 std::span<const TokenId> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::vector<std::pair<std::string, Array>> arrays = {
      {"tokens", Array::from(std::span<const std::int32_t>(tokens), Shape{count}, Device{Backend::cpu, 0})}};
  const std::vector<std::string> names = names_of(cache);
  const std::vector<Array> all = cache.arrays();
  for (std::size_t i = 0; i < all.size(); ++i) arrays.emplace_back(names[i], all[i].slice(1, 0, count));
  std::string hashes;
  for (const auto& [name, array] : arrays) hashes += hash_of(array.copy());
  std::map<std::string, std::string> metadata = circumstances(model, cache);
  metadata["format"] = format_name, metadata["model"] = model.fingerprint();
  metadata["contents"] = sha256(hashes);
  save_safetensors(path, arrays, metadata);
}

namespace {

std::string entry_of(const SafetensorsFile& file, const std::string& key) {
  const auto at = file.metadata().find(key);
  return at == file.metadata().end() ? std::string() : at->second;
}

[[noreturn]] void refuse_damaged(const std::string& path, const std::string& what) {
  fail<FormatError>({.operation = "load saved prompt",
                     .with = {{"file", path}},
                     .wrong = what,
                     .remedy = "Delete the file, or name another one"});
}

/// Opens the file of a saved prompt, and checks that it belongs to the model.
std::optional<SafetensorsFile> open_file(const std::string& path, const LlamaConfig& config,
                                         const std::string& fingerprint) {
  if (config.is_recurrent())
    fail<ArgumentError>({.operation = "saved prompt",
                         .with = {{"file", path}},
                         .wrong = "the states of recurrent layers are not saved",
                         .remedy = "Read the prompt each time, without a file for it"});
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  SafetensorsFile file = SafetensorsFile::open(path);
  if (entry_of(file, "format") != format_name) refuse_damaged(path, "this is not a saved prompt of this version");
  if (entry_of(file, "model") != fingerprint)
    fail<ArgumentError>({.operation = "load saved prompt",
                         .with = {{"file", path}},
                         .wrong = "the prompt was saved by another model, or with another rotary scaling",
                         .remedy = "Delete the file, or name another one"});
  return file;
}

}  // namespace

void check_prompt_cache(const std::string& path, const LlamaConfig& config, const std::string& fingerprint) {
  open_file(path, config, fingerprint);
  os::require_writable(path, {.makes_folders = false});
}

std::optional<SavedPrompt> SavedPrompt::open(const std::string& path, const LanguageModel& model,
                                             const KeyValueCache& cache) {
  std::optional<SafetensorsFile> opened = open_file(path, model.model().config(), model.fingerprint());
  if (!opened) return std::nullopt;
  SavedPrompt saved(std::move(*opened));
  const SafetensorsFile& file = saved.file_;
  const auto entry = [&](const std::string& key) { return entry_of(file, key); };
  const auto damaged = [&](const std::string& what) { refuse_damaged(path, what); };
  for (const auto& [key, value] : circumstances(model, cache))
    if (entry(key) != value) {
      logging::warn(fmt::format("{}: the prompt is read again, because it was saved with {} {}, not {}", path, key,
                                entry(key), value));
      return std::nullopt;
    }
  const SafetensorsTensor& tokens = file.tensor("tokens");
  if (tokens.dtype != DType::i32 || tokens.shape.size() != 1 || tokens.shape[0] < 1) damaged("it has no tokens");
  saved.tokens_ = file.load("tokens", Device{Backend::cpu, 0}).to_vector<TokenId>();
  const std::vector<std::string> names = names_of(cache);
  const std::vector<Array> arrays = cache.arrays();
  std::string hashes = hash_of(file.load("tokens", Device{Backend::cpu, 0}));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const SafetensorsTensor& t = file.tensor(names[i]);
    if (t.dtype != arrays[i].dtype() || t.shape != Shape{arrays[i].shape(0), tokens.shape[0], arrays[i].shape(2)})
      damaged(fmt::format("the shape {} of {} does not fit the model", to_string(t.shape), t.name));
    hashes += hash_of(file.load(names[i], Device{Backend::cpu, 0}));
  }
  if (entry("contents") != sha256(hashes)) damaged("its contents have changed since it was written");
  return saved;
}

std::int64_t SavedPrompt::common_tokens(std::span<const TokenId> prompt) const {
  return std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), prompt.end()).first - tokens_.begin();
}

void SavedPrompt::load(KeyValueCache& cache, std::int64_t count) const {
  if (count == 0) return;
  const std::vector<std::string> names = names_of(cache);
  std::vector<Array> arrays = cache.arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    arrays[i].slice(1, 0, count).assign(file_.load(names[i], arrays[i].device()).slice(1, 0, count));
    arrays[i].eval();
  }
  cache.set_length(count);
}

}  // namespace tessera
