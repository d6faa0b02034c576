// SPDX-License-Identifier: Apache-2.0
// Filters for lists and dicts.
#include <algorithm>
#include <map>

#include "tessera/jinja/filter_bodies.h"

namespace tessera::jinja {
namespace {

std::vector<Value> all(Interpreter& in, const Value& v) {
  auto out = elements(v);
  in.spend(4 * out.size());
  return out;
}

/// Returns the elements for map, select and similar filters. If the value is none, false or 0, there are no elements.
std::vector<Value> all_if_any(Interpreter& in, const Value& v) { return v.truth() ? all(in, v) : std::vector<Value>(); }

/// Returns the key used to compare an element: the attribute if one is given, otherwise the element itself. Text is
/// converted to lower case unless `case_matters` is set.
Value key_of(Interpreter& in, const Value& v, const Value& attribute, bool case_matters) {
  Value key = attribute.is_undefined() || attribute.is_none() ? v : in.path(v, attribute);
  if (!case_matters && key.text()) return key.text()->made(to_lower(key.text()->bytes));
  return key;
}

Value first(Interpreter& in, const Value& v, const Arguments&) {
  const auto l = all(in, v);
  return l.empty() ? Value::undefined("an empty sequence has no first element") : l.front();
}
Value last(Interpreter& in, const Value& v, const Arguments&) {
  const auto l = all(in, v);
  return l.empty() ? Value::undefined("an empty sequence has no last element") : l.back();
}
Value length(Interpreter&, const Value& v, const Arguments&) {
  if (const List* l = v.items()) return l->items.size();
  if (const Dict* d = v.dict()) return d->entries().size();
  if (const Text* t = v.text()) return count_characters(t->bytes);
  if (v.is_undefined()) return 0;
  fault("'" + v.type() + "' has no length");
}
Value list(Interpreter& in, const Value& v, const Arguments&) { return Value::list(all(in, v)); }
Value reverse(Interpreter& in, const Value& v, const Arguments&) {
  auto l = all(in, v);
  std::reverse(l.begin(), l.end());
  if (!v.text()) return Value::list(std::move(l));
  Text out;
  for (const Value& c : l) out.append(*c.text());
  return out;
}

Value join(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("join", {"d", "attribute"});
  const Text between = to_text(a.get(0, "d", ""));
  const Value attribute = a.get(1, "attribute");
  Text out;
  bool begun = false;
  for (const Value& one : all(in, v)) {
    if (std::exchange(begun, true)) out.append(between);
    out.append(to_text(attribute.truth() ? in.path(one, attribute) : one));
    if (out.bytes.size() > (std::size_t{1} << 20)) in.room(out.bytes.size() / 64);
  }
  return out;
}

/// Returns the arguments without the first `n` positional ones.
Arguments rest(const Arguments& a, std::size_t n) {
  Arguments out = a;
  out.positional.erase(out.positional.begin(),
                       out.positional.begin() + static_cast<std::ptrdiff_t>(std::min(n, out.positional.size())));
  return out;
}

Value map(Interpreter& in, const Value& v, const Arguments& a) {
  std::vector<Value> out;
  if (a.positional.empty()) {
    const Value attribute = a.get(0, "attribute");
    if (attribute.is_undefined()) fault("map needs the name of a filter or an attribute");
    for (const auto& [name, value] : a.named)
      if (name != "attribute" && name != "default") fault("map has no argument '" + name + "'");
    const Value* otherwise = a.find(9, "default");
    for (const Value& one : all_if_any(in, v)) {
      Value got = in.path(one, attribute);
      out.push_back(got.is_undefined() && otherwise ? *otherwise : got);
    }
  } else {
    const std::string name = text_of(a.positional[0], "map").bytes;
    const Arguments more = rest(a, 1);
    for (const Value& one : all_if_any(in, v)) {
      out.push_back(in.filter(name, one, more));
      in.count(out.back());
    }
  }
  return Value::list(std::move(out));
}

Value chosen(Interpreter& in, const Value& v, const Arguments& a, bool by_attribute, bool wanted) {
  const std::size_t places = by_attribute ? 1 : 0;
  if (by_attribute && a.positional.empty()) fault("selectattr and rejectattr need an attribute");
  const Arguments more = rest(a, places + 1);
  std::vector<Value> out;
  for (const Value& one : all_if_any(in, v)) {
    const Value by = by_attribute ? in.path(one, a.positional[0]) : one;
    const bool holds = a.positional.size() > places
                           ? in.test(text_of(a.positional[places], "a test's name").bytes, by, more)
                           : by.truth();
    if (holds == wanted) out.push_back(one);
  }
  return Value::list(std::move(out));
}
Value select(Interpreter& in, const Value& v, const Arguments& a) { return chosen(in, v, a, false, true); }
Value reject(Interpreter& in, const Value& v, const Arguments& a) { return chosen(in, v, a, false, false); }
Value selectattr(Interpreter& in, const Value& v, const Arguments& a) { return chosen(in, v, a, true, true); }
Value rejectattr(Interpreter& in, const Value& v, const Arguments& a) { return chosen(in, v, a, true, false); }

/// Returns the sort key. Several comma-separated attributes are compared one after another.
Value sort_key(Interpreter& in, const Value& v, const Value& attribute, bool case_matters) {
  const Text* t = attribute.text();
  if (!t || t->bytes.find(',') == std::string::npos) return key_of(in, v, attribute, case_matters);
  std::vector<Value> parts;
  for (std::size_t begin = 0; begin <= t->bytes.size();) {
    const std::size_t end = std::min(t->bytes.find(',', begin), t->bytes.size());
    parts.push_back(key_of(in, v, Value(t->bytes.substr(begin, end - begin)), case_matters));
    begin = end + 1;
  }
  return Value::list(std::move(parts));
}

Value sort(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& one : all(in, v))
    keyed.emplace_back(sort_key(in, one, a.get(2, "attribute"), a.get(1, "case_sensitive").truth()), one);
  const bool down = a.get(0, "reverse").truth();
  in.spend(keyed.size() * 8);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return down ? compare(y.first, x.first) < 0 : compare(x.first, y.first) < 0;
  });
  std::vector<Value> out;
  for (auto& k : keyed) out.push_back(std::move(k.second));
  return Value::list(std::move(out));
}

