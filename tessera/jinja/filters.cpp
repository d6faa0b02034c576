// SPDX-License-Identifier: Apache-2.0
// Filters for texts and numbers, and the lookup of all filters.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>

#include "tessera/jinja/filter_bodies.h"

namespace tessera::jinja {

const Text& text_of(const Value& v, std::string_view who) {
  if (const Undefined* u = v.missing()) fault(u->what ? *u->what : "a value is undefined");
  if (!v.text()) fault(std::string(who) + " needs a string, not '" + v.type() + "'");
  return *v.text();
}

Text trimmed(const Text& t, const Value& characters, bool left, bool right) {
  const auto at = character_starts(t.bytes);
  const Text* chosen = characters.text();
  const auto goes = [&](std::size_t i) {
    const std::string_view c = std::string_view(t.bytes).substr(at[i], at[i + 1] - at[i]);
    if (chosen) return chosen->bytes.find(c) != std::string::npos;
    const Utf8Unit u = utf8_unit(c);
    return u.kind == Utf8Unit::Kind::character && is_space(u.code);
  };
  std::size_t begin = 0, end = at.size() - 1;
  while (left && begin < end && goes(begin)) ++begin;
  while (right && end > begin && goes(end - 1)) --end;
  return t.part(at[begin], at[end]);
}

Text replaced(Interpreter& in, const Text& t, const Text& from, const Text& to, std::int64_t most) {
  if (most < 0) most = INT64_MAX;
  Text out;
  std::size_t begin = 0;
  if (from.bytes.empty()) {  // like Python, inserts `to` before each character and at the end
    const auto at = character_starts(t.bytes);
    in.room(at.size() * to.bytes.size());
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (static_cast<std::int64_t>(i) < most) out.append(to);
      if (i + 1 < at.size()) out.append(t.part(at[i], at[i + 1]));
    }
    return out;
  }
  for (std::int64_t n = 0; n < most; ++n) {
    const std::size_t at = t.bytes.find(from.bytes, begin);
    if (at == std::string::npos) break;
    out.append(t.part(begin, at));
    in.room(to.bytes.size());
    out.append(to);
    begin = at + from.bytes.size();
  }
  out.append(t.part(begin, t.bytes.size()));
  return out;
}

Text capitalised(const Text& t) {
  const auto at = character_starts(t.bytes);
  if (at.size() < 2) return t;
  return t.made(to_upper(std::string_view(t.bytes).substr(0, at[1])) +
                to_lower(std::string_view(t.bytes).substr(at[1])));
}

Text centred(Interpreter& in, const Text& t, std::int64_t width, const std::string& fill) {
  const auto n = static_cast<std::int64_t>(count_characters(t.bytes));
  if (width <= n) return t;
  in.room(static_cast<std::size_t>(width) * fill.size());
  const std::int64_t space = width - n, left = space / 2 + (space & width & 1);
  Text out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(t);
  for (std::int64_t i = left; i < space; ++i) out.append(fill);
  return out;
}

namespace {

Text as_text(const Value& v) { return to_text(v); }

Value upper(Interpreter&, const Value& v, const Arguments&) {
  const Text t = as_text(v);
  return t.made(to_upper(t.bytes));
}
Value lower(Interpreter&, const Value& v, const Arguments&) {
  const Text t = as_text(v);
  return t.made(to_lower(t.bytes));
}
Value capitalize(Interpreter&, const Value& v, const Arguments&) { return capitalised(as_text(v)); }

/// The title filter of Jinja. Words begin after spaces, hyphens and opening brackets.
Value title(Interpreter&, const Value& v, const Arguments&) {
  const Text t = as_text(v);
  std::string out;
  bool begins = true;
  const auto at = character_starts(t.bytes);
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const std::string_view c = std::string_view(t.bytes).substr(at[i], at[i + 1] - at[i]);
    out += begins ? to_upper(c) : to_lower(c);
    const Utf8Unit u = utf8_unit(c);
    begins = u.kind == Utf8Unit::Kind::character &&
             (is_space(u.code) || std::string_view("-({[<").find(c) != std::string_view::npos);
  }
  return t.made(out);
}

Value trim(Interpreter&, const Value& v, const Arguments& a) {
  a.check("trim", {"chars"});
  return trimmed(as_text(v), a.get(0, "chars"), true, true);
}

Value replace(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("replace", {"old", "new", "count"});
  const Value count = a.get(2, "count", None{});
  return replaced(in, as_text(v), as_text(a.get(0, "old")), as_text(a.get(1, "new")),
                  count.is_none() ? -1 : count.integer());
}

