// SPDX-License-Identifier: Apache-2.0
// The format of images that fake compilers write and fake drivers load: a text with the architecture and the kernels of
// a program. Fake compilers search the source for kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace tessera::fake {

/// The kernels of a program, with their numbers of parameters.
using Entries = std::map<std::string, int>;

inline constexpr std::string_view cubin_magic = "FAKE CUBIN", code_object_magic = "FAKE CODE OBJECT",
                                  intel_magic = "FAKE INTEL BINARY";

/// Creates an image. `object` is a file with the kernels, compiled for the host (text/compile.h), or empty.
inline std::string make_image(std::string_view magic, const std::string& architecture, const Entries& entries,
                              const std::string& object = {}) {
  std::string text = std::string(magic) + "\n" + architecture + "\n";
  if (!object.empty()) text += "object: " + object + "\n";
  for (const auto& [name, parameters] : entries) text += name + " " + std::to_string(parameters) + "\n";
  return text;
}

struct Image {
  std::string architecture, object;
  Entries entries;
};
inline std::optional<Image> read_image(std::string_view magic, const char* data) {
  if (std::string_view(data).substr(0, magic.size()) != magic) return std::nullopt;
  std::istringstream lines(data);
  std::string line;
  Image image;
  std::getline(lines, line);
  std::getline(lines, image.architecture);
  for (std::string name; lines >> name;) {
    if (name == "object:")
      lines >> image.object;
    else
      lines >> image.entries[name];
  }
  return image;
}

/// Returns the name and the number of parameters of a kernel. `text` starts after the keyword that marks kernels.
inline std::pair<std::string, int> read_declaration(std::string_view text) {
  // Skips __launch_bounds__(...) and similar, up to `void name(`.
  std::size_t at = text.find("void ");
  if (at == text.npos) return {};
  at += 5;
  const std::size_t open = text.find('(', at);
  if (open == text.npos) return {};
  std::string name(text.substr(at, open - at));
  std::erase_if(name, [](char c) { return c == ' ' || c == '\n'; });
  int depth = 1, parameters = 0;
  bool anything = false;
  for (std::size_t i = open + 1; i < text.size() && depth > 0; ++i) {
    const char c = text[i];
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 1) ++parameters;
    if (depth > 0 && c != ' ' && c != '\n') anything = true;
  }
  return {name, anything ? parameters + 1 : 0};
}

/// Finds all kernels in a source. `word` is the keyword that marks kernels: __global__ or __kernel.
inline Entries find_kernels(std::string_view source, std::string_view word) {
  Entries entries;
  for (std::size_t at = source.find(word); at != source.npos; at = source.find(word, at + 1)) {
    const auto [name, parameters] = read_declaration(source.substr(at + word.size()));
    if (!name.empty()) entries[name] = parameters;
  }
  return entries;
}

/// Returns the error message of the fake compiler for a source that contains #error or `undeclared_name`. Returns an
/// empty string if the source is accepted.
inline std::string complaint(std::string_view source, const std::string& file) {
  std::size_t at = source.find("undeclared_name");
  std::string text = "identifier \"undeclared_name\" is undefined";
  if (at == source.npos) at = source.find("#error"), text = "#error directive";
  if (at == source.npos) return {};
  const auto line = 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  return file + "(" + std::to_string(line) + "): error: " + text + "\n\n1 error detected in the compilation of \"" +
         file + "\".\n";
}

}  // namespace tessera::fake
