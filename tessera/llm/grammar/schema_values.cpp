// SPDX-License-Identifier: Apache-2.0
// Strings and numbers of a JSON schema.
#include <algorithm>
#include <cmath>

#include "tessera/llm/grammar/integer_range.h"
#include "tessera/llm/grammar/json_pattern.h"
#include "tessera/llm/grammar/schema_compiler.h"

namespace tessera::grammar {

std::uint32_t SchemaCompiler::count_of(const SchemaJson& schema, const char* keyword, std::uint32_t missing,
                                       const std::string& at) const {
  if (!schema.contains(keyword)) return missing;
  const auto count = schema[keyword].get<double>();
  if (!(count >= 0) || count != std::floor(count))
    document_.refuse(pointer_to(at, keyword), std::string("\"") + keyword + "\" must be an integer of 0 or more");
  if (count > most_repetitions)
    document_.refuse(pointer_to(at, keyword), std::string("\"") + keyword + "\" is too large",
                     "The maximum is " + std::to_string(most_repetitions));
  return static_cast<std::uint32_t>(count);
}

std::pair<std::uint32_t, std::uint32_t> SchemaCompiler::counts_of(const SchemaJson& schema, const char* min,
                                                                  const char* max, const std::string& at) const {
  const std::uint32_t low = count_of(schema, min, 0, at), high = count_of(schema, max, unlimited, at);
  if (low > high) document_.refuse(at, std::string("\"") + min + "\" is greater than \"" + max + "\"");
  return {low, high};
}

Expression SchemaCompiler::compile_string(const SchemaJson& schema, const std::string& at) {
  const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
  const bool has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
  if (has_length + has_pattern + has_format > 1)
    document_.refuse(at, "pattern, format and the length of a string cannot be combined",
                     "Express the length in the pattern, such as ^[a-z]{2,5}$");
  if (has_pattern) return compile_pattern(schema, at);
  if (has_format) {
    const auto& format = schema["format"].get_ref<const std::string&>();
    if (std::optional<Expression> e = format_expression(format)) return std::move(*e);
    document_.refuse(pointer_to(at, "format"), "the format \"" + format + "\" is not supported",
                     "Use date, time, date-time, uuid, ipv4 or a pattern");
  }
  if (!has_length) return json_.string();
  const auto [min, max] = counts_of(schema, "minLength", "maxLength", at);
  return quoted(string_characters(min, max));
}

Expression SchemaCompiler::compile_pattern(const SchemaJson& schema, const std::string& at) {
  try {
    return pattern_expression(schema["pattern"].get_ref<const std::string&>());
  } catch (const PatternError& e) {
    document_.refuse(pointer_to(at, "pattern"),
                     "the pattern is not supported: at byte " + std::to_string(e.at) + ", " + e.wrong);
  }
}

Expression SchemaCompiler::compile_integer(const SchemaJson& schema, const std::string& at) {
  // Bounds are integers below 2^63, or exact as doubles; a long double has at least the precision of both.
  const auto bound = [&](const char* keyword) -> std::optional<long double> {
    if (!schema.contains(keyword)) return std::nullopt;
    const SchemaJson& v = schema[keyword];
    if (v.is_number_unsigned()) return static_cast<long double>(v.get<std::uint64_t>());
    return v.is_number_integer() ? static_cast<long double>(v.get<std::int64_t>())
                                 : static_cast<long double>(v.get<double>());
  };
  constexpr auto limit = static_cast<long double>(largest_integer);
  long double low = -limit, high = limit;
  bool restricted = false;
  const auto raise = [&](long double to) { low = std::max(low, to), restricted = true; };
  const auto lower = [&](long double to) { high = std::min(high, to), restricted = true; };
  if (const auto v = bound("minimum")) raise(std::ceil(*v));
  if (const auto v = bound("exclusiveMinimum")) raise(std::floor(*v) + 1);
  if (const auto v = bound("maximum")) lower(std::floor(*v));
  if (const auto v = bound("exclusiveMaximum")) lower(std::ceil(*v) - 1);
  const long double divisor = bound("multipleOf").value_or(1);
  if (!restricted && divisor == 1) return json_.integer();
  if (!(divisor >= 1) || divisor != std::floor(divisor) || divisor > limit)
    document_.refuse(pointer_to(at, "multipleOf"), "\"multipleOf\" of integers must be an integer of at least 1");
  if (low > high) document_.refuse(at, "no integer satisfies the bounds", "Integers have at most 18 digits");
  auto range = integer_range(json_, static_cast<std::int64_t>(low), static_cast<std::int64_t>(high),
                             static_cast<std::int64_t>(divisor));
  if (!range)
    document_.refuse(pointer_to(at, "multipleOf"), "the divisor is too large for these bounds",
                     "Use a divisor of at most 100, or narrow bounds");
  return std::move(*range);
}

Expression SchemaCompiler::compile_number(const SchemaJson& schema, const std::string& at) {
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
    if (schema.contains(keyword))
      document_.refuse(pointer_to(at, keyword), std::string("\"") + keyword + "\" is supported only for integers",
                       "Use \"type\": \"integer\", or remove it");
  return json_.number();
}

}  // namespace tessera::grammar
