// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/saved_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/array/host_bytes.h"
#include "tessera/base/sha256.h"
#include "tessera/nn/trainer_file.h"

namespace tessera {

namespace {

constexpr const char* key = "tessera.manifest";
constexpr std::int64_t this_format = 1;

std::string hash_of(std::span<const std::byte> bytes) {
  return sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// If `name` matches `from`, returns `to` with `*` replaced by the text that the star in `from` matched. Otherwise
/// returns std::nullopt.
std::optional<std::string> renamed(const std::string& name, const std::string& from, const std::string& to) {
  const std::size_t star = from.find('*');
  if (star == from.npos) return name == from ? std::optional(to) : std::nullopt;
  const std::string_view head = std::string_view(from).substr(0, star), tail = std::string_view(from).substr(star + 1);
  if (name.size() < head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) return std::nullopt;
  std::string out = to;
  const std::string middle = name.substr(star, name.size() - head.size() - tail.size());
  if (const std::size_t at = out.find('*'); at != out.npos) out.replace(at, 1, middle);
  return out;
}

void check_hashes(const SafetensorsFile& file, const ModelManifest& manifest) {
  std::vector<std::string> wrong;
  for (const SafetensorsTensor& t : file.tensors()) {
    const auto entry = manifest.arrays.find(t.name);
    if (entry == manifest.arrays.end())
      wrong.push_back(t.name + " is missing from the file");
    else if (!t.dtype || dtype_name(*t.dtype) != entry->second.dtype || t.shape != entry->second.shape)
      wrong.push_back(fmt::format("{} is {} {}, expected {} {}", t.name, to_string(t.shape), t.dtype_name,
                                  to_string(entry->second.shape), entry->second.dtype));
    else if (hash_of(file.data(t)) != entry->second.sha256)
      wrong.push_back(t.name + " has different elements");
  }
  for (const auto& [name, entry] : manifest.arrays)
    if (file.find(name) == nullptr) wrong.push_back(name + " is missing");
  if (wrong.empty()) return;
  fail<FormatError>({.operation = "load_model",
                     .with = {{"file", file.name()}, {"written by", "tessera " + manifest.library}},
                     .wrong = fmt::format("the arrays do not match the file's manifest: {}", fmt::join(wrong, ", ")),
                     .remedy = "The file was changed or damaged after it was written; if the change is intended, load "
                               "it without .check_hashes"});
}

}  // namespace

NameMap names_of_pytorch() { return {{"*.running_var", "*.running_variance"}, {"*.num_batches_tracked", ""}}; }

std::optional<ModelManifest> manifest_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return std::nullopt;
  const auto bad = [&](const std::string& wrong) {
    fail<FormatError>({.operation = "read a model's manifest", .with = {{"file", file.name()}}, .wrong = wrong});
  };
  ModelManifest out;
  try {
    const auto json = nlohmann::json::parse(found->second);
    out.format = json.at("format").get<std::int64_t>();
    out.library = json.at("library").get<std::string>();
    if (out.format > this_format)
      bad(fmt::format("its format is {}; this version (" TESSERA_VERSION ") supports formats up to {}", out.format,
                      this_format));
    for (const auto& [name, a] : json.at("arrays").items())
      out.arrays[name] = {a.at("dtype").get<std::string>(), a.at("shape").get<Shape>(),
                          a.at("sha256").get<std::string>()};
  } catch (const nlohmann::json::exception& e) {
    bad(std::string("it was not written by save_model: ") + e.what());
  }
  return out;
}

namespace detail {

void save_parts(const ConstParts& parts, const std::string& path, const std::map<std::string, std::string>& metadata) {
  if (metadata.contains(key))
    fail<ArgumentError>(
        {.operation = "save_model", .with = {{"text", key}}, .wrong = "this name is reserved for save_model"});
  std::vector<std::pair<std::string, Array>> all;
  nlohmann::json arrays = nlohmann::json::object();
  for (const auto& [name, part] : parts) {
    if (part->empty()) continue;
    all.emplace_back(name, *part);
    std::string bytes;
    append_bytes(bytes, *part);
    arrays[name] = {
        {"dtype", std::string(dtype_name(part->dtype()))}, {"shape", part->shape()}, {"sha256", sha256(bytes)}};
  }
  std::map<std::string, std::string> texts = metadata;
  texts[key] = nlohmann::json{{"format", this_format}, {"library", TESSERA_VERSION}, {"arrays", arrays}}.dump();
  save_safetensors(path, all, texts);
}

LoadReport load_parts(const Parts& parts, const std::string& path, const LoadModelOptions& options) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (options.check_hashes)
    if (const auto manifest = manifest_of(file)) check_hashes(file, *manifest);
  const bool trainer = is_trainer_file(file);
  std::map<std::string, std::string> names;  // names in the file, by path
  std::vector<std::string> passed;
  for (const SafetensorsTensor& t : file.tensors())
    for (const auto& [from, to] : options.names) {
      const auto name = renamed(t.name, from, to);
      if (!name) continue;
      if (name->empty())
        passed.push_back(t.name);
      else if (const auto [other, first] = names.try_emplace(*name, t.name); !first)
        fail<ArgumentError>({.operation = "load_model",
                             .with = {{"file", path}, {"names", other->second + ", " + t.name}},
                             .wrong = "two arrays of the file are mapped to " + *name + " in the model"});
      break;
    }
  ArrayLoader loader(file, trainer ? trainer_model_prefix : "", std::move(names));
  for (const auto& [name, part] : parts)
    if (!part->empty()) loader.look(*part, Path(name));
  for (const std::string& name : passed) loader.ignore_prefix(name);
  return loader.load({.partial = options.partial, .convert = options.convert});
}

}  // namespace detail

}  // namespace tessera
