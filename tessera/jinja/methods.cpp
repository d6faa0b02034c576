// SPDX-License-Identifier: Apache-2.0
// Python's methods of strings, lists and dicts, except for methods that modify the object.
#include <algorithm>
#include <map>

#include "tessera/jinja/filter_bodies.h"

namespace tessera::jinja {
namespace methods {
namespace {

using A = const Arguments&;
using V = const Value&;

const Text& self_text(V v) { return *v.text(); }

template <bool left, bool right>
Value strip(Interpreter&, V v, A a) {
  a.check("strip", {"chars"});
  const Value characters = a.get(0, "chars");
  return trimmed(self_text(v), characters, left, right);
}

/// Splits at white space, or at `sep` if it is given. Splits at most `maxsplit` times, from the left or from the right.
Value split(Interpreter& in, V v, A a, bool from_right) {
  a.check("split", {"sep", "maxsplit"});
  const Text& t = self_text(v);
  const Value by = a.get(0, "sep", None{}), max_split = a.get(1, "maxsplit", -1);
  const std::int64_t most = max_split.integer() < 0 ? INT64_MAX : max_split.integer();
  std::vector<Span> cuts;  // the separators between the parts
  if (by.is_none()) {
    const auto at = character_starts(t.bytes);
    std::size_t begin = 0;
    bool within = false;
    for (std::size_t i = 0; i <= at.size() - 1; ++i) {
      bool space = false;
      if (i + 1 < at.size()) {
        const Utf8Unit u = utf8_unit(std::string_view(t.bytes).substr(at[i]));
        space = u.kind == Utf8Unit::Kind::character && is_space(u.code);
      }
      if (space && !within) begin = at[i], within = true;
      if (!space && within) cuts.push_back({begin, at[i]}), within = false;
    }
  } else {
    const std::string& s = text_of(by, "split").bytes;
    if (s.empty()) fault("split: empty separator");
    if (from_right) {
      for (std::size_t at = t.bytes.rfind(s); at != std::string::npos;) {
        cuts.push_back({at, at + s.size()});
        if (at < s.size() || static_cast<std::int64_t>(cuts.size()) >= most) break;
        at = t.bytes.rfind(s, at - s.size());
      }
      std::reverse(cuts.begin(), cuts.end());
    } else {
      for (std::size_t at = t.bytes.find(s); at != std::string::npos && static_cast<std::int64_t>(cuts.size()) < most;
           at = t.bytes.find(s, at + s.size()))
        cuts.push_back({at, at + s.size()});
    }
  }
  in.spend(4 * cuts.size());
  std::size_t begin = 0, end = t.bytes.size();
  if (by.is_none()) {  // white space at the ends separates nothing
    if (!cuts.empty() && cuts.front().begin == 0) begin = cuts.front().end, cuts.erase(cuts.begin());
    if (!cuts.empty() && cuts.back().end == end) end = cuts.back().begin, cuts.pop_back();
    if (begin >= end) return Value::list({});
    if (static_cast<std::int64_t>(cuts.size()) > most) {
      from_right ? cuts.erase(cuts.begin(), cuts.end() - most) : cuts.erase(cuts.begin() + most, cuts.end());
      // The part that is not split keeps the white space at its outer end.
      if (!from_right) end = t.bytes.size();
      if (from_right) begin = 0;
    }
  }
  std::vector<Value> out;
  for (const Span& cut : cuts) {
    out.emplace_back(t.part(begin, cut.begin));
    begin = cut.end;
  }
  out.emplace_back(t.part(begin, end));
  return Value::list(std::move(out));
}
Value split_left(Interpreter& in, V v, A a) { return split(in, v, a, false); }
Value split_right(Interpreter& in, V v, A a) { return split(in, v, a, true); }

Value splitlines(Interpreter& in, V v, A a) {
  a.check("splitlines", {"keepends"});
  const Text& t = self_text(v);
  const bool keep = a.get(0, "keepends").truth();
  std::vector<Value> out;
  for (std::size_t begin = 0; begin < t.bytes.size();) {
    const std::size_t end = std::min(t.bytes.find_first_of("\r\n\v\f\x1c\x1d\x1e", begin), t.bytes.size());
    std::size_t next = std::min(end + 1, t.bytes.size());
    if (end < t.bytes.size() && t.bytes[end] == '\r' && next < t.bytes.size() && t.bytes[next] == '\n') ++next;
    out.emplace_back(t.part(begin, keep ? next : end));
    in.spend(4);
    begin = next;
  }
  return Value::list(std::move(out));
}

template <bool at_end>
Value begins_or_ends(Interpreter&, V v, A a) {
  a.check(at_end ? "endswith" : "startswith", {"prefix", "start", "end"});
  std::string t = self_text(v).bytes;
  if (a.find(1, "start") || a.find(2, "end")) {
    const auto at = character_starts(t);
    const auto places = slice_places(at.size() - 1, a.get(1, "start", None{}), a.get(2, "end", None{}), None{});
    t = places.empty() ? "" : t.substr(at[places.front()], at[places.back() + 1] - at[places.front()]);
  }
  const auto one = [&](const Value& w) {
    const std::string& word = text_of(w, at_end ? "endswith" : "startswith").bytes;
    if (word.size() > t.size()) return false;
    return t.compare(at_end ? t.size() - word.size() : 0, word.size(), word) == 0;
  };
  const Value what = a.get(0, "prefix");
  if (const List* l = what.items()) return std::any_of(l->items.begin(), l->items.end(), one);
  return one(what);
}

template <bool from_right, bool must>
Value find(Interpreter&, V v, A a) {
  a.check("find", {"sub", "start", "end"});
  const std::string& t = self_text(v).bytes;
  const std::string& word = text_of(a.get(0, "sub"), "find").bytes;
  const auto at = character_starts(t);
  const Value begin = a.get(1, "start", None{}), end = a.get(2, "end", None{});
  const auto n = static_cast<std::int64_t>(at.size()) - 1;
  const auto place = [&](const Value& given, std::int64_t otherwise) {
    if (given.is_none()) return otherwise;
    const std::int64_t i = given.integer();
    return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n);
  };
  const std::size_t first = at[static_cast<std::size_t>(place(begin, 0))],
                    behind = at[static_cast<std::size_t>(place(end, n))];
  std::size_t found = std::string::npos;
  if (first <= behind) {
    const std::string_view within = std::string_view(t).substr(first, behind - first);
    found = from_right ? within.rfind(word) : within.find(word);
  }
  if (found == std::string::npos) {
    if (must) fault("substring not found");
    return -1;
  }
  return count_characters(std::string_view(t).substr(0, first + found));
}

Value count(Interpreter&, V v, A a) {
  a.check("count", {"sub"});
  const std::string& t = self_text(v).bytes;
  const std::string& word = text_of(a.get(0, "sub"), "count").bytes;
  if (word.empty()) return count_characters(t) + 1;
  std::int64_t n = 0;
  for (std::size_t at = t.find(word); at != std::string::npos; at = t.find(word, at + word.size())) ++n;
  return n;
}

Value upper(Interpreter&, V v, A) { return self_text(v).made(to_upper(self_text(v).bytes)); }
Value lower(Interpreter&, V v, A) { return self_text(v).made(to_lower(self_text(v).bytes)); }
Value capitalize(Interpreter&, V v, A) { return capitalised(self_text(v)); }

/// Python's title(). Words begin after any character that has no case.
Value title(Interpreter&, V v, A) {
  std::string out;
  bool begins = true;
  const std::string& t = self_text(v).bytes;
  const auto at = character_starts(t);
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const std::string_view c = std::string_view(t).substr(at[i], at[i + 1] - at[i]);
    out += begins ? to_upper(c) : to_lower(c);
    begins = to_upper(c) == to_lower(c);
  }
  return self_text(v).made(out);
}
Value swapcase(Interpreter&, V v, A) {
  std::string out;
  const std::string& t = self_text(v).bytes;
  const auto at = character_starts(t);
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const std::string_view c = std::string_view(t).substr(at[i], at[i + 1] - at[i]);
    out += to_lower(c) == c ? to_upper(c) : to_lower(c);
  }
  return self_text(v).made(out);
}

