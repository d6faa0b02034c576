// SPDX-License-Identifier: Apache-2.0
#include "tessera/jinja/value.h"

#include <algorithm>
#include <cmath>

namespace tessera::jinja {

void fault(const std::string& what) { throw Fault(what); }

Text Text::data(std::string bytes) {
  Text out(std::move(bytes));
  if (!out.bytes.empty()) out.given = {{0, out.bytes.size()}};
  return out;
}

void Text::append(const Text& more) {
  const std::size_t base = bytes.size();
  for (const Span& s : more.given) {
    if (!given.empty() && given.back().end == base + s.begin) {
      given.back().end = base + s.end;
    } else {
      given.push_back({base + s.begin, base + s.end});
    }
  }
  bytes += more.bytes;
}

Text Text::part(std::size_t begin, std::size_t end) const {
  Text out(bytes.substr(begin, end - begin));
  out.markup = markup;
  for (const Span& s : given) {
    const std::size_t from = std::max(s.begin, begin), to = std::min(s.end, end);
    if (from < to) out.given.push_back({from - begin, to - begin});
  }
  return out;
}

Text Text::made(std::string other) const {
  Text out = any_given() ? data(std::move(other)) : Text(std::move(other));
  out.markup = markup;
  return out;
}

Value::Value(Dict d) : v_(std::make_shared<const Dict>(std::move(d))) {}

namespace {

int depth_over(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, v.depth());
  if (depth >= Value::max_depth) fault("lists and dicts are nested more than 64 levels deep");
  return depth + 1;
}

/// Maps keys that Python considers equal to the same string.
std::string key_text(const Value& key) {
  if (key.is_none()) return "N";
  if (key.is_undefined()) return "U";
  if (const Text* t = key.text()) return "s" + t->bytes;
  if (key.is_integer()) return "n" + std::to_string(key.integer());
  if (key.is_real()) {
    const double d = key.real();
    if (d == std::floor(d) && std::abs(d) < 9e18) return "n" + std::to_string(static_cast<std::int64_t>(d));
    return "r" + real_repr(d);
  }
  if (const List* l = key.items(); l && l->tuple) {
    std::string out = "(";
    for (const Value& v : l->items) {
      const std::string one = key_text(v);
      out += std::to_string(one.size()) + ":" + one;
    }
    return out;
  }
  if (const Object* o = key.object()) return "o" + std::to_string(reinterpret_cast<std::uintptr_t>(o));
  fault("unhashable type: '" + key.type() + "' as a key");
}

}  // namespace

Value Value::list(std::vector<Value> items) {
  Value out;
  const int depth = depth_over(items);
  out.v_ = std::make_shared<const List>(List{std::move(items), false, depth});
  return out;
}
Value Value::tuple(std::vector<Value> items) {
  Value out;
  const int depth = depth_over(items);
  out.v_ = std::make_shared<const List>(List{std::move(items), true, depth});
  return out;
}
Value Value::undefined(const std::string& what) { return Undefined{std::make_shared<const std::string>(what)}; }

const Text* Value::text() const {
  const auto* p = std::get_if<std::shared_ptr<const Text>>(&v_);
  return p ? p->get() : nullptr;
}
const List* Value::items() const {
  const auto* p = std::get_if<std::shared_ptr<const List>>(&v_);
  return p ? p->get() : nullptr;
}
const Dict* Value::dict() const {
  const auto* p = std::get_if<std::shared_ptr<const Dict>>(&v_);
  return p ? p->get() : nullptr;
}
Object* Value::object() const {
  const auto* p = std::get_if<std::shared_ptr<Object>>(&v_);
  return p ? p->get() : nullptr;
}
std::int64_t Value::integer() const {
  if (const bool* b = std::get_if<bool>(&v_)) return *b;
  if (const auto* i = std::get_if<std::int64_t>(&v_)) return *i;
  if (const Undefined* u = missing()) fault(u->what ? *u->what : "a name is undefined");
  fault("expected an integer, not '" + type() + "'");
}
double Value::real() const {
  if (const double* d = std::get_if<double>(&v_)) return *d;
  return static_cast<double>(integer());
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_integer()) return integer() != 0;
  if (is_real()) return real() != 0;
  if (const Text* t = text()) return !t->bytes.empty();
  if (const List* l = items()) return !l->items.empty();
  if (const Dict* d = dict()) return !d->entries().empty();
  return true;
}

int Value::depth() const {
  if (const List* l = items()) return l->depth;
  if (const Dict* d = dict()) return d->depth();
  return 0;
}

std::string Value::type() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_real()) return "float";
  if (is_text()) return "str";
  if (const List* l = items()) return l->tuple ? "tuple" : "list";
  if (dict()) return "dict";
  return object()->name();
}

