// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/json_pattern.h"

#include "tessera/base/unicode.h"
#include "tessera/llm/grammar/json_text.h"

namespace tessera::grammar {
namespace {

CodePointSet pattern_digits() { return CodePointSet({{'0', '9'}}); }
CodePointSet pattern_word() { return CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
CodePointSet pattern_line_ends() { return CodePointSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }
/// WhiteSpace and LineTerminator of ECMA-262.
CodePointSet pattern_space() {
  return CodePointSet({{'\t', '\r'},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  Expression parse() {
    std::vector<Expression> alternatives;
    do alternatives.push_back(parse_anchored());
    while (take('|'));
    if (at_ < text_.size()) refuse("unexpected character");
    return quoted(choice(std::move(alternatives)));
  }

 private:
  /// Parses an alternative of the whole pattern. Without an anchor, other characters can precede or follow it.
  Expression parse_anchored() {
    std::vector<Expression> parts;
    if (!take('^')) parts.push_back(string_characters());
    parts.push_back(parse_sequence(0));
    if (!take('$')) parts.push_back(string_characters());
    return sequence(std::move(parts));
  }

  Expression parse_sequence(int depth) {
    std::vector<Expression> items;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')' && text_[at_] != '$')
      items.push_back(parse_repetition(parse_atom(depth)));
    if (depth > 0 && at_ < text_.size() && text_[at_] == '$') refuse_anchor();
    return sequence(std::move(items));
  }

  Expression parse_atom(int depth) {
    switch (text_[at_]) {
      case '(': return parse_group(depth);
      case '[': return string_character(parse_class());
      case '.': return ++at_, string_character(pattern_line_ends().complement());
      case '\\': return string_character(take_escape(false));
      case '^': refuse_anchor();
      case '*':
      case '+':
      case '?':
      case '{': refuse("there is nothing to repeat here");
      case ']':
      case '}': refuse("a bracket without its counterpart must be escaped");
      default: {
        const char32_t code = take_character();
        return string_character(CodePointSet({{code, code}}));
      }
    }
  }

  Expression parse_group(int depth) {
    if (depth == deepest_nesting) refuse("groups are nested too deeply");
    const std::size_t begin = at_++;
    if (take('?') && !take(':')) {
      at_ = begin;
      refuse("only groups ( ) and (?: ) are supported: no lookahead, lookbehind or names");
    }
    std::vector<Expression> alternatives;
    do alternatives.push_back(parse_sequence(depth + 1));
    while (take('|'));
    if (!take(')')) {
      at_ = begin;
      refuse("this group has no closing parenthesis");
    }
    return choice(std::move(alternatives));
  }

  Expression parse_repetition(Expression item) {
    std::uint32_t min = 0, max = unlimited;
    if (take('{')) {
      min = max = take_number();
      if (take(',')) max = at_ < text_.size() && text_[at_] == '}' ? unlimited : take_number();
      if (!take('}')) refuse("this repetition has no closing brace");
      if (max < min) refuse("the maximum of the repetition is less than its minimum");
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (!take('*')) {
      return item;
    }
    take('?');  // a lazy repetition matches the same strings
    return repeat(std::move(item), min, max);
  }

  std::uint32_t take_number() {
    const std::size_t begin = at_;
    std::uint32_t n = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      n = n * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
      if (n > most_repetitions) refuse("the number of repetitions is greater than " + std::to_string(most_repetitions));
    }
    if (at_ == begin) refuse("expected a number; a brace that is not a repetition must be escaped");
    return n;
  }

  CodePointSet parse_class() {
    const std::size_t begin = at_++;
    const bool negated = take('^');
    std::vector<CodePointRange> ranges;
    while (at_ < text_.size() && text_[at_] != ']') {
      const CodePointSet first = take_class_item();
      ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
      if (at_ + 1 >= text_.size() || text_[at_] != '-' || text_[at_ + 1] == ']') continue;
      ++at_;
      const CodePointSet last = take_class_item();
      const auto is_single = [](const CodePointSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
      };
      if (!is_single(first) || !is_single(last) || last.ranges()[0].first < first.ranges()[0].first)
        refuse("this range of a class does not consist of two characters in ascending order");
      ranges.push_back({first.ranges()[0].first, last.ranges()[0].first});
    }
    if (!take(']')) {
      at_ = begin;
      refuse("this class has no closing bracket");
    }
    CodePointSet set(std::move(ranges));
    if (negated) set = set.complement();
    if (set.empty()) refuse("the class contains no character");
    return set;
  }

  CodePointSet take_class_item() {
    if (at_ < text_.size() && text_[at_] == '\\') return take_escape(true);
    const char32_t code = take_character();
    return CodePointSet({{code, code}});
  }

  CodePointSet take_escape(bool in_class) {
    const auto single = [](char32_t code) { return CodePointSet({{code, code}}); };
    if (at_ + 1 >= text_.size()) refuse("the escape is not complete");
    const char c = text_[at_ + 1];
    if (c == 'x' || c == 'u') return take_code();
    at_ += 2;
    switch (c) {
      case 'd': return pattern_digits();
      case 'D': return pattern_digits().complement();
      case 'w': return pattern_word();
      case 'W': return pattern_word().complement();
      case 's': return pattern_space();
      case 'S': return pattern_space().complement();
      case 'n': return single('\n');
      case 'r': return single('\r');
      case 't': return single('\t');
      case 'f': return single('\f');
      case 'v': return single('\v');
      default: break;
    }
    if (in_class && c == 'b') return single('\b');
    if (std::string_view("^$\\.*+?()[]{}|/-").find(c) != std::string_view::npos)
      return single(static_cast<char32_t>(c));
    at_ -= 2;
    refuse("this escape is not supported (no \\b, \\B, \\p, \\c, \\0 or references to groups)");
  }

  /// Reads \xFF, \uFFFF or \u{10FFFF}.
  CodePointSet take_code() {
    const std::size_t begin = at_;
    at_ += 2;
    const bool braces = text_[begin + 1] == 'u' && take('{');
    const std::size_t count = braces ? text_.find('}', at_) - at_ : text_[begin + 1] == 'x' ? 2 : 4;
    char32_t code = 0;
    if (count == 0 || count > 6 || at_ + count > text_.size()) at_ = begin, refuse("the escape is not complete");
    for (std::size_t i = 0; i < count; ++i, ++at_) {
      const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(text_[at_] | 0x20));
      const bool is_digit = digit != std::string_view::npos && (digit < 10) == (text_[at_] >= '0' && text_[at_] <= '9');
      if (!is_digit) refuse("expected a hexadecimal digit");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (braces) ++at_;
    const CodePointSet out({{code, code}});
    if (out.empty()) at_ = begin, refuse("the escape is not a Unicode character; write \\u{...} instead of surrogates");
    return out;
  }

  char32_t take_character() {
    const Utf8Unit unit = utf8_unit(text_.substr(at_));
    if (unit.kind != Utf8Unit::Kind::character) refuse("the pattern is not valid UTF-8");
    at_ += unit.size;
    return unit.code;
  }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void refuse_anchor() const {
    refuse("anchors are supported only at the beginning and end of the pattern and of its alternatives");
  }
  [[noreturn]] void refuse(std::string wrong) const { throw PatternError{std::move(wrong), at_}; }

  std::string_view text_;
  std::size_t at_ = 0;
};

// RFC 3339, with the lengths of months and leap years, but without leap seconds.
constexpr std::string_view date =
    "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|"
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view time_of_day =
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view uuid = "[\\da-fA-F]{8}(-[\\da-fA-F]{4}){3}-[\\da-fA-F]{12}";  // RFC 4122
constexpr std::string_view ipv4_byte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";          // RFC 2673

}  // namespace

Expression pattern_expression(std::string_view pattern) { return PatternParser(pattern).parse(); }

std::optional<Expression> format_expression(std::string_view format) {
  std::string pattern;
  if (format == "date") pattern = date;
  if (format == "time") pattern = time_of_day;
  if (format == "date-time") pattern.append(date).append("T").append(time_of_day);
  if (format == "uuid") pattern = uuid;
  if (format == "ipv4") pattern.append("(").append(ipv4_byte).append("\\.){3}").append(ipv4_byte);
  if (pattern.empty()) return std::nullopt;
  return pattern_expression("^" + pattern + "$");
}

}  // namespace tessera::grammar