Value replace(Interpreter& in, V v, A a) {
  a.check("replace", {"old", "new", "count"});
  return replaced(in, self_text(v), text_of(a.get(0, "old"), "replace"), text_of(a.get(1, "new"), "replace"),
                  a.get(2, "count", -1).integer());
}

Value join(Interpreter& in, V v, A a) {
  a.check("join", {"iterable"});
  Text out;
  bool begun = false;
  for (const Value& one : elements(a.get(0, "iterable"))) {
    if (std::exchange(begun, true)) out.append(self_text(v));
    out.append(text_of(one, "join"));
    in.spend(4);
    if (out.bytes.size() > (std::size_t{1} << 20)) in.room(out.bytes.size() / 64);
  }
  return out;
}

template <bool prefix>
Value removed(Interpreter&, V v, A a) {
  a.check("removeprefix and removesuffix", {"prefix"});
  const Text& t = self_text(v);
  const std::string& word = text_of(a.get(0, "prefix"), "removeprefix").bytes;
  const std::size_t n = t.bytes.size();
  if (word.size() > n || t.bytes.compare(prefix ? 0 : n - word.size(), word.size(), word) != 0) return v;
  return prefix ? t.part(word.size(), n) : t.part(0, n - word.size());
}

template <bool from_right>
Value partition(Interpreter&, V v, A a) {
  a.check("partition", {"sep"});
  const Text& t = self_text(v);
  const Value by = a.get(0, "sep");
  const std::string& word = text_of(by, "partition").bytes;
  if (word.empty()) fault("partition: empty separator");
  const std::size_t at = from_right ? t.bytes.rfind(word) : t.bytes.find(word);
  if (at == std::string::npos) return from_right ? Value::tuple({"", "", v}) : Value::tuple({v, "", ""});
  return Value::tuple({t.part(0, at), by, t.part(at + word.size(), t.bytes.size())});
}

