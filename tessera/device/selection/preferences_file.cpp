// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/selection/preferences_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr const char* example = "Example: [device], and below it: prefer = \"cuda:0\"";

std::string place(const std::string& file, const toml::source_position& at) {
  return fmt::format("{}:{}:{}", file, at.line, at.column);
}

[[noreturn]] void refuse(const std::string& file, const toml::source_position& at, const std::string& wrong,
                         const std::string& remedy = example) {
  fail<FormatError>({.operation = place(file, at), .wrong = wrong, .remedy = remedy});
}

bool bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/// Returns the end of the string that begins at `at`. An unterminated string ends at the end of the line or the text.
std::size_t string_end(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool many = text.substr(at, 3) == three;
  for (at += many ? 3 : 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (many && text.substr(at, 3) == three) {
      at += 3;
      for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more)
        ++at;  // the string's contents may end with up to two quotes
      return at;
    } else if (!many && text[at] == quote) {
      return at + 1;
    } else if (!many && text[at] == '\n') {
      return at;
    }
  }
  return text.size();
}

/// Rejects input that toml++ 3.3 does not handle safely. Non-ASCII letters outside of strings and comments index tables
/// out of bounds. A '[' at the start of a line must be followed by a key. Deeply nested tables ("a.a.a.a") are
/// destroyed recursively.
void require_harmless(std::string_view text, const std::string& file) {
  toml::source_position place{.line = 1, .column = 1};
  int dots = 0;
  bool first = true;  // true at the first character of a line
  std::size_t seen = 0;
  const auto look = [&](std::size_t to) {  // counts lines and characters like toml++
    for (; seen < to; ++seen) {
      const char c = text[seen];
      if (c == '\n')
        ++place.line, place.column = 1;
      else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80)
        ++place.column;
    }
  };
  std::size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte order mark
  seen = at;
  while (at < text.size()) {
    const char c = text[at];
    look(at);
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '"' || c == '\'') {
      at = string_end(text, at);
      first = false;
      continue;
    }
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c > 0x7e)
      refuse(file, place, "only ASCII characters are allowed outside of strings and comments");
    if (c == '\n') dots = 0;
    if (c == '.' && ++dots > 32) refuse(file, place, "nested too deeply");
    if (c == '[' && first) {
      std::size_t next = at + 1;
      for (const int brackets : {0, 1}) {
        while (next < text.size() && (text[next] == ' ' || text[next] == '\t')) ++next;
        if (brackets == 0 && next < text.size() && text[next] == '[') ++next;
      }
      if (next < text.size() && !bare(text[next]) && text[next] != '"' && text[next] != '\'' && text[next] != ']')
        refuse(file, place, "no name after '['");
    }
    first = c == '\n' || (first && (c == ' ' || c == '\t' || c == '\r'));
    ++at;
  }
}

toml::table parse(const std::string& text, const std::string& file) {
  require_harmless(text, file);
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    refuse(file, e.source().begin, std::string(e.description()));
  }
}

/// Returns the [device] table after checking its keys and types. No other table is allowed.
const toml::table* device_table(const toml::table& root, const std::string& file) {
  const toml::table* device = nullptr;
  for (const auto& [key, node] : root) {
    if (key.str() != "device") refuse(file, key.source().begin, fmt::format("the key \"{}\" is unknown", key.str()));
    device = node.as_table();
    if (device == nullptr) refuse(file, node.source().begin, "\"device\" is not a table");
  }
  if (device == nullptr) return nullptr;
  for (const auto& [key, node] : *device) {
    if (key.str() != "prefer" && key.str() != "identity" && key.str() != "name")
      refuse(file, key.source().begin, fmt::format("the key \"device.{}\" is unknown", key.str()),
             "The keys of [device] are prefer, identity and name");
    if (!node.is_string()) refuse(file, node.source().begin, fmt::format("\"device.{}\" is not a string", key.str()));
  }
  return device;
}