Value unique(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("unique", {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> out;
  for (const Value& one : all(in, v)) {
    const Value key = key_of(in, one, a.get(1, "attribute"), a.get(0, "case_sensitive").truth());
    if (seen.find(key)) continue;
    seen.set(key, true);
    out.push_back(one);
  }
  return Value::list(std::move(out));
}

Value extreme(Interpreter& in, const Value& v, const Arguments& a, int sign) {
  a.check("min and max", {"case_sensitive", "attribute"});
  Value best, best_key;
  bool any = false;
  for (const Value& one : all(in, v)) {
    const Value key = key_of(in, one, a.get(1, "attribute"), a.get(0, "case_sensitive").truth());
    if (any && sign * compare(key, best_key) <= 0) continue;
    best = one, best_key = key, any = true;
  }
  return any ? best : Value::undefined("an empty sequence has no minimum or maximum");
}
Value smallest(Interpreter& in, const Value& v, const Arguments& a) { return extreme(in, v, a, -1); }
Value largest(Interpreter& in, const Value& v, const Arguments& a) { return extreme(in, v, a, 1); }

Value sum(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("sum", {"attribute", "start"});
  const Value attribute = a.get(0, "attribute");
  Value out = a.get(1, "start", 0);
  for (const Value& one : all(in, v)) {
    out = arithmetic(in, "+", out, attribute.truth() ? in.path(one, attribute) : one);
    in.count(out);
  }
  return out;
}

Value groupby(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("groupby", {"attribute", "default", "case_sensitive"});
  const bool case_matters = a.get(2, "case_sensitive").truth();
  struct One {
    Value key, shown, value;
  };
  std::vector<One> keyed;
  for (const Value& one : all(in, v)) {
    Value shown = in.path(one, a.get(0, "attribute"));
    if (shown.is_undefined() && a.find(1, "default")) shown = a.get(1, "default");
    keyed.push_back({key_of(in, shown, Value(), case_matters), shown, one});
  }
  in.spend(keyed.size() * 8);
  std::stable_sort(keyed.begin(), keyed.end(), [](const One& x, const One& y) { return compare(x.key, y.key) < 0; });
  std::vector<Value> out;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> group;
    std::size_t end = begin;
    for (; end < keyed.size() && equal(keyed[end].key, keyed[begin].key); ++end) group.push_back(keyed[end].value);
    out.push_back(Value::tuple({keyed[begin].shown, Value::list(std::move(group))}));
    begin = end;
  }
  return Value::list(std::move(out));
}

Value batch(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("batch", {"linecount", "fill_with"});
  const std::int64_t n = a.get(0, "linecount").integer();
  if (n < 1) fault("batch needs a count of at least 1");
  const Value* fill = a.find(1, "fill_with");
  std::vector<Value> out, row;
  for (Value& one : all(in, v)) {
    row.push_back(std::move(one));
    if (static_cast<std::int64_t>(row.size()) == n) out.push_back(Value::list(std::exchange(row, {})));
  }
  if (!row.empty()) {
    if (fill && !fill->is_none()) {
      in.spend(static_cast<std::size_t>(n));
      row.resize(static_cast<std::size_t>(n), *fill);
    }
    out.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(out));
}

Value slice(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("slice", {"slices", "fill_with"});
  const auto items = all(in, v);
  const std::int64_t slices = a.get(0, "slices").integer();
  if (slices < 1) fault("slice needs a count of at least 1");
  in.spend(static_cast<std::size_t>(slices) * 4);
  const Value* fill = a.find(1, "fill_with");
  const std::size_t n = static_cast<std::size_t>(slices), per = items.size() / n, longer = items.size() % n;
  std::vector<Value> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t size = per + (i < longer);
    std::vector<Value> row(items.begin() + static_cast<std::ptrdiff_t>(at),
                           items.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
    if (fill && !fill->is_none() && i >= longer && longer > 0) row.push_back(*fill);
    out.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(out));
}

Value pairs(const Dict& d) {
  std::vector<Value> out;
  for (const auto& [key, value] : d.entries()) out.push_back(Value::tuple({key, value}));
  return Value::list(std::move(out));
}
Value items(Interpreter&, const Value& v, const Arguments&) {
  if (v.is_undefined()) return Value::list({});
  if (!v.dict()) fault("items needs a dict, not '" + v.type() + "'");
  return pairs(*v.dict());
}
Value dictsort(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("dictsort", {"case_sensitive", "by", "reverse"});
  if (!v.dict()) fault("dictsort needs a dict, not '" + v.type() + "'");
  const std::string by = to_text(a.get(1, "by", "key")).bytes;
  if (by != "key" && by != "value") fault("dictsort: by must be key or value");
  Arguments order;
  order.named = {{"attribute", by == "key" ? 0 : 1},
                 {"case_sensitive", a.get(0, "case_sensitive").truth()},
                 {"reverse", a.get(2, "reverse").truth()}};
  return sort(in, pairs(*v.dict()), order);
}
/// Looks up an attribute. For a dict this finds its methods, but not its keys.
Value attr(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("attr", {"name"});
  const std::string& name = text_of(a.get(0, "name"), "attr").bytes;
  if (v.dict() && !find_method(v, name)) return Value::undefined("'dict object' has no attribute '" + name + "'");
  return in.attribute(v, name);
}

}  // namespace

FilterBody find_list_filter(std::string_view name) {
  static const std::map<std::string_view, FilterBody> table = {
      {"first", first},
      {"last", last},
      {"length", length},
      {"count", length},
      {"list", list},
      {"reverse", reverse},
      {"join", join},
      {"map", map},
      {"select", select},
      {"reject", reject},
      {"selectattr", selectattr},
      {"rejectattr", rejectattr},
      {"sort", sort},
      {"unique", unique},
      {"min", smallest},
      {"max", largest},
      {"sum", sum},
      {"groupby", groupby},
      {"batch", batch},
      {"slice", slice},
      {"items", items},
      {"dictsort", dictsort},
      {"attr", attr},
  };
  const auto at = table.find(name);
  return at == table.end() ? nullptr : at->second;
}

}  // namespace tessera::jinja
