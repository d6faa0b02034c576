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

void refuse_names_of_the_net(const std::string& name) {
  std::smatch m;
  static const std::regex hub("https?://(?:www\\.)?(?:huggingface\\.co|hf\\.co)/([\\w.-]+/[\\w.-]+)(/.*)?");
  static const std::regex in_hub("/(?:resolve|blob|raw)/[^/]+/([^?#]+).*");
  static const std::regex url("[a-zA-Z][a-zA-Z0-9+.-]*://.+");
  static const std::regex short_name("(?:hf:|hf\\.co/|huggingface\\.co/)?([\\w-][\\w.-]*/[\\w.-]+?)(?::([\\w.-]+))?");
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
  if (name.ends_with(".gguf") || !std::regex_match(name, m, short_name)) return;
  not_here(name, std::string("there is no such file; if it is a model of the Hugging Face hub, ") + net,
           "Download it: " + download(m[1], "", m[2]) + " (`tessera inspect` lists the downloaded ones)");
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

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
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

GgufFile open_model(const std::string& name, const std::string& weights) {
  std::error_code error;
  if (!fs::exists(name, error))
    refuse_names_of_the_net(name);
  else if (fs::is_regular_file(name, error))
    refuse_other_kinds(name);
  return GgufFile::open(name, writable_type(weights));
}

std::string model_name(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  if (!fs::is_directory(path, error)) return whole.stem().string();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void add_weights_option(CLI::App& sub, std::string& weights) {
  sub.add_option("--weights", weights,
                 "For a folder: convert the matrices to this type while they are loaded (default: as in the files)")
      ->transform(CLI::IsMember(writable_type_names(), CLI::ignore_case));
}

ModelCaches cached_models() {
  const std::string home = variable("HOME").value_or("");
  const std::string caches = variable("XDG_CACHE_HOME").value_or(home.empty() ? "" : home + "/.cache");
  ModelCaches out;
  const auto look = [&](std::optional<std::string> folder, bool hub) {
    if (!folder || std::ranges::find(out.folders, *folder) != out.folders.end()) return;
    out.folders.push_back(*folder);
    add_models(*folder, hub, out);
  };
  if (const auto folder = variable("HF_HUB_CACHE"))
    look(folder, true);
  else if (const auto hf = variable("HF_HOME"))
    look(*hf + "/hub", true);
  else if (!caches.empty())
    look(caches + "/huggingface/hub", true);
  if (const auto folder = variable("LLAMA_CACHE"))
    look(folder, false);
  else if (!caches.empty())
    look(caches + "/llama.cpp", false);
  std::ranges::sort(out.models, {}, &CachedModel::path);
  return out;
}

}  // namespace tessera::app