template <int side>  // -1: left-justified, 0: centred, 1: right-justified
Value padded(Interpreter& in, V v, A a) {
  a.check("ljust, rjust and center", {"width", "fillchar"});
  const Text& t = self_text(v);
  const std::string fill = to_text(a.get(1, "fillchar", " ")).bytes;
  const std::int64_t width = a.get(0, "width").integer();
  if (side == 0) return centred(in, t, width, fill);
  const std::int64_t space = width - static_cast<std::int64_t>(count_characters(t.bytes));
  if (space <= 0) return v;
  in.room(static_cast<std::size_t>(space) * fill.size());
  Text pad, out;
  for (std::int64_t i = 0; i < space; ++i) pad.append(fill);
  out.append(side < 0 ? t : pad);
  out.append(side < 0 ? pad : t);
  return out;
}
Value zfill(Interpreter& in, V v, A a) {
  Arguments with;
  with.positional = {a.get(0, "width"), "0"};
  const Text& t = self_text(v);
  if (t.bytes.empty() || (t.bytes[0] != '-' && t.bytes[0] != '+')) return padded<1>(in, v, with);
  with.positional[0] = arithmetic(in, "-", with.positional[0], 1);
  Text out = t.part(0, 1);
  out.append(*padded<1>(in, t.part(1, t.bytes.size()), with).text());
  return out;
}

template <class Holds>
Value each(V v, Holds holds) {
  const std::string& t = self_text(v).bytes;
  if (t.empty()) return false;
  for (std::size_t at = 0; at < t.size();) {
    const Utf8Unit u = utf8_unit(std::string_view(t).substr(at));
    if (u.kind != Utf8Unit::Kind::character || !holds(u.code, std::string_view(t).substr(at, u.size))) return false;
    at += u.size;
  }
  return true;
}
bool digit(char32_t c) { return c >= '0' && c <= '9'; }
/// Returns true for letters. Beyond ASCII, every character except spaces and symbols is treated as a letter.
bool letter(char32_t c, std::string_view) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= 0xc0 && c != 0xd7 && c != 0xf7 && !is_space(c) && !(c >= 0x2000 && c < 0x2c00) &&
          !(c >= 0x3000 && c < 0x3005));
}
Value isdigit(Interpreter&, V v, A) {
  return each(v, [](char32_t c, std::string_view) { return digit(c); });
}
Value isalpha(Interpreter&, V v, A) { return each(v, letter); }
Value isalnum(Interpreter&, V v, A) {
  return each(v, [](char32_t c, std::string_view s) { return digit(c) || letter(c, s); });
}
Value isspace(Interpreter&, V v, A) {
  return each(v, [](char32_t c, std::string_view) { return is_space(c); });
}
Value isupper(Interpreter& in, V v, A a) { return find_test("upper")(in, v, a); }
Value islower(Interpreter& in, V v, A a) { return find_test("lower")(in, v, a); }
Value is_title(Interpreter& in, V v, A a) {
  return equal(title(in, v, a), v) && to_upper(self_text(v).bytes) != to_lower(self_text(v).bytes);
}

