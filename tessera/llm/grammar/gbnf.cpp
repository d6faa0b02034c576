// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/gbnf.h"

#include <optional>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/unicode.h"
#include "tessera/llm/grammar/text_position.h"

namespace tessera::grammar {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Rules parse() {
    if (text_.size() > longest_gbnf)
      fail<FormatError>({.operation = "grammar",
                         .with = {{"file", std::string(name_)},
                                  {"bytes", std::to_string(text_.size())},
                                  {"maximum", std::to_string(longest_gbnf)}},
                         .wrong = "the grammar is too long"});
    for (skip_space(true); at_ < text_.size(); skip_space(true)) parse_rule();
    for (std::size_t i = 0; i < first_use_.size(); ++i)
      if (!defined_[i]) refuse("the rule \"" + out_.rules[i].name + "\" is not defined", first_use_[i]);
    const auto root = indices_.find("root");
    if (root == indices_.end()) refuse("the rule \"root\" is missing", text_.size());
    out_.root = root->second;
    return std::move(out_);
  }

 private:
  void parse_rule() {
    const std::size_t begin = at_;
    const std::string_view name = take_name();
    if (name.empty()) refuse("expected the name of a rule", begin);
    const std::uint32_t index = index_of(name, begin);
    if (defined_[index]) refuse("the rule \"" + std::string(name) + "\" is defined twice", begin);
    defined_[index] = true;
    skip_space(false);
    if (text_.substr(at_, 3) != "::=") refuse("expected ::= after the name of a rule", at_);
    at_ += 3;
    skip_space(true);
    out_.rules[index].body = parse_choice(0);
    skip_space(false);
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r')
      refuse("unexpected character", at_,
             "Expected a literal, a class, a group, a rule, a repetition, |, or a new line");
  }

  Expression parse_choice(int depth) {
    std::vector<Expression> children;
    children.push_back(parse_sequence(depth));
    while (at_ < text_.size() && text_[at_] == '|') {
      ++at_;
      skip_space(true);
      children.push_back(parse_sequence(depth));
    }
    return choice(std::move(children));
  }

  Expression parse_sequence(int depth) {
    std::vector<Expression> children;
    while (std::optional<Expression> item = parse_item(depth)) {
      skip_space(depth > 0);
      while (parse_repetition(*item)) skip_space(depth > 0);
      children.push_back(std::move(*item));
    }
    return sequence(std::move(children));
  }