Value indent(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("indent", {"width", "first", "blank"});
  const Text t = as_text(v);
  const Value width = a.get(0, "width", 4);
  const bool first = a.get(1, "first").truth(), blank = a.get(2, "blank").truth();
  std::string space;
  if (width.text()) {
    space = width.text()->bytes;
  } else {
    in.room(static_cast<std::size_t>(std::clamp<std::int64_t>(width.integer(), 0, 1 << 30)));
    space = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width.integer(), 0)), ' ');
  }
  Text out;
  bool begins = true;
  for (std::size_t begin = 0; begin <= t.bytes.size();) {
    const std::size_t end = std::min(t.bytes.find('\n', begin), t.bytes.size());
    if (begins ? first : (blank || end > begin)) in.room(space.size()), out.append(space);
    out.append(t.part(begin, end));
    if (end < t.bytes.size()) out.append("\n");
    begins = false;
    begin = end + 1;
  }
  return out;
}

Value center(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("center", {"width"});
  return centred(in, as_text(v), a.get(0, "width", 80).integer(), " ");
}

Value format(Interpreter& in, const Value& v, const Arguments& a) {
  if (!a.named.empty()) {
    Dict d;
    for (const auto& [name, value] : a.named) d.set(name, value);
    return format_percent(in, as_text(v), d);
  }
  return format_percent(in, as_text(v), Value::tuple(a.positional));
}

Value truncate(Interpreter&, const Value& v, const Arguments& a) {
  a.check("truncate", {"length", "killwords", "end", "leeway"});
  const Text t = as_text(v), end = as_text(a.get(2, "end", "..."));
  const Value leeway = a.get(3, "leeway", None{});
  const std::int64_t length = a.get(0, "length", 255).integer(), more = leeway.is_none() ? 5 : leeway.integer();
  const auto at = character_starts(t.bytes);
  if (static_cast<std::int64_t>(at.size()) - 1 <= length + more) return t;
  const std::int64_t kept = length - static_cast<std::int64_t>(count_characters(end.bytes));
  if (kept < 0) fault("truncate: 'end' is longer than 'length'");
  Text out = t.part(0, at[static_cast<std::size_t>(kept)]);
  if (!a.get(1, "killwords").truth())
    if (const std::size_t space = out.bytes.rfind(' '); space != std::string::npos) out = out.part(0, space);
  out.append(end);
  return out;
}

Value escape(Interpreter&, const Value& v, const Arguments&) {
  const Text t = as_text(v);
  return t.markup ? t : escaped(t);
}

Value urlencode(Interpreter&, const Value& v, const Arguments&) {
  const Text t = as_text(v);
  std::string out;
  for (const char c : t.bytes) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      for (const char d : {'%', "0123456789ABCDEF"[(c >> 4) & 15], "0123456789ABCDEF"[c & 15]}) out += d;
    }
  }
  return t.made(out);
}

Value wordcount(Interpreter&, const Value& v, const Arguments&) {
  const Text t = as_text(v);
  std::int64_t words = 0;
  bool within = false;
  for (std::size_t at = 0; at < t.bytes.size();) {
    const Utf8Unit u = utf8_unit(std::string_view(t.bytes).substr(at));
    const bool letter = u.code == '_' || u.code >= 0x80 || std::isalnum(static_cast<int>(u.code & 0x7f));
    words += letter && !within;
    within = letter, at += u.size;
  }
  return words;
}

Value string(Interpreter&, const Value& v, const Arguments&) { return as_text(v); }
Value safe(Interpreter&, const Value& v, const Arguments&) {
  Text t = as_text(v);
  t.markup = true;
  return t;
}

Value to_integer(Interpreter&, const Value& v, const Arguments& a) {
  a.check("int", {"default", "base"});
  const Value otherwise = a.get(0, "default", 0);
  if (v.is_integer()) return v.integer();
  if (v.is_real()) return std::abs(v.real()) < 9.2e18 ? Value(truncated(v.real())) : otherwise;
  if (!v.text()) return otherwise;
  const Text plain = trimmed(*v.text(), Value(), true, true);
  std::string t = plain.bytes;
  t.erase(std::remove(t.begin(), t.end(), '_'), t.end());
  const bool negative = !t.empty() && t[0] == '-';
  if (!t.empty() && (t[0] == '-' || t[0] == '+')) t.erase(0, 1);
  int base = static_cast<int>(a.get(1, "base", 10).integer());
  if (base < 2 || base > 36) return otherwise;
  const std::string head = t.substr(0, 2);
  if ((base == 16 && (head == "0x" || head == "0X")) || (base == 2 && (head == "0b" || head == "0B")) ||
      (base == 8 && (head == "0o" || head == "0O")))
    t.erase(0, 2);
  std::int64_t i = 0;
  const char* end = t.data() + t.size();
  if (const auto r = std::from_chars(t.data(), end, i, base); r.ec == std::errc() && r.ptr == end && t[0] != '-')
    return negative ? -i : i;
  double d = 0;
  if (const auto r = std::from_chars(t.data(), end, d);
      r.ec == std::errc() && r.ptr == end && t[0] != '-' && std::abs(d) < 9.2e18)
    return truncated(negative ? -d : d);
  return otherwise;
}

