// SPDX-License-Identifier: Apache-2.0
// Integers between two bounds, and multiples of a number, as expressions over decimal digits.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/llm/grammar/json_text.h"

namespace tessera::grammar {

inline constexpr std::int64_t largest_integer = 999'999'999'999'999'999;  ///< with 18 digits

/// Returns the integers from `low` to `high` that are multiples of `divisor`, without leading zeros and without -0.
/// The absolute values of the bounds are at most `largest_integer`, and `divisor` is at least 1. Returns std::nullopt
/// if this requires too many rules, which depends mostly on the divisor.
std::optional<Expression> integer_range(JsonRules& rules, std::int64_t low, std::int64_t high, std::int64_t divisor);

}  // namespace tessera::grammar