  std::optional<Expression> parse_item(int depth) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '"') return parse_literal();
    if (c == '[') return parse_class();
    if (c == '.') return ++at_, characters(CodePointSet::all());
    if (c == '(') return parse_group(depth);
    if (c == '<' || c == '!')
      refuse("tokens in angle brackets are not supported", at_, "Write their text as a literal");
    const std::size_t begin = at_;
    const std::string_view name = take_name();
    if (name.empty()) return std::nullopt;
    return rule(index_of(name, begin));
  }

  Expression parse_group(int depth) {
    const std::size_t begin = at_++;
    if (depth == deepest_nesting)
      refuse("groups are nested more than " + std::to_string(deepest_nesting) + " levels deep", begin);
    skip_space(true);
    Expression inner = parse_choice(depth + 1);
    if (at_ == text_.size() || text_[at_] != ')') refuse("this group has no closing parenthesis", begin);
    ++at_;
    return inner;
  }

  Expression parse_literal() {
    const std::size_t begin = at_++;
    std::string bytes;
    while (at_ < text_.size() && text_[at_] != '"') append_utf8(bytes, take_char(begin));
    if (at_ == text_.size()) refuse("this literal has no closing quotation mark", begin);
    ++at_;
    return literal(bytes);
  }

  Expression parse_class() {
    const std::size_t begin = at_++;
    const bool negated = at_ < text_.size() && text_[at_] == '^';
    if (negated) ++at_;
    std::vector<CodePointRange> ranges;
    while (at_ < text_.size() && text_[at_] != ']') {
      const std::size_t first_at = at_;
      const char32_t first = take_char(begin);
      char32_t last = first;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        last = take_char(begin);
        if (last < first) refuse("the range ends before it begins", first_at);
      }
      ranges.push_back({first, last});
    }
    if (at_ == text_.size()) refuse("this class has no closing bracket", begin);
    ++at_;
    CodePointSet set(std::move(ranges));
    if (negated) set = set.complement();
    if (set.empty()) refuse("the class contains no character", begin);
    return characters(std::move(set));
  }

  /// Applies the repetition at the current position, if there is one.
  bool parse_repetition(Expression& item) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    std::uint32_t min = c == '+' ? 1 : 0, max = c == '?' ? 1 : unlimited;
    const std::size_t begin = at_;
    if (c == '{')
      take_bounds(min, max);
    else if (c == '*' || c == '+' || c == '?')
      ++at_;
    else
      return false;
    if (++repetitions_ > most_repetitions) refuse("too many repetitions", begin);
    if (item.kind == Expression::Kind::repeat && ++nested_repetitions_ > deepest_nesting)
      refuse("repetitions are nested more than " + std::to_string(deepest_nesting) + " levels deep", begin);
    item = repeat(std::move(item), min, max);
    return true;
  }

  void take_bounds(std::uint32_t& min, std::uint32_t& max) {
    const std::size_t begin = at_++;
    skip_space(false);
    min = max = take_number();
    skip_space(false);
    if (at_ < text_.size() && text_[at_] == ',') {
      ++at_;
      skip_space(false);
      max = at_ < text_.size() && text_[at_] == '}' ? unlimited : take_number();
      skip_space(false);
    }
    if (at_ == text_.size() || text_[at_] != '}') refuse("this repetition has no closing brace", begin);
    ++at_;
    if (max < min) refuse("the maximum of the repetition is less than its minimum", begin);
  }

  std::uint32_t take_number() {
    const std::size_t begin = at_;
    std::uint32_t n = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      n = n * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
      if (n > most_repetitions)
        refuse("the number of repetitions is greater than " + std::to_string(most_repetitions), begin);
    }
    if (at_ == begin) refuse("expected a number of repetitions, such as {2} or {2,5}", begin);
    return n;
  }

  /// Reads one character of a literal or class that began at `begin`.
  char32_t take_char(std::size_t begin) {
    if (text_[at_] == '\\') return take_escape(begin);
    const Utf8Unit unit = utf8_unit(text_.substr(at_));
    if (unit.kind != Utf8Unit::Kind::character) refuse("the text is not valid UTF-8", at_);
    at_ += unit.size;
    return unit.code;
  }

  char32_t take_escape(std::size_t begin) {
    const std::size_t escape = at_++;
    if (at_ == text_.size()) refuse("this literal or class is not closed", begin);
    switch (const char c = text_[at_++]) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '^':
      case '-': return static_cast<unsigned char>(c);
      case 'x': return take_hex(2, escape);
      case 'u': return take_hex(4, escape);
      case 'U': return take_hex(8, escape);
      default:
        refuse("unknown escape", escape, "Use one of \\n \\r \\t \\\\ \\\" \\[ \\] \\^ \\- \\xFF \\uFFFF \\UFFFFFFFF");
    }
  }

  char32_t take_hex(int digits, std::size_t escape) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = at_ < text_.size() ? hex_digit(text_[at_]) : -1;
      if (digit < 0) refuse("the escape needs " + std::to_string(digits) + " hexadecimal digits", escape);
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > last_code_point || (code >= 0xD800 && code <= 0xDFFF))
      refuse("the escape is not a Unicode character", escape, "Surrogates have no UTF-8 form. Use \\U and 8 digits");
    return code;
  }

  std::string_view take_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  std::uint32_t index_of(std::string_view name, std::size_t use) {
    const auto [at, added] = indices_.try_emplace(std::string(name), static_cast<std::uint32_t>(out_.rules.size()));
    if (added) {
      out_.rules.push_back({std::string(name), {}});
      defined_.push_back(false);
      first_use_.push_back(use);
    }
    return at->second;
  }

  /// Skips white space and comments, and also line breaks if `lines` is true.
  void skip_space(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#')
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n' && text_[at_ + 1] != '\r') ++at_;
      else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
        return;
    }
  }

  [[noreturn]] void refuse(std::string wrong, std::size_t at, std::string remedy = {}) const {
    fail<FormatError>({.operation = "grammar",
                       .with = {{"position", position_name(name_, text_, at)}},
                       .wrong = std::move(wrong),
                       .remedy = std::move(remedy)});
  }

  std::string_view text_, name_;
  std::size_t at_ = 0;
  Rules out_;
  std::unordered_map<std::string, std::uint32_t> indices_;
  std::vector<bool> defined_;
  std::vector<std::size_t> first_use_;  ///< position of the first definition or use of each rule
  std::size_t repetitions_ = 0;
  int nested_repetitions_ = 0;
};

}  // namespace

Rules parse_gbnf(std::string_view text, std::string_view name) { return GbnfParser(text, name).parse(); }

}  // namespace tessera::grammar
