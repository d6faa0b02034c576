// SPDX-License-Identifier: Apache-2.0
#include "tessera/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "tessera/base/error.h"
#include "tessera/base/unicode.h"
#include "tessera/jinja/value.h"

namespace tessera::jinja {

void syntax_error(int line, const std::string& what, const std::string& remedy) {
  fail<FormatError>(
      {.operation = "chat template", .with = {{"line", std::to_string(line)}}, .wrong = what, .remedy = remedy});
}

namespace {

std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      i += i + 1 < source.size() && source[i + 1] == '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

/// Returns the number of bytes of white space at the start.
std::size_t spaces(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Unit u = utf8_unit(text.substr(at));
    if (u.kind != Utf8Unit::Kind::character || !is_space(u.code)) break;
    at += u.size;
  }
  return at;
}
std::string_view without_spaces_at_end(std::string_view text) {
  const auto at = character_starts(text);
  std::size_t n = at.size() - 1;
  while (n > 0 && spaces(text.substr(at[n - 1], at[n] - at[n - 1])) > 0) --n;
  return text.substr(0, at[n]);
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)), left_(source_) {}

  std::vector<Token> run() {
    while (!left_.empty()) data();
    add(TokenKind::end, "the end");
    return std::move(out_);
  }

 private:
  void add(TokenKind kind, std::string text) { out_.push_back({kind, std::move(text), line_}); }
  /// Advances by `n` bytes.
  void take(std::size_t n) {
    line_ += static_cast<int>(std::count(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(n), '\n'));
    if (n > 0) begins_line_ = left_[n - 1] == '\n';
    left_.remove_prefix(n);
  }

  /// Reads data up to the next tag, and then the tag. White space that the tag strips is not part of the data.
  void data() {
    std::size_t at = 0;
    while (true) {
      at = left_.find('{', at);
      if (at == left_.npos) {
        add(TokenKind::data, std::string(left_));
        return take(left_.size());
      }
      const char next = at + 1 < left_.size() ? left_[at + 1] : 0;
      if (next == '%' || next == '{' || next == '#') break;
      ++at;
    }
    const char tag = left_[at + 1];
    text_before_tag(at, tag != '{');
    const std::size_t raw = tag == '%' ? raw_tag("raw", false) : 0;
    if (raw) {
      take(raw);
      raw_text();
    } else if (tag == '#') {
      comment();
    } else {
      const int line = line_;
      take(2 + sign_at(2));
      add(tag == '%' ? TokenKind::block_begin : TokenKind::output_begin, tag == '%' ? "{%" : "{{");
      inside(tag == '%', line);
    }
  }

  std::size_t sign_at(std::size_t at) const { return at < left_.size() && (left_[at] == '-' || left_[at] == '+'); }

  /// Adds the next `n` bytes as data. The sign after the opening of the tag, or lstrip_blocks, determines which white
  /// space is stripped.
  void text_before_tag(std::size_t n, bool block) {
    std::string_view text = left_.substr(0, n);
    const char sign = n + 2 < left_.size() ? left_[n + 2] : 0;
    if (sign == '-') {
      text = without_spaces_at_end(text);
    } else if (sign != '+' && block) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line = newline == text.npos ? 0 : newline + 1;
      if ((line > 0 || begins_line_) && spaces(text.substr(line)) == text.size() - line) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::data, std::string(text));
    take(n);
    begins_line_ = false;
  }

  /// Returns the length of `{% raw %}` or `{% endraw %}` at the current position, or 0 if there is no such tag.
  std::size_t raw_tag(std::string_view word, bool trims_newline) const {
    std::size_t at = 2 + sign_at(2);
    at += spaces(left_.substr(at));
    if (left_.substr(at, word.size()) != word) return 0;
    at += word.size();
    at += spaces(left_.substr(at));
    return end_of_tag(at, '%', trims_newline);
  }
  /// If a tag ends at `at`, returns the position after its closing delimiter and the white space that the delimiter
  /// strips. Otherwise returns 0.
  std::size_t end_of_tag(std::size_t at, char c, bool trims_newline) const {
    const std::string close = {c, '}'};
    if (left_.substr(at, 3) == "-" + close) return at + 3 + spaces(left_.substr(at + 3));
    if (left_.substr(at, 3) == "+" + close && trims_newline) return at + 3;
    if (left_.substr(at, 2) != close) return 0;
    return at + 2 + (trims_newline && left_.substr(at + 2, 1) == "\n");
  }

  void raw_text() {
    const int line = line_;
    for (std::size_t at = 0; (at = left_.find("{%", at)) != left_.npos; ++at) {
      const std::string_view whole = left_;
      left_.remove_prefix(at);
      const std::size_t size = raw_tag("endraw", true);
      left_ = whole;
      if (size == 0) continue;
      text_before_tag(at, true);
      return take(size);
    }
    syntax_error(line, "'raw' has no 'endraw'");
  }

  void comment() {
    for (std::size_t at = 2; at < left_.size(); ++at)
      if (const std::size_t end = end_of_tag(at, '#', true)) return take(end);
    syntax_error(line_, "the comment '{#' has no end '#}'");
  }

  /// Reads the tokens of a tag up to its end.
  void inside(bool block, int begun) {
    std::string open;  // open brackets
    while (true) {
      take(spaces(left_));
      if (left_.empty()) syntax_error(begun, block ? "'{%' has no end '%}'" : "'{{' has no end '}}'");
      if (open.empty()) {
        if (const std::size_t end = end_of_tag(0, block ? '%' : '}', block)) {
          add(block ? TokenKind::block_end : TokenKind::output_end, block ? "%}" : "}}");
          return take(end);
        }
      }
      const char c = left_[0];
      if (digit(c)) {
        number();
      } else if (begins_name(c)) {
        std::size_t n = 1;
        while (n < left_.size() && (begins_name(left_[n]) || digit(left_[n]))) ++n;
        add(TokenKind::name, std::string(left_.substr(0, n)));
        take(n);
      } else if (c == '\'' || c == '"') {
        quoted(c);
      } else {
        sign(open);
      }
    }
  }

  void sign(std::string& open) {
    static constexpr std::array<std::string_view, 28> signs = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*",
                                                               "%",  "~",  "[",  "]",  "(",  ")",  "{", "}", ">", "<",
                                                               "=",  ".",  ":",  "|",  ",",  ";",  "",  ""};
    for (const std::string_view s : signs) {
      if (s.empty() || left_.substr(0, s.size()) != s) continue;
      const char c = s[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) syntax_error(line_, "unexpected '" + std::string(s) + "'");
        if (open.back() != c)
          syntax_error(line_, "unexpected '" + std::string(s) + "', expected '" + open.back() + "'");
        open.pop_back();
      }
      add(TokenKind::sign, std::string(s));
      return take(s.size());
    }
    syntax_error(line_, "unexpected character '" + std::string(left_.substr(0, utf8_unit(left_).size)) + "'");
  }

  void number() {
    std::size_t n = 0;
    const auto digits = [&] {
      while (n < left_.size() && (digit(left_[n]) || left_[n] == '_')) ++n;
    };
    digits();
    bool real = false;
    if (n + 1 < left_.size() && left_[n] == '.' && digit(left_[n + 1])) real = true, ++n, digits();
    if (n < left_.size() && (left_[n] == 'e' || left_[n] == 'E')) {
      std::size_t at = n + 1;
      at += at < left_.size() && (left_[at] == '+' || left_[at] == '-');
      if (at < left_.size() && digit(left_[at])) real = true, n = at, digits();
    }
    std::string text(left_.substr(0, n));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    add(real ? TokenKind::real : TokenKind::integer, text);
    const char* end = text.data() + text.size();
    const auto result = real ? std::from_chars(text.data(), end, out_.back().real)
                             : std::from_chars(text.data(), end, out_.back().integer);
    if (result.ec != std::errc() || result.ptr != end) syntax_error(line_, "the number " + text + " is too large");
    take(n);
  }

  void quoted(char quote) {
    const int line = line_;
    std::string text;
    std::size_t at = 1;
    for (;; ++at) {
      if (at >= left_.size()) syntax_error(line, "unterminated string");
      const char c = left_[at];
      if (c == quote) break;
      if (c != '\\' || at + 1 >= left_.size()) {
        text += c;
      } else {
        at += escape(text, at + 1);
      }
    }
    add(TokenKind::text, std::move(text));
    take(at + 1);
  }

  /// Decodes the escape at `at` (after the backslash) and returns its length.
  std::size_t escape(std::string& text, std::size_t at) const {
    static constexpr std::string_view names = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
    const char c = left_[at];
    if (const std::size_t i = names.find(c); i != names.npos) return text += values[i], 1;
    if (c == '\n') return 1;
    const auto number = [&](std::size_t from, std::size_t most, int base) {
      std::size_t n = 0;
      char32_t code = 0;
      while (n < most && from + n < left_.size()) {
        const char d = left_[from + n];
        const int v = digit(d)               ? d - '0'
                      : d >= 'a' && d <= 'f' ? d - 'a' + 10
                      : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                             : 99;
        if (v >= base) break;
        code = code * static_cast<char32_t>(base) + static_cast<char32_t>(v), ++n;
      }
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) syntax_error(line_, "invalid escape: not a character");
      if (base == 8 || n == most) append_utf8(text, code);
      return base == 8 || n == most ? n : 0;
    };
    if (c >= '0' && c <= '7') return number(at, 3, 8);
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
      if (number(at + 1, digits, 16) == 0) syntax_error(line_, "invalid escape: too few digits");
      return digits + 1;
    }
    if (c == 'N') syntax_error(line_, "escapes by character name (\\N) are not supported");
    text += '\\', text += c;
    return 1;
  }

  const std::string source_;
  std::string_view left_;
  int line_ = 1;
  bool begins_line_ = true;
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace tessera::jinja
