// SPDX-License-Identifier: Apache-2.0
// Formats values like Python, and splits texts into characters.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <locale>

#include "tessera/base/unicode.h"
#include "tessera/jinja/value.h"

namespace tessera::jinja {
namespace {

/// Returns a locale with the case mappings of Unicode. If the system has none, only ASCII is mapped.
const std::ctype<wchar_t>& cases() {
  static const std::locale locale = [] {
    try {
      return std::locale("C.UTF-8");
    } catch (const std::runtime_error&) {
      return std::locale::classic();
    }
  }();
  return std::use_facet<std::ctype<wchar_t>>(locale);
}

template <class F>
std::string for_each_character(std::string_view text, F f) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit u = utf8_unit(text.substr(at));
    if (u.kind == Utf8Unit::Kind::character) {
      f(out, u.code);
    } else {
      out += text.substr(at, u.size);
    }
    at += u.size;
  }
  return out;
}

void append_hex(std::string& out, const char* head, unsigned value, int digits) {
  out += head;
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[(value >> (4 * i)) & 15];
}

/// Like Python's str.isprintable for control characters and separators.
bool printable(char32_t c) {
  return !(c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || (c >= 0x2000 && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f) || c == 0x3000 || c == 0xfeff || c == 0x1680 ||
           (c >= 0xe000 && c <= 0xf8ff) || (c >= 0xfff0 && c <= 0xfffb) || c >= 0xe0000);
}

void repr_text(std::string& out, std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  out += for_each_character(text, [quote](std::string& to, char32_t c) {
    if (c == '\n') {
      to += "\\n";
    } else if (c == '\r') {
      to += "\\r";
    } else if (c == '\t') {
      to += "\\t";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      to += '\\', to += static_cast<char>(c);
    } else if (!printable(c)) {
      c < 0x100 ? append_hex(to, "\\x", c, 2) : c < 0x10000 ? append_hex(to, "\\u", c, 4) : append_hex(to, "\\U", c, 8);
    } else {
      append_utf8(to, c);
    }
  });
  out += quote;
}

/// Appends the text of the value to `out`. Returns true if any of it is data.
bool write(std::string& out, const Value& v, bool as_repr) {
  if (v.is_undefined()) {
    if (as_repr) out += "Undefined";
  } else if (v.is_none()) {
    out += "None";
  } else if (v.is_bool()) {
    out += v.integer() ? "True" : "False";
  } else if (v.is_integer()) {
    out += std::to_string(v.integer());
  } else if (v.is_real()) {
    out += real_repr(v.real());
  } else if (const Text* t = v.text()) {
    as_repr ? repr_text(out, t->bytes) : void(out += t->bytes);
    return t->any_given();
  } else if (const List* l = v.items()) {
    bool given = false;
    out += l->tuple ? '(' : '[';
    for (std::size_t i = 0; i < l->items.size(); ++i) {
      if (i) out += ", ";
      given |= write(out, l->items[i], true);
    }
    if (l->tuple && l->items.size() == 1) out += ',';
    out += l->tuple ? ')' : ']';
    return given;
  } else if (const Dict* d = v.dict()) {
    bool given = false, first = true;
    out += '{';
    for (const auto& [key, value] : d->entries()) {
      if (!std::exchange(first, false)) out += ", ";
      given |= write(out, key, true);
      out += ": ";
      given |= write(out, value, true);
    }
    out += '}';
    return given;
  } else {
    out += "<" + v.type() + ">";
  }
  return false;
}

void json_text(std::string& out, std::string_view text) {
  out += '"';
  out += for_each_character(text, [](std::string& to, char32_t c) {
    switch (c) {
      case '"': to += "\\\""; break;
      case '\\': to += "\\\\"; break;
      case '\n': to += "\\n"; break;
      case '\r': to += "\\r"; break;
      case '\t': to += "\\t"; break;
      case '\b': to += "\\b"; break;
      case '\f': to += "\\f"; break;
      default: c < 0x20 ? append_hex(to, "\\u", c, 4) : append_utf8(to, c);
    }
  });
  out += '"';
}

struct JsonForm {
  int indent;
  bool sort_keys;
  std::string item_separator, key_separator;
};

std::string json_real(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return real_repr(d);
}

