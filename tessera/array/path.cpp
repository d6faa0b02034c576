// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/path.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

namespace {
/// Characters that names may contain without quotes, including all non-ASCII characters. Characters of the path syntax
/// are excluded.
bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '+' || c == '#' || c == '$' || c == '/' || c == ':' || static_cast<unsigned char>(c) >= 0x80;
}
}  // namespace

void Path::append_word(std::string& text, std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, plain)) {
    if (!text.empty()) text += '.';
    text += word;
    return;
  }
  text += "[\"";
  for (const char c : word)
    if (c == '"' || c == '\\')
      (text += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      text += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      text += c;
  text += "\"]";
}
void Path::append_float(std::string& text, double n) { append_word(text, fmt::format("{}", n)); }

void Path::append(std::string& text) const {
  if (above_ == nullptr) {
    text = name_;
    return;
  }
  above_->append(text);
  if (append_key_ == nullptr && name_ == ".") return;  // "." adds nothing, as in file paths.
  if (append_key_ != nullptr)
    append_key_(text, key_, index_);
  else
    append_word(text, name_.empty() ? std::to_string(index_) : name_);
}

std::string Path::text() const {
  std::string text;
  append(text);
  return text;
}

}  // namespace tessera