bool Value::same(const Value& other) const {
  if (v_.index() != other.v_.index()) return false;
  if (items()) return items() == other.items();
  if (dict()) return dict() == other.dict();
  if (object()) return object() == other.object();
  return equal(*this, other);
}

void Dict::set(const Value& key, Value value) {
  const int depth = value.depth() + 1;
  if (depth > Value::max_depth) fault("lists and dicts are nested more than 64 levels deep");
  depth_ = std::max(depth_, depth);
  const auto [at, added] = at_.emplace(key_text(key), entries_.size());
  if (added) {
    entries_.emplace_back(key, std::move(value));
  } else {
    entries_[at->second].second = std::move(value);
  }
}
const Value* Dict::find(const Value& key) const {
  const auto at = at_.find(key_text(key));
  return at == at_.end() ? nullptr : &entries_[at->second].second;
}
const Value* Dict::find(std::string_view key) const {
  const auto at = at_.find("s" + std::string(key));
  return at == at_.end() ? nullptr : &entries_[at->second].second;
}

const Value* Arguments::find(std::size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [n, v] : named)
    if (n == name) return &v;
  return nullptr;
}
Value Arguments::get(std::size_t place, std::string_view name) const {
  const Value* v = find(place, name);
  return v ? *v : Value();
}
Value Arguments::get(std::size_t place, std::string_view name, Value otherwise) const {
  const Value* v = find(place, name);
  return v ? *v : std::move(otherwise);
}
void Arguments::check(std::string_view who, std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size())
    fault(std::string(who) + " takes at most " + std::to_string(names.size()) + " arguments, but got " +
          std::to_string(positional.size()));
  for (const auto& [n, v] : named)
    if (std::find(names.begin(), names.end(), n) == names.end())
      fault(std::string(who) + " has no argument '" + n + "'");
}

Value Object::call(Interpreter&, const Arguments&) { fault("'" + name() + "' is not callable"); }

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.text() && b.text()) return a.text()->bytes == b.text()->bytes;
  if (const List *x = a.items(), *y = b.items(); x && y)
    return x->tuple == y->tuple && x->items.size() == y->items.size() &&
           std::equal(x->items.begin(), x->items.end(), y->items.begin(), equal);
  if (const Dict *x = a.dict(), *y = b.dict(); x && y) {
    if (x->entries().size() != y->entries().size()) return false;
    for (const auto& [key, value] : x->entries()) {
      const Value* other = y->find(key);
      if (!other || !equal(value, *other)) return false;
    }
    return true;
  }
  return a.object() && a.object() == b.object();
}

int compare(const Value& a, const Value& b) {
  const auto order = [](auto x, auto y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? order(a.integer(), b.integer()) : order(a.real(), b.real());
  // UTF-8 bytes sort in the same order as code points.
  if (a.text() && b.text()) return order(a.text()->bytes, b.text()->bytes);
  if (const List *x = a.items(), *y = b.items(); x && y && x->tuple == y->tuple) {
    for (std::size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
      if (!equal(x->items[i], y->items[i])) return compare(x->items[i], y->items[i]);
    return order(x->items.size(), y->items.size());
  }
  for (const Value* v : {&a, &b})
    if (const Undefined* u = v->missing(); u && u->what) fault(*u->what);
  fault("'" + a.type() + "' and '" + b.type() + "' cannot be compared");
}

std::int64_t truncated(double d) {
  if (!(std::abs(d) < 9.2e18)) fault("the number does not fit in a 64-bit integer");
  return static_cast<std::int64_t>(d);
}

bool contains(const Value& container, const Value& item) {
  if (const Text* t = container.text()) {
    const Text* part = item.text();
    if (!part) fault("'in <string>' requires a string, not '" + item.type() + "'");
    return t->bytes.find(part->bytes) != std::string::npos;
  }
  if (const Dict* d = container.dict()) return d->find(item) != nullptr;
  for (const Value& v : elements(container))
    if (equal(v, item)) return true;
  return false;
}

std::vector<Value> elements(const Value& of) {
  if (const List* l = of.items()) return l->items;
  std::vector<Value> out;
  if (const Dict* d = of.dict()) {
    for (const auto& entry : d->entries()) out.push_back(entry.first);
  } else if (const Text* t = of.text()) {
    const auto at = character_starts(t->bytes);
    for (std::size_t i = 0; i + 1 < at.size(); ++i) out.emplace_back(t->part(at[i], at[i + 1]));
  } else if (!of.is_undefined()) {
    fault("'" + of.type() + "' object is not iterable");
  }
  return out;
}

}  // namespace tessera::jinja