std::string text_of(const toml::table& table, const char* key) { return table[key].value_or(std::string()); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

/// Returns the byte offset of the `column`-th character (from 1) in a UTF-8 line.
std::size_t byte_of(const std::string& line, std::uint32_t column) {
  std::size_t at = 0;
  for (std::uint32_t c = 1; c < column && at < line.size(); ++c) {
    ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xc0) == 0x80) ++at;
  }
  return at;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1);
    lines.push_back(text.substr(at, end + 1 - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::optional<Preference> parse_preference(const std::string& text, PreferenceScope scope, const std::string& file) {
  const toml::table root = parse(text, file);
  const toml::table* table = device_table(root, file);
  if (table == nullptr || table->empty()) return std::nullopt;
  const toml::node* prefer = table->get("prefer");
  if (prefer == nullptr)
    refuse(file, table->begin()->first.source().begin, "[device] has no key prefer",
           "Add prefer = \"cuda:0\" with the device's name, or remove these lines");
  const toml::source_position at = prefer->source().begin;
  Preference p{.scope = scope, .file = file, .line = at.line, .column = at.column};
  try {
    p.device = parse_device(text_of(*table, "prefer"));
  } catch (const DeviceError& e) {
    fail<DeviceError>({.operation = place(file, at), .wrong = e.what()});
  }
  p.identity = text_of(*table, "identity");
  p.name = text_of(*table, "name");
  return p;
}

std::string change_preference(const std::string& text, const std::optional<Preference>& wanted, PreferenceScope scope,
                              const std::string& file) {
  parse_preference(text, scope, file);  // reports errors in the file before anything is changed
  const toml::table root = parse(text, file);
  const toml::table* table = device_table(root, file);
  const std::array<std::pair<const char*, std::string>, 3> values = {
      {{"prefer", wanted ? to_string(wanted->device) : ""},
       {"identity", wanted ? wanted->identity : ""},
       {"name", wanted ? wanted->name : ""}}};
  std::vector<std::string> lines = lines_of(text);
  struct Edit {
    std::size_t line, begin, end;  // position of the old value in bytes; lines from 0
    std::string value;
  };
  std::vector<Edit> edits;
  std::set<std::size_t> gone;
  std::string added;
  bool possible = true;
  std::size_t after = 0;  // line after which keys are added, from 1; 0 if there is no table yet
  if (table != nullptr) after = table->source().begin.line;
  for (const auto& [key, value] : values) {
    const toml::node* node = table == nullptr ? nullptr : table->get(key);
    if (node == nullptr) {
      if (!value.empty()) added += fmt::format("{} = {}\n", key, quoted(value));
      continue;
    }
    const toml::source_region& at = node->source();
    if (at.begin.line != at.end.line || at.begin.line > lines.size()) {
      possible = false;  // a multi-line string
      continue;
    }
    const std::size_t line = at.begin.line - 1;
    if (value.empty())
      gone.insert(line);
    else
      edits.push_back(
          {line, byte_of(lines[line], at.begin.column), byte_of(lines[line], at.end.column), quoted(value)});
    after = std::max<std::size_t>(after, at.begin.line);
  }
  // Several values may be on one line. Edit the last one first, so that the positions of the others stay valid.
  std::ranges::sort(edits, std::greater{}, &Edit::begin);
  for (const Edit& edit : edits) lines[edit.line].replace(edit.begin, edit.end - edit.begin, edit.value);
  if (!lines.empty() && lines.back().back() != '\n') lines.back() += '\n';
  for (const std::size_t line : gone) lines[line].clear();
  if (!added.empty()) {
    if (after == 0)
      lines.push_back((lines.empty() ? "" : "\n") + std::string("[device]\n") + added);
    else
      lines[std::min(after, lines.size()) - 1] += added;
  }
  const std::string changed = fmt::format("{}", fmt::join(lines, ""));

  // The text was edited by line and column. Parse it again to check the result.
  const auto says_it = [&] {
    try {
      const auto now = parse_preference(changed, scope, file);
      if (!wanted) return !now;
      return now && now->device == wanted->device && now->identity == wanted->identity && now->name == wanted->name;
    } catch (const Error&) {  // reported below
      return false;
    }
  };
  if (!possible || !says_it())
    fail<FormatError>(
        {.operation = table == nullptr ? file : place(file, table->source().begin),
         .wrong = "the preference cannot be changed here without losing other text in the file",
         .remedy = "Write [device] on a separate line, and prefer, identity and name below it on one line each"});
  return changed;
}

}  // namespace tessera