std::string json_key(const Value& key) {
  if (const Text* t = key.text()) return t->bytes;
  if (key.is_none()) return "null";
  if (key.is_bool()) return key.integer() ? "true" : "false";
  if (key.is_integer()) return std::to_string(key.integer());
  if (key.is_real()) return json_real(key.real());
  fault("keys of JSON objects must be strings or numbers, not '" + key.type() + "'");
}

bool write_json(std::string& out, const Value& v, const JsonForm& form, int level) {
  const auto line = [&](int at) {
    if (form.indent >= 0) out += '\n', out.append(static_cast<std::size_t>(form.indent) * std::size_t(at), ' ');
  };
  bool given = false;
  if (v.is_none()) {
    out += "null";
  } else if (v.is_bool()) {
    out += v.integer() ? "true" : "false";
  } else if (v.is_integer()) {
    out += std::to_string(v.integer());
  } else if (v.is_real()) {
    out += json_real(v.real());
  } else if (const Text* t = v.text()) {
    json_text(out, t->bytes);
    return t->any_given();
  } else if (const List* l = v.items()) {
    if (l->items.empty()) return out += "[]", false;
    out += '[';
    for (std::size_t i = 0; i < l->items.size(); ++i) {
      if (i) out += form.item_separator;
      line(level + 1);
      given |= write_json(out, l->items[i], form, level + 1);
    }
    line(level);
    out += ']';
  } else if (const Dict* d = v.dict()) {
    if (d->entries().empty()) return out += "{}", false;
    auto entries = d->entries();
    if (form.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
    out += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i) out += form.item_separator;
      line(level + 1);
      json_text(out, json_key(entries[i].first));
      given |= entries[i].first.text() && entries[i].first.text()->any_given();
      out += form.key_separator;
      given |= write_json(out, entries[i].second, form, level + 1);
    }
    line(level);
    out += '}';
  } else {
    fault("'" + v.type() + "' cannot be written as JSON");
  }
  return given;
}

}  // namespace

std::string real_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char digits[40];
  // Python uses an exponent, of at least two digits, for values of at least 1e16 and below 1e-4. Other values have at
  // least one digit after the decimal point.
  const bool scientific = d != 0 && (std::abs(d) >= 1e16 || std::abs(d) < 1e-4);
  const auto end =
      std::to_chars(digits, digits + 40, d, scientific ? std::chars_format::scientific : std::chars_format::fixed).ptr;
  std::string out(digits, end);
  if (!scientific && out.find('.') == out.npos) out += ".0";
  return out;
}

Text escaped(const Text& t) {
  std::string out;
  for (const char c : t.bytes) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  Text made = t.made(std::move(out));
  made.markup = true;
  return made;
}

Text to_text(const Value& v) {
  if (const Text* t = v.text()) return *t;
  std::string out;
  const bool given = write(out, v, false);
  return given ? Text::data(std::move(out)) : Text(std::move(out));
}
Text to_repr(const Value& v) {
  std::string out;
  const bool given = write(out, v, true);
  return given ? Text::data(std::move(out)) : Text(std::move(out));
}
Text to_json(const Value& v, int indent, bool sort_keys, const std::string& item_separator,
             const std::string& key_separator) {
  std::string out;
  const bool given = write_json(out, v, {indent, sort_keys, item_separator, key_separator}, 0);
  return given ? Text::data(std::move(out)) : Text(std::move(out));
}

std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> out;
  out.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size(); at += utf8_unit(text.substr(at)).size) out.push_back(at);
  out.push_back(text.size());
  return out;
}
std::size_t count_characters(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size(); at += utf8_unit(text.substr(at)).size) ++n;
  return n;
}

std::string to_upper(std::string_view text) {
  return for_each_character(text, [](std::string& out, char32_t c) {
    if (c == 0xdf) {
      out += "SS";
    } else {
      append_utf8(out, static_cast<char32_t>(cases().toupper(static_cast<wchar_t>(c))));
    }
  });
}
std::string to_lower(std::string_view text) {
  return for_each_character(text, [](std::string& out, char32_t c) {
    append_utf8(out, static_cast<char32_t>(cases().tolower(static_cast<wchar_t>(c))));
  });
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

}  // namespace tessera::jinja