Value to_real(Interpreter&, const Value& v, const Arguments& a) {
  a.check("float", {"default"});
  const Value otherwise = a.get(0, "default", 0.0);
  if (v.is_number()) return v.real();
  if (!v.text()) return otherwise;
  const std::string t = trimmed(*v.text(), Value(), true, true).bytes;
  double d = 0;
  const char* begin = t.data() + (!t.empty() && t[0] == '+');
  const auto r = std::from_chars(begin, t.data() + t.size(), d);
  return r.ec == std::errc() && r.ptr == t.data() + t.size() ? Value(d) : otherwise;
}

Value absolute(Interpreter& in, const Value& v, const Arguments&) {
  if (v.is_real()) return std::abs(v.real());
  return v.integer() < 0 ? arithmetic(in, "-", 0, v) : Value(v.integer());
}

Value round(Interpreter&, const Value& v, const Arguments& a) {
  a.check("round", {"precision", "method"});
  const std::int64_t precision = a.get(0, "precision", 0).integer();
  const std::string method = as_text(a.get(1, "method", "common")).bytes;
  if (precision > 300 || precision < -300) fault("round: the precision exceeds 300 digits");
  if (method == "common") {
    if (v.is_integer() && precision >= 0) return v.integer();
    // Python rounds the decimal representation as printf does. A number that is exactly halfway is rounded to even.
    if (precision >= 0) {
      char text[700];
      std::snprintf(text, sizeof text, "%.*f", static_cast<int>(precision), v.real());
      double d = 0;
      std::from_chars(text, text + std::char_traits<char>::length(text), d);
      return d;
    }
    const double by = std::pow(10.0, static_cast<double>(-precision));
    const double d = std::nearbyint(v.real() / by) * by;
    return v.is_integer() ? Value(truncated(d)) : Value(d);
  }
  const double by = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(v.real() * by) / by;
  if (method == "floor") return std::floor(v.real() * by) / by;
  fault("round: the method must be common, ceil or floor");
}

Value standard(Interpreter&, const Value& v, const Arguments& a) {
  a.check("default", {"default_value", "boolean"});
  const bool missing = v.is_undefined() || (a.get(1, "boolean").truth() && !v.truth());
  return missing ? a.get(0, "default_value", "") : v;
}

/// Like tojson in `transformers`, which does not escape HTML.
Value tojson(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (v.is_undefined()) fault("an undefined value cannot be written as JSON");
  const Value indent = a.get(1, "indent", None{}), separators = a.get(2, "separators", None{});
  const int spaces = indent.is_none() ? -1 : static_cast<int>(std::clamp<std::int64_t>(indent.integer(), 0, 16));
  if (!indent.is_none() && indent.integer() > 16) fault("tojson: the indent must not exceed 16");
  std::string item = spaces >= 0 ? "," : ", ", key = ": ";
  if (const List* l = separators.items()) {
    if (l->items.size() != 2) fault("tojson: two separators are needed");
    item = as_text(l->items[0]).bytes, key = as_text(l->items[1]).bytes;
  }
  in.spend(1);
  Text out = to_json(v, spaces, a.get(3, "sort_keys").truth(), item, key);
  if (!a.get(0, "ensure_ascii").truth()) return out;
  std::string plain;
  for (std::size_t at = 0; at < out.bytes.size();) {
    const Utf8Unit u = utf8_unit(std::string_view(out.bytes).substr(at));
    if (u.kind == Utf8Unit::Kind::character && u.code >= 0x7f) {
      char hex[16];
      if (u.code >= 0x10000) {
        const unsigned pair = u.code - 0x10000;
        std::snprintf(hex, sizeof hex, "\\u%04x\\u%04x", 0xd800 + (pair >> 10), 0xdc00 + (pair & 0x3ff));
      } else if (u.code == 0x7f) {
        hex[0] = 0x7f, hex[1] = 0;
      } else {
        std::snprintf(hex, sizeof hex, "\\u%04x", static_cast<unsigned>(u.code));
      }
      plain += hex;
    } else {
      plain += out.bytes.substr(at, u.size);
    }
    at += u.size;
  }
  return out.made(plain);
}

const std::map<std::string_view, FilterBody>& texts() {
  static const std::map<std::string_view, FilterBody> table = {
      {"upper", upper},        {"lower", lower},         {"capitalize", capitalize},
      {"title", title},        {"trim", trim},           {"replace", replace},
      {"indent", indent},      {"center", center},       {"format", format},
      {"truncate", truncate},  {"escape", escape},       {"e", escape},
      {"forceescape", escape}, {"urlencode", urlencode}, {"wordcount", wordcount},
      {"string", string},      {"safe", safe},           {"int", to_integer},
      {"float", to_real},      {"abs", absolute},        {"round", round},
      {"default", standard},   {"d", standard},          {"tojson", tojson},
  };
  return table;
}

}  // namespace

FilterBody find_filter(std::string_view name) {
  if (const auto at = texts().find(name); at != texts().end()) return at->second;
  return find_list_filter(name);
}

}  // namespace tessera::jinja
