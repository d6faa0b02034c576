// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/os/system.h"

namespace tessera::config {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

[[noreturn]] void refuse(const char* name, const std::string& text, const std::string& expected) {
  fail<ArgumentError>({.operation = "environment",
                       .wrong = fmt::format("{}={}: expected {}", name, text, expected),
                       .remedy = fmt::format("Set {} to a valid value, or unset it", name)});
}

}  // namespace

std::optional<std::string> text(const char* name) {
  auto value = os::environment(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

bool flag(const char* name, bool otherwise) {
  const auto value = text(name);
  if (!value) return otherwise;
  const std::string t = lower(*value);
  if (t == "1" || t == "true" || t == "yes" || t == "on") return true;
  if (t == "0" || t == "false" || t == "no" || t == "off") return false;
  refuse(name, *value, "1 or 0");
}

std::optional<std::int64_t> integer(const char* name, std::int64_t low, std::int64_t high) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc{} || end != value->data() + value->size() || number < low || number > high)
    refuse(name, *value, fmt::format("a whole number from {} to {}", low, high));
  return number;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) return std::nullopt;
  const std::string unit = lower(std::string_view(end, static_cast<std::size_t>(text.data() + text.size() - end)));
  double scale = 1;
  if (!unit.empty() && unit != "b") {
    const auto power = std::string_view("kmgt").find(unit.front());
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return std::nullopt;
    scale = std::exp2(10.0 * static_cast<double>(power + 1));
  }
  const double bytes = number * scale;
  if (bytes >= 0x1p63) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::optional<std::uint64_t> bytes(const char* name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_bytes(*value);
  if (!number) refuse(name, *value, "a byte count such as \"512M\" (suffix K, M, G or T)");
  return number;
}

std::optional<std::size_t> choice(const char* name, std::initializer_list<std::string_view> choices) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto at = std::find(choices.begin(), choices.end(), lower(*value));
  if (at == choices.end()) refuse(name, *value, fmt::format("one of {}", fmt::join(choices, ", ")));
  return static_cast<std::size_t>(at - choices.begin());
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes == 1) return "1 byte";
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double number = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (number < 1024) break;
    number /= 1024;
    unit = next;
  }
  return number == std::floor(number) ? fmt::format("{:.0f} {}", number, unit) : fmt::format("{:.2f} {}", number, unit);
}

}  // namespace tessera::config
