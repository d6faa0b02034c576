// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/integer_range.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tessera::grammar {
namespace {

constexpr std::size_t most_suffixes = 4000;
constexpr int most_digits = 18;

std::int64_t power_of_ten(int exponent) {
  std::int64_t n = 1;
  for (int i = 0; i < exponent; ++i) n *= 10;
  return n;
}
Expression digit_range(std::int64_t first, std::int64_t last) {
  return characters(CodePointSet({{static_cast<char32_t>('0' + first), static_cast<char32_t>('0' + last)}}));
}

class IntegerRange {
 public:
  IntegerRange(JsonRules& rules, std::int64_t divisor) : rules_(rules), divisor_(divisor) {}

  /// Non-negative integers from `low` to `high`.
  void add_to(std::vector<Expression>& forms, std::string_view sign, std::int64_t low, std::int64_t high) {
    for (int length = 1; length <= most_digits; ++length) {
      const std::int64_t first = std::max(low, length == 1 ? 0 : power_of_ten(length - 1));
      const std::int64_t last = std::min(high, power_of_ten(length) - 1);
      if (first <= last) forms.push_back(sequence({literal(sign), suffix(length, first, last, 0)}));
    }
  }
  bool too_many() const { return too_many_; }

 private:
  /// Returns the strings of `length` digits with values from `low` to `high` for which the number is a multiple of the
  /// divisor. `rest` is the remainder of the digits before them.
  Expression suffix(int length, std::int64_t low, std::int64_t high, std::int64_t rest) {
    if (length == 0) return rest == 0 ? sequence({}) : choice({});
    if (divisor_ == 1 && low == 0 && high == power_of_ten(length) - 1)
      return repeat(digit_range(0, 9), static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(length));
    const auto [at, added] = known_.try_emplace({length, low, high, rest});
    if (!added) return rule(at->second);
    if (known_.size() > most_suffixes) too_many_ = true;
    const std::uint32_t index = at->second = rules_.add("digits of an integer");
    if (too_many_) return rule(index);
    std::vector<Expression> forms;
    const std::int64_t unit = power_of_ten(length - 1);
    for (std::int64_t digit = low / unit; digit <= high / unit;) {
      const std::int64_t first = std::max(low - digit * unit, std::int64_t{0});
      const std::int64_t last = std::min(high - digit * unit, unit - 1);
      std::int64_t same = digit;  // the digits up to this one have the same suffixes
      if (divisor_ == 1 && first == 0 && last == unit - 1)
        while (same < high / unit && high - (same + 1) * unit >= unit - 1) ++same;
      // The remainder does not overflow, because it is less than the divisor, which has at most 17 digits here.
      forms.push_back(sequence({digit_range(digit, same),
                                suffix(length - 1, first, last, divisor_ == 1 ? 0 : (rest * 10 + digit) % divisor_)}));
      digit = same + 1;
    }
    rules_.rules.rules[index].body = choice(std::move(forms));
    return rule(index);
  }

  JsonRules& rules_;
  std::int64_t divisor_;
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t>, std::uint32_t> known_;
  bool too_many_ = false;
};

}  // namespace

std::optional<Expression> integer_range(JsonRules& rules, std::int64_t low, std::int64_t high, std::int64_t divisor) {
  if (divisor > largest_integer / 10) return std::nullopt;
  IntegerRange range(rules, divisor);
  std::vector<Expression> forms;
  if (low < 0) range.add_to(forms, "-", std::max<std::int64_t>(1, -high), -low);
  if (high >= 0) range.add_to(forms, "", std::max<std::int64_t>(0, low), high);
  if (range.too_many()) return std::nullopt;
  return choice(std::move(forms));
}

}  // namespace tessera::grammar
