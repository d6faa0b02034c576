// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/preferences_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr const char* example = "It should be, for example: [device], and below it: prefer = \"cuda:0\"";

std::string place(const std::string& file, const toml::source_position& at) {
  return fmt::format("{}:{}:{}", file, at.line, at.column);
}

[[noreturn]] void refuse(const std::string& file, const toml::source_position& at, const std::string& wrong,
                         const std::string& todo = example) {
  fail<FormatError>({.asked = place(file, at), .wrong = wrong, .todo = todo});
}

toml::table parse(const std::string& text, const std::string& file) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    refuse(file, e.source().begin, std::string(e.description()));
  }
}

/// The one table that there may be, its keys and their types checked.
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
             "[device] has prefer, identity and name");
    if (!node.is_string())
      refuse(file, node.source().begin, fmt::format("\"device.{}\" is not a text in quotes", key.str()));
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

/// Where the `column`-th character (from 1) of a line of UTF-8 begins.
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
    refuse(file, table->begin()->first.source().begin, "[device] does not say which device to prefer",
           "Add prefer = \"cuda:0\" with the device's name, or take these lines out");
  const toml::source_position at = prefer->source().begin;
  Preference p{.scope = scope, .file = file, .line = at.line, .column = at.column};
  try {
    p.device = parse_device(text_of(*table, "prefer"));
  } catch (const DeviceError& e) {
    fail<DeviceError>({.asked = place(file, at), .wrong = e.what()});
  }
  p.identity = text_of(*table, "identity");
  p.name = text_of(*table, "name");
  return p;
}

std::string change_preference(const std::string& text, const std::optional<Preference>& wanted, PreferenceScope scope,
                              const std::string& file) {
  parse_preference(text, scope, file);  // what is wrong with the file is said before anything is changed
  const toml::table root = parse(text, file);
  const toml::table* table = device_table(root, file);
  const std::array<std::pair<const char*, std::string>, 3> values = {
      {{"prefer", wanted ? to_string(wanted->device) : ""},
       {"identity", wanted ? wanted->identity : ""},
       {"name", wanted ? wanted->name : ""}}};
  std::vector<std::string> lines = lines_of(text);
  std::vector<std::size_t> gone;
  std::string added;
  std::size_t after = 0;  // the line behind which keys are added, from 1; 0: the table has none yet
  if (table != nullptr) after = table->source().begin.line;
  for (const auto& [key, value] : values) {
    const toml::node* node = table == nullptr ? nullptr : table->get(key);
    if (node == nullptr) {
      if (!value.empty()) added += fmt::format("{} = {}\n", key, quoted(value));
      continue;
    }
    const toml::source_region& at = node->source();
    if (at.begin.line != at.end.line || at.begin.line > lines.size()) continue;  // noticed below
    std::string& line = lines[at.begin.line - 1];
    if (value.empty()) {
      gone.push_back(at.begin.line - 1);
    } else {
      const std::size_t begin = byte_of(line, at.begin.column), end = byte_of(line, at.end.column);
      line = line.substr(0, begin) + quoted(value) + line.substr(end);
    }
    after = std::max<std::size_t>(after, at.begin.line);
  }
  if (!lines.empty() && lines.back().back() != '\n') lines.back() += '\n';
  if (!added.empty()) {
    if (after == 0)
      lines.push_back((lines.empty() ? "" : "\n") + std::string("[device]\n") + added);
    else
      lines[std::min(after, lines.size()) - 1] += added;
  }
  std::sort(gone.rbegin(), gone.rend());
  for (const std::size_t line : gone) lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(line));
  const std::string changed = fmt::format("{}", fmt::join(lines, ""));

  // The text was changed by line and column: whether the result says what was wanted is read back.
  bool right = false;
  try {
    const auto now = parse_preference(changed, scope, file);
    right = wanted
                ? now && now->device == wanted->device && now->identity == wanted->identity && now->name == wanted->name
                : !now;
  } catch (const Error&) {  // told below
  }
  if (!right)
    fail<FormatError>({.asked = table == nullptr ? file : place(file, table->source().begin),
                       .wrong = "the preference cannot be changed here without losing something else",
                       .todo = "Write [device] on a line, and prefer, identity and name each on a line below it"});
  return changed;
}

}  // namespace tessera
