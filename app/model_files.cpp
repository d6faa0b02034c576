// SPDX-License-Identifier: Apache-2.0
#include "model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>

#include "tessera/base/error.h"
#include "tessera/llm/quantize_model.h"

namespace tessera::app {
namespace {

/// The names of the types that weights can be converted to.
std::vector<std::string> writable_type_names() {
  std::vector<std::string> names;
  for (const GgmlType type : quantizable_types()) names.emplace_back(ggml_type_info(type)->name);
  return names;
}

std::optional<GgmlType> writable_type(const std::string& name) {
  for (const GgmlType type : quantizable_types())
    if (ggml_type_info(type)->name == name) return type;
  return std::nullopt;
}

namespace fs = std::filesystem;

[[noreturn]] void not_here(const std::string& name, std::string wrong, std::string remedy) {
  fail<ArgumentError>(
      {.operation = "open model", .with = {{"model", name}}, .wrong = std::move(wrong), .remedy = std::move(remedy)});
}

/// Quotes a word for a shell, if necessary.
std::string word(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./:@%+=,").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

/// True if the name of a repository indicates that it contains GGUF files.
bool has_gguf_files(std::string name) {
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name.find("gguf") != std::string::npos;
}

/// Returns the `hf download` command for a model, for one of its files, or for the files of one quantisation.
std::string download(const std::string& model, const std::string& file, const std::string& quantisation) {
  std::string command = "hf download " + model;
  if (!file.empty())
    command += " " + word(file);
  else if (quantisation.empty() && !has_gguf_files(model))
    command += " --local-dir " + model.substr(model.find('/') + 1);
  else
    command += quantisation.empty() ? " --include '*.gguf'" : " --include " + word("*" + quantisation + "*.gguf");
  return command + (file.empty() ? "" : " --local-dir .");
}

/// Returns the value of an environment variable, or std::nullopt if it is not set or empty.
std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// Returns the user's folder of caches, or an empty string if $HOME is not set.
std::string user_caches() {
  const std::string home = variable("HOME").value_or("");
  return variable("XDG_CACHE_HOME").value_or(home.empty() ? "" : home + "/.cache");
}

/// Returns the folder in which Hugging Face's tools keep models, or std::nullopt if $HOME is not set.
std::optional<std::string> hub_cache() {
  if (auto folder = variable("HF_HUB_CACHE")) return folder;
  if (const auto hf = variable("HF_HOME")) return *hf + "/hub";
  const std::string caches = user_caches();
  return caches.empty() ? std::nullopt : std::optional(caches + "/huggingface/hub");
}

/// Returns the total size of the safetensors files in a folder.
std::uint64_t safetensors_bytes(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::error_code of_file;
    const std::uintmax_t size = fs::file_size(entry.path(), of_file);
    if (!of_file && entry.path().extension() == ".safetensors") bytes += size;
  }
  return bytes;
}

/// Returns the folder of the revision `main` of a model, or of its only revision.
fs::path snapshot_of(const std::string& name, const fs::path& model) {
  std::string revision;
  std::ifstream(model / "refs" / "main") >> revision;
  std::error_code error;
  const bool is_name = revision.find('/') == std::string::npos && revision != "." && revision != "..";
  if (!revision.empty() && is_name && fs::is_directory(model / "snapshots" / revision, error))
    return model / "snapshots" / revision;
  std::vector<fs::path> snapshots;
  for (const fs::directory_entry& entry : fs::directory_iterator(model / "snapshots", error))
    snapshots.push_back(entry.path());
  if (snapshots.size() == 1) return snapshots[0];
  not_here(name, fmt::format("{} contains no revision `main`", model.string()), "Download the model again");
}

/// True if a file's name contains a word, in capitals or not: "Q8_0" is in "m-Q8_0.gguf", but "F16" not in
/// "m-BF16.gguf".
bool has_word(std::string file, std::string word) {
  for (std::string* const text : {&file, &word})
    for (char& c : *text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  const auto joins = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
  for (std::size_t at = 0; (at = file.find(word, at)) != file.npos; ++at)
    if ((at == 0 || !joins(file[at - 1])) && (at + word.size() == file.size() || !joins(file[at + word.size()])))
      return true;
  return word.empty();
}

/// Returns the path of a model OWNER/NAME in the hub's cache: its folder, or its GGUF file with this quantisation.
std::string find_in_hub(const std::string& name, const std::string& model, const std::string& quantisation) {
  const bool is_folder = quantisation.empty() && !has_gguf_files(model);
  const std::string remedy =
      "Download it to the cache: hf download " + model +
      (is_folder ? "" : " --include " + word((quantisation.empty() ? "" : "*" + quantisation) + "*.gguf")) +
      " (`tessera inspect` lists the downloaded ones)";
  const auto hub = hub_cache();
  std::string folder = "models--" + model;
  folder.replace(folder.find('/'), 1, "--");
  std::error_code error;
  if (!hub || !fs::is_directory(fs::path(*hub) / folder, error))
    not_here(name,
             fmt::format("there is no such file, and no such model in the cache of the Hugging Face hub ({}); Tessera "
                         "does not download models",
                         hub ? *hub + "/" + folder : "$HOME is not set"),
             remedy);
  const fs::path snapshot = snapshot_of(name, fs::path(*hub) / folder);
  if (quantisation.empty() && fs::exists(snapshot / "config.json", error) && safetensors_bytes(snapshot) > 0)
    return snapshot.string();
  static const std::regex later_part(".*-(?!00001)\\d{5}-of-\\d{5}\\.gguf");
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator at(snapshot, error), end; !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename().string();
    if (file.ends_with(".gguf") && !file.starts_with("mmproj") && has_word(file, quantisation) &&
        !std::regex_match(file, later_part))
      found.push_back(at->path().string());
  }
  if (found.size() == 1) return found[0];
  std::ranges::sort(found);
  std::string files;
  for (const std::string& f : found) files += (files.empty() ? "" : ", ") + f;
  if (found.empty())
    not_here(name,
             quantisation.empty()
                 ? snapshot.string() + " contains neither config.json with safetensors files nor a GGUF file"
                 : fmt::format("{} contains no GGUF file with \"{}\" in its name", snapshot.string(), quantisation),
             remedy);
  not_here(name, "the cache of the hub contains several files of this model: " + files,
           "Pass the path of one of them, or add a part of its name, as in " + model + ":Q8_0");
}

/// A model OWNER/NAME or OWNER/NAME:QUANTISATION, with an optional prefix.
const std::regex& hub_name() {
  static const std::regex name("(?:hf:|hf\\.co/|huggingface\\.co/)?([\\w-][\\w.-]*/[\\w-][\\w.-]*?)(?::([\\w.-]+))?");
  return name;
}

/// Returns the path of a model that is not a file of this name: in the cache of the Hugging Face hub.
std::string find_model(const std::string& name) {
  std::smatch m;
  static const std::regex hub("https?://(?:www\\.)?(?:huggingface\\.co|hf\\.co)/([\\w.-]+/[\\w.-]+)(/.*)?");
  static const std::regex in_hub("/(?:resolve|blob|raw)/[^/]+/([^?#]+).*");
  static const std::regex url("[a-zA-Z][a-zA-Z0-9+.-]*://.+");
  constexpr const char* net = "Tessera does not download models";
  if (std::regex_match(name, m, hub)) {
    const std::string rest = m[2];
    std::smatch file;
    const bool names_file = std::regex_match(rest, file, in_hub);
    not_here(name, std::string("this is a URL, and ") + net,
             "Download it: " + download(m[1], names_file ? file[1].str() : "", ""));
  }
  if (std::regex_match(name, url))
    not_here(name, std::string("this is a URL, and ") + net, "Download it: curl -L -O " + word(name));
  if (name.ends_with(".gguf") || !std::regex_match(name, m, hub_name())) return name;
  return find_in_hub(name, m[1], m[2]);
}

/// Rejects files in other common formats, so that the error can name the format.
void refuse_other_kinds(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  std::string head(64, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  if (head.starts_with("version https://git-lfs"))
    not_here(name, "this is a Git LFS pointer, not the file itself", "Run `git lfs pull` in its folder");
  const char* const download_or_convert =
      "Download the model as GGUF, or convert its folder with llama.cpp's convert_hf_to_gguf.py";
  if (head.starts_with("PK\3\4"))
    not_here(name, "this is a zip archive, like PyTorch's .pt and .bin files; models must be GGUF files",
             download_or_convert);
  if (head.size() > 9 && head[8] == '{' && (name.ends_with(".safetensors") || head.substr(9, 1) == "\""))
    not_here(name, "this is a safetensors file, which contains only the weights of a model",
             "Use its folder, which also contains config.json and tokenizer.json");
  if (name.ends_with(".onnx")) not_here(name, "this is an ONNX model; models must be GGUF files", download_or_convert);
}

/// Adds the GGUF files and the folders with safetensors files below `folder`. `hub` is true for Hugging Face's cache,
/// whose folders have names such as models--OWNER--NAME/snapshots/REVISION.
void add_models(const fs::path& folder, bool hub, ModelCaches& out) {
  std::error_code error;
  static const std::regex part("(.*)-(\\d{5})-of-(\\d{5})\\.gguf");
  constexpr auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, options, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    std::error_code of_file;
    const std::uint64_t tensors = path.filename() == "config.json" ? safetensors_bytes(path.parent_path()) : 0;
    if (tensors == 0 && (path.extension() != ".gguf" || !fs::is_regular_file(path, of_file) || of_file)) continue;
    CachedModel model{.path = (tensors ? path.parent_path() : path).string(), .bytes = tensors};
    std::smatch m;
    const std::string name = path.filename().string();
    if (std::regex_match(name, m, part)) {
      if (m[2] != "00001") continue;
      model.parts = std::stoull(m[3]);
    }
    for (std::uint64_t i = 1; i <= model.parts && tensors == 0; ++i) {
      const fs::path each =
          model.parts == 1 ? path : path.parent_path() / fmt::format("{}-{:05}-of-{}.gguf", m[1].str(), i, m[3].str());
      const std::uintmax_t bytes = fs::file_size(each, of_file);
      if (!of_file) model.bytes += bytes;
    }
    if (hub) {
      const std::string first = path.lexically_relative(folder).begin()->string();
      if (first.starts_with("models--")) {
        model.model = first.substr(8);
        if (const std::size_t dashes = model.model.find("--"); dashes != std::string::npos)
          model.model.replace(dashes, 2, "/");
      }
    }
    out.models.push_back(std::move(model));
  }
}

}  // namespace

GgufFile open_model(const std::string& name, const std::string& weights) {
  std::error_code error;
  const std::string path = fs::exists(name, error) ? name : find_model(name);
  if (fs::is_regular_file(path, error)) refuse_other_kinds(path);
  return GgufFile::open(path, writable_type(weights));
}

std::string model_name(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  std::smatch m;
  if (!fs::exists(path, error) && !path.ends_with(".gguf") && std::regex_match(path, m, hub_name())) return m[1];
  if (!fs::is_directory(path, error)) return whole.stem().string();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void add_weights_option(CLI::App& sub, std::string& weights) {
  sub.add_option("--weights", weights,
                 "For a folder: convert the matrices to this type while they are loaded (default: as in the files)")
      ->transform(CLI::IsMember(writable_type_names(), CLI::ignore_case));
}

void require_other_file(const std::string& operation, const GgufFile& model, const std::string& to) {
  std::error_code ignored;
  for (const GgufTensor& t : model.tensors())
    if (std::filesystem::equivalent(to, model.name(t), ignored))
      fail<ArgumentError>({.operation = operation,
                           .with = {{"file", to}},
                           .wrong = "the model would be replaced",
                           .remedy = "Write to another file"});
}

ModelCaches cached_models() {
  const std::string caches = user_caches();
  ModelCaches out;
  const auto look = [&](std::optional<std::string> folder, bool hub) {
    if (!folder || std::ranges::find(out.folders, *folder) != out.folders.end()) return;
    out.folders.push_back(*folder);
    add_models(*folder, hub, out);
  };
  look(hub_cache(), true);
  if (const auto folder = variable("LLAMA_CACHE"))
    look(folder, false);
  else if (!caches.empty())
    look(caches + "/llama.cpp", false);
  std::ranges::sort(out.models, {}, &CachedModel::path);
  return out;
}

}  // namespace tessera::app
