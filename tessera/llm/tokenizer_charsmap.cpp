// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tokenizer_charsmap.h"

#include <fmt/format.h>

#include "tessera/llm/tokenizer_errors.h"

namespace tessera {
namespace {

// The fields of a unit.
constexpr std::uint32_t has_value_bit = 1u << 8, value_mask = 0x7fffffff, label_mask = 0x800000ff;
std::size_t offset_of(std::uint32_t unit) {
  return static_cast<std::size_t>(unit >> 10) << ((unit & 1u << 9) != 0 ? 8 : 0);
}

}  // namespace

CharsMap::CharsMap(const GgufFile& file, std::string_view key) {
  std::string bytes;
  for (const std::int32_t b : file.get_array<std::int32_t>(key)) bytes += static_cast<char>(b);
  const auto number = [&](std::size_t at) {
    std::uint32_t n = 0;
    for (std::size_t i = 0; i < 4; ++i)
      n |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    return n;
  };
  constexpr std::size_t header = sizeof(std::uint32_t);
  const std::size_t size = bytes.size() < header ? 0 : number(0);
  if (size < header || size % header != 0 || size > bytes.size() - header)
    throw_tokenizer_error(file, key,
                          fmt::format("a table of {} bytes is not inside these {} bytes", size, bytes.size()));
  for (std::size_t at = header; at < header + size; at += header) units_.push_back(number(at));
  replacements_ = bytes.substr(header + size);
  if (const std::string error = find_error(); !error.empty()) throw_tokenizer_error(file, key, error);
}

std::uint32_t CharsMap::child(std::size_t node, std::uint8_t byte) const {
  const std::size_t at = node ^ byte;
  return byte != 0 && at < units_.size() && (units_[at] & label_mask) == byte ? units_[at] : 0;
}

std::string CharsMap::find_error() const {
  if (!replacements_.empty() && replacements_.back() != '\0') return "the last replacement does not end with a zero";
  std::vector<bool> seen(units_.size());
  std::vector<std::size_t> waiting = {offset_of(units_[0])};
  while (!waiting.empty()) {
    const std::size_t node = waiting.back();
    waiting.pop_back();
    for (int c = 1; c < 256; ++c) {
      const std::uint32_t unit = child(node, static_cast<std::uint8_t>(c));
      if (unit == 0) continue;
      const std::size_t below = node ^ static_cast<std::size_t>(c) ^ offset_of(unit);
      if (below >= units_.size() ||
          ((unit & has_value_bit) != 0 && (units_[below] & value_mask) >= replacements_.size()))
        return fmt::format("unit {} of {} or its replacement is not inside the table", below, units_.size());
      if (seen[below]) continue;
      seen[below] = true;
      waiting.push_back(below);
    }
  }
  return {};
}

std::pair<std::size_t, std::string_view> CharsMap::longest_match(std::string_view text) const {
  std::pair<std::size_t, std::string_view> best{0, {}};
  if (units_.empty()) return best;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const std::uint32_t unit = child(node, byte);
    if (unit == 0) break;
    node ^= byte ^ offset_of(unit);
    if ((unit & has_value_bit) != 0) best = {i + 1, replacements_.c_str() + (units_[node] & value_mask)};
  }
  return best;
}

}  // namespace tessera