/// str.format with "{}" and "{name}". Format specifications are not supported.
Value format(Interpreter& in, V v, A a) {
  const Text& t = self_text(v);
  Text out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < t.bytes.size();) {
    const std::size_t brace = std::min(t.bytes.find_first_of("{}", at), t.bytes.size());
    out.append(t.part(at, brace));
    if (brace == t.bytes.size()) break;
    const char c = t.bytes[brace];
    if (brace + 1 < t.bytes.size() && t.bytes[brace + 1] == c) {
      out.append(t.part(brace, brace + 1));
      at = brace + 2;
      continue;
    }
    const std::size_t end = t.bytes.find('}', brace);
    if (c == '}' || end == std::string::npos) fault("format: single '{' or '}'");
    const std::string field = t.bytes.substr(brace + 1, end - brace - 1);
    if (field.find_first_of(":!.[") != std::string::npos) fault("format: '{" + field + "}' is not supported");
    const bool number = !field.empty() && field.size() < 6 && field.find_first_not_of("0123456789") == field.npos;
    const std::size_t place = field.empty() ? next++ : number ? std::stoul(field) : a.positional.size();
    const Value* value = a.find(place, field);
    if (!value || (place >= a.positional.size() && (field.empty() || number)))
      fault("format: no value for '{" + field + "}'");
    const Text one = to_text(*value);
    in.room(one.bytes.size());
    out.append(one);
    at = end + 1;
  }
  return out;
}

Value get(Interpreter&, V v, A a) {
  a.check("get", {"key", "default"});
  const Value* found = v.dict()->find(a.get(0, "key"));
  return found ? *found : a.get(1, "default", None{});
}
Value items(Interpreter& in, V v, A a) { return find_filter("items")(in, v, a); }
Value keys(Interpreter&, V v, A) { return Value::list(elements(v)); }
Value values(Interpreter&, V v, A) {
  std::vector<Value> out;
  for (const auto& entry : v.dict()->entries()) out.push_back(entry.second);
  return Value::list(std::move(out));
}
Value copy(Interpreter&, V v, A) { return v; }  // values are immutable

Value list_index(Interpreter& in, V v, A a) {
  const auto& l = v.items()->items;
  in.spend(l.size());
  for (std::size_t i = 0; i < l.size(); ++i)
    if (equal(l[i], a.get(0, "value"))) return i;
  fault("the value is not in the list");
}
Value list_count(Interpreter& in, V v, A a) {
  const auto& l = v.items()->items;
  in.spend(l.size());
  return std::count_if(l.begin(), l.end(), [&](const Value& w) { return equal(w, a.get(0, "value")); });
}

Value refused(Interpreter&, V v, A) {
  fault("a method that changes a " + v.type() +
        " was called; templates must not modify values. Build a new one instead");
}

using Table = std::map<std::string_view, FilterBody>;
const Table texts = {
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"split", split_left},
    {"rsplit", split_right},
    {"splitlines", splitlines},
    {"startswith", begins_or_ends<false>},
    {"endswith", begins_or_ends<true>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"upper", upper},
    {"lower", lower},
    {"casefold", lower},
    {"capitalize", capitalize},
    {"title", title},
    {"swapcase", swapcase},
    {"replace", replace},
    {"join", join},
    {"removeprefix", removed<true>},
    {"removesuffix", removed<false>},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"ljust", padded<-1>},
    {"rjust", padded<1>},
    {"center", padded<0>},
    {"zfill", zfill},
    {"format", format},
    {"isdigit", isdigit},
    {"isdecimal", isdigit},
    {"isnumeric", isdigit},
    {"isalpha", isalpha},
    {"isalnum", isalnum},
    {"isspace", isspace},
    {"isupper", isupper},
    {"islower", islower},
    {"istitle", is_title},
};
const Table lists = {{"index", list_index}, {"count", list_count}, {"copy", copy},    {"append", refused},
                     {"extend", refused},   {"insert", refused},   {"pop", refused},  {"remove", refused},
                     {"reverse", refused},  {"sort", refused},     {"clear", refused}};
const Table dicts = {
    {"get", get},        {"items", items}, {"keys", keys},       {"values", values},      {"copy", copy},
    {"update", refused}, {"pop", refused}, {"popitem", refused}, {"setdefault", refused}, {"clear", refused}};

}  // namespace
}  // namespace methods

FilterBody find_method(const Value& of, std::string_view name) {
  const methods::Table* table = of.text()    ? &methods::texts
                                : of.items() ? &methods::lists
                                : of.dict()  ? &methods::dicts
                                             : nullptr;
  if (!table) return nullptr;
  const auto at = table->find(name);
  return at == table->end() ? nullptr : at->second;
}

}  // namespace tessera::jinja
