// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/os/input_file.h"
#include "tessera/llm/gguf_types.h"

namespace tessera::hub {
namespace {

using nlohmann::json;

[[noreturn]] void bad_file(const std::string& path, std::string wrong) {
  fail<FormatError>({.operation = "load model", .with = {{"file", path}}, .wrong = std::move(wrong)});
}

/// Returns the deepest nesting of arrays and objects. Text in quotes is skipped.
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '{' || c == '['))
      deepest = std::max(deepest, ++depth);
    else if (!quoted && (c == '}' || c == ']'))
      --depth;
  }
  return deepest;
}

}  // namespace

std::string read_text_file(const std::string& path, std::uint64_t most) {
  const InputFile file(path);
  if (file.size() > most) bad_file(path, fmt::format("the file has {} bytes; the limit is {}", file.size(), most));
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

JsonObject JsonObject::read(const std::string& path, std::uint64_t most) {
  return parse(read_text_file(path, most), path);
}

JsonObject JsonObject::read_if_exists(const std::string& path, std::uint64_t most) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? read(path, most) : parse("{}", path);
}

JsonObject JsonObject::parse(std::string_view text, std::string path) {
  if (depth_of(text) > max_json_depth)
    bad_file(path, fmt::format("the JSON is nested more than {} levels deep", max_json_depth));
  auto document = std::make_shared<Document>();
  document->file = std::move(path);
  try {
    document->root = json::parse(text);
  } catch (const json::parse_error& e) {
    bad_file(document->file,
             fmt::format("this is not JSON: syntax error at byte {} of {}", e.byte == 0 ? 0 : e.byte - 1, text.size()));
  } catch (const json::exception&) {
    bad_file(document->file, "this is not JSON: a number is out of range");
  }
  if (!document->root.is_object()) bad_file(document->file, "expected a JSON object");
  JsonObject out;
  out.value_ = &document->root;
  out.document_ = std::move(document);
  return out;
}

const json* JsonObject::find(std::string_view key) const {
  const auto it = value_->find(key);
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

void JsonObject::bad(std::string_view key, std::string wrong, std::string remedy) const {
  fail<FormatError>({.operation = "load model",
                     .with = {{"file", file()}, {"key", prefix_ + std::string(key)}},
                     .wrong = std::move(wrong),
                     .remedy = std::move(remedy)});
}

void JsonObject::bad_type(std::string_view key, const json& value, std::string_view expected) const {
  bad(key, fmt::format("the value is of type {}; expected {}", value.type_name(), expected));
}

const json& JsonObject::get(std::string_view key) const {
  const json* const found = find(key);
  if (found == nullptr) bad(key, "the key is missing", "The model cannot be loaded without it");
  return *found;
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const json& v = get(key);
  if (!v.is_number_integer()) bad_type(key, v, "an integer");
  const bool large = v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (large || v.get<std::int64_t>() < low || v.get<std::int64_t>() > high)
    bad(key, fmt::format("{} is not between {} and {}", v.dump(), low, high));
  return v.get<std::int64_t>();
}
std::int64_t JsonObject::integer_or(std::string_view key, std::int64_t otherwise, std::int64_t low,
                                    std::int64_t high) const {
  return has(key) ? integer(key, low, high) : otherwise;
}

double JsonObject::number(std::string_view key) const {
  const json& v = get(key);
  if (!v.is_number()) bad_type(key, v, "a number");
  if (!(std::fabs(v.get<double>()) < 3e38)) bad(key, fmt::format("{} is out of range", v.dump()));
  return v.get<double>();
}
double JsonObject::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool JsonObject::flag_or(std::string_view key, bool otherwise) const {
  const json* const v = find(key);
  if (v && !v->is_boolean()) bad_type(key, *v, "true or false");
  return v ? v->get<bool>() : otherwise;
}

std::string JsonObject::text(std::string_view key) const {
  const json& v = get(key);
  if (!v.is_string()) bad_type(key, v, "a string");
  return v.get<std::string>();
}
std::string JsonObject::text_or(std::string_view key, std::string otherwise) const {
  return has(key) ? text(key) : std::move(otherwise);
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  return within(get(key), key);
}

const json& JsonObject::array(std::string_view key) const {
  const json& v = get(key);
  if (!v.is_array()) bad_type(key, v, "an array");
  return v;
}

JsonObject JsonObject::within(const json& value, std::string_view key) const {
  if (!value.is_object()) bad_type(key, value, "an object");
  JsonObject out = *this;
  out.value_ = &value;
  out.prefix_ += std::string(key) + ".";
  return out;
}

}  // namespace tessera::hub
