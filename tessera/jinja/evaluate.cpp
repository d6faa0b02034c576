// SPDX-License-Identifier: Apache-2.0
// Evaluates expressions.
#include <algorithm>

#include "tessera/jinja/interpreter.h"

namespace tessera::jinja {
namespace {

using Kind = Expression::Kind;

const Value& defined(const Value& v) {
  if (const Undefined* u = v.missing()) fault(u->what ? *u->what : "a value is undefined");
  return v;
}

Value bound(std::string_view name, const Value& self, FilterBody body) {
  return function(std::string(name), [self, body](Interpreter& in, const Arguments& a) { return body(in, self, a); });
}

}  // namespace

Value Interpreter::evaluate(const Expression& e, const ScopePtr& scope) {
  struct Level {
    int& depth;
    explicit Level(int& d) : depth(d) {
      if (++depth > 600) fault("expressions and macro calls are nested too deeply");
    }
    ~Level() { --depth; }
  } level(expression_depth_);
  spend(1);
  line_ = e.line;
  switch (e.kind) {
    case Kind::constant: return e.value;
    case Kind::name: {
      for (const Scope* s = scope.get(); s; s = s->outer.get())
        if (const auto at = s->names.find(e.text); at != s->names.end()) return at->second;
      return Value::undefined("'" + e.text + "' is undefined");
    }
    case Kind::attribute: return attribute(evaluate(*e.of[0], scope), e.text);
    case Kind::item: {
      const Value of = evaluate(*e.of[0], scope);
      return item(of, evaluate(*e.of[1], scope));
    }
    case Kind::condition: {
      if (evaluate(*e.of[0], scope).truth()) return evaluate(*e.of[1], scope);
      if (e.of[2]) return evaluate(*e.of[2], scope);
      return Value::undefined("the inline if has no else, and its condition is false");
    }
    case Kind::logical_not: return !evaluate(*e.of[0], scope).truth();
    case Kind::logical_and:
    case Kind::logical_or: {
      Value last;
      for (const auto& part : e.of) {
        last = evaluate(*part, scope);
        if (last.truth() == (e.kind == Kind::logical_or)) break;
      }
      return last;
    }
    case Kind::test: {
      const Value of = evaluate(*e.of[0], scope);
      return test(e.text, of, arguments_of(e.arguments, scope));
    }
    case Kind::comparison: return compare_chain(e, scope);
    default: {
      Value made = compute(e, scope);
      line_ = e.line;
      count(made);
      return made;
    }
  }
}

/// Evaluates an expression that creates a new value. New values count towards the limits.
Value Interpreter::compute(const Expression& e, const ScopePtr& scope) {
  switch (e.kind) {
    case Kind::list:
    case Kind::tuple: {
      std::vector<Value> items;
      for (const auto& part : e.of) items.push_back(evaluate(*part, scope));
      return e.kind == Kind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    case Kind::dict: {
      Dict out;
      for (std::size_t i = 0; i < e.of.size(); i += 2) {
        const Value key = evaluate(*e.of[i], scope);
        out.set(key, evaluate(*e.of[i + 1], scope));
      }
      return out;
    }
    case Kind::slice: return slice(e, scope);
    case Kind::call: return call_expression(e, scope, nullptr);
    case Kind::filter: return apply_filters(e, Value(), scope);
    case Kind::negative:
    case Kind::positive: {
      const Value v = evaluate(*e.of[0], scope);
      if (!defined(v).is_number()) fault("bad operand type for unary '-' or '+': '" + v.type() + "'");
      if (v.is_real()) return e.kind == Kind::negative ? -v.real() : v.real();
      return e.kind == Kind::negative ? arithmetic(*this, "-", 0, v) : Value(v.integer());
    }
    case Kind::arithmetic: {
      const Value a = evaluate(*e.of[0], scope), b = evaluate(*e.of[1], scope);
      line_ = e.line;
      return arithmetic(*this, e.text, defined(a), defined(b));
    }
    case Kind::concatenate: {
      Text out;
      for (const auto& part : e.of) {
        out.append(to_text(evaluate(*part, scope)));
        if (out.bytes.size() > bytes_) room(out.bytes.size());
      }
      return out;
    }
    default: fault("unknown kind of expression");
  }
}

Value Interpreter::compare_chain(const Expression& e, const ScopePtr& scope) {
  Value left = evaluate(*e.of[0], scope);
  for (std::size_t i = 0; i < e.operators.size(); ++i) {
    Value right = evaluate(*e.of[i + 1], scope);
    const std::string& op = e.operators[i];
    // Searching in a text or list counts as steps.
    if (const Text* t = right.text()) spend(t->bytes.size() / 64);
    if (const List* l = right.items()) spend(l->items.size());
    bool holds = false;
    if (op == "==") {
      holds = equal(left, right);
    } else if (op == "!=") {
      holds = !equal(left, right);
    } else if (op == "in") {
      holds = contains(right, left);
    } else if (op == "not in") {
      holds = !contains(right, left);
    } else {
      const int c = compare(left, right);
      holds = op == "<" ? c < 0 : op == "<=" ? c <= 0 : op == ">" ? c > 0 : c >= 0;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::slice(const Expression& e, const ScopePtr& scope) {
  const Value of = evaluate(*e.of[0], scope);
  const auto part = [&](std::size_t i) { return e.of[i] ? evaluate(*e.of[i], scope) : Value(None{}); };
  const Value begin = part(1), end = part(2), step = part(3);
  if (const Text* t = of.text()) {
    const auto at = character_starts(t->bytes);
    const auto places = slice_places(at.size() - 1, begin, end, step);
    if (step.is_none() || step.integer() == 1)
      return places.empty() ? Text() : t->part(at[places.front()], at[places.back() + 1]);
    Text out;
    for (const std::size_t i : places) out.append(t->part(at[i], at[i + 1]));
    return out;
  }
  if (const List* l = of.items()) {
    std::vector<Value> out;
    for (const std::size_t i : slice_places(l->items.size(), begin, end, step)) out.push_back(l->items[i]);
    return l->tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
  }
  if (of.is_undefined()) fault(*of.missing()->what);
  return Value::undefined("'" + of.type() + "' cannot be sliced");
}

Value Interpreter::attribute(const Value& of, const std::string& name) {
  if (const Undefined* u = of.missing()) fault(u->what ? *u->what : "a value is undefined");
  if (const Object* o = of.object()) {
    if (auto v = o->attribute(name)) return *v;
  } else {
    if (const FilterBody method = find_method(of, name)) return bound(name, of, method);
    if (const Dict* d = of.dict())
      if (const Value* v = d->find(name)) return *v;
  }
  return Value::undefined("'" + of.type() + " object' has no attribute '" + name + "'");
}

Value Interpreter::item(const Value& of, const Value& index) {
  if (const Undefined* u = of.missing()) fault(u->what ? *u->what : "a value is undefined");
  if (const Dict* d = of.dict()) {
    if (index.items() == nullptr || index.items()->tuple)
      if (const Value* v = d->find(index)) return *v;
  } else if (index.is_integer() && !of.object()) {
    const auto at = [&](std::size_t size) {
      const std::int64_t i = index.integer(), n = static_cast<std::int64_t>(size);
      return i >= -n && i < n ? std::optional(static_cast<std::size_t>(i < 0 ? i + n : i)) : std::nullopt;
    };
    if (const List* l = of.items()) {
      if (const auto i = at(l->items.size())) return l->items[*i];
    } else if (const Text* t = of.text()) {
      spend(t->bytes.size() / 64);
      const auto starts = character_starts(t->bytes);
      if (const auto i = at(starts.size() - 1)) return t->part(starts[*i], starts[*i + 1]);
    }
    return Value::undefined("'" + of.type() + " object' has no element " + std::to_string(index.integer()));
  }
  if (const Text* name = index.text()) {
    if (const Object* o = of.object()) {
      if (auto v = o->attribute(name->bytes)) return *v;
    } else if (const FilterBody method = find_method(of, name->bytes)) {
      return bound(name->bytes, of, method);
    }
  }
  return Value::undefined("'" + of.type() + " object' has no attribute '" + to_text(index).bytes + "'");
}

Value Interpreter::path(const Value& of, const Value& path) {
  if (path.is_integer()) return item(of, path);
  const Text* t = path.text();
  if (!t) fault("an attribute name must be a string or a number, not '" + path.type() + "'");
  Value at = of;
  for (std::size_t begin = 0; begin <= t->bytes.size();) {
    const std::size_t end = std::min(t->bytes.find('.', begin), t->bytes.size());
    const std::string name = t->bytes.substr(begin, end - begin);
    const bool digits = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
    at = item(at, digits ? Value(std::stoi(name)) : Value(name));
    begin = end + 1;
  }
  return at;
}

Arguments Interpreter::arguments_of(const std::vector<WrittenArgument>& written, const ScopePtr& scope) {
  using K = WrittenArgument::Kind;
  Arguments out;
  const auto name = [&](const std::string& n, Value value) {
    for (const auto& given : out.named)
      if (given.first == n) fault("argument '" + n + "' is given twice");
    out.named.emplace_back(n, std::move(value));
  };
  for (const WrittenArgument& a : written) {
    Value v = evaluate(*a.value, scope);
    switch (a.kind) {
      case K::positional: out.positional.push_back(std::move(v)); break;
      case K::named: name(a.name, std::move(v)); break;
      case K::spread:
        for (Value& more : elements(v)) spend(4), out.positional.push_back(std::move(more));
        break;
      case K::spread_named:
        if (!v.dict()) fault("the argument after '**' must be a dict, not '" + v.type() + "'");
        for (const auto& [key, value] : v.dict()->entries()) spend(4), name(to_text(key).bytes, value);
        break;
    }
  }
  return out;
}

Value Interpreter::call_expression(const Expression& e, const ScopePtr& scope, const Value* caller) {
  const Expression& called = *e.of[0];
  if (called.kind == Kind::attribute && !caller) {
    // Calls the method directly, without creating an object for it.
    const Value self = evaluate(*called.of[0], scope);
    if (!self.is_undefined() && !self.object()) {
      if (const FilterBody method = find_method(self, called.text)) {
        const Arguments arguments = arguments_of(e.arguments, scope);
        line_ = e.line;
        return method(*this, self, arguments);
      }
    }
    const Value what = attribute(self, called.text);
    return call(what, arguments_of(e.arguments, scope));
  }
  const Value what = evaluate(called, scope);
  Arguments arguments = arguments_of(e.arguments, scope);
  if (caller) arguments.named.emplace_back("caller", *caller);
  return call(what, arguments);
}

Value Interpreter::call(const Value& what, const Arguments& arguments) {
  if (const Undefined* u = what.missing()) fault(u->what ? *u->what : "the called value is undefined");
  Object* o = what.object();
  if (!o || !o->callable()) fault("'" + what.type() + " object' is not callable");
  const Value held = what;  // keeps the callee alive if the template reassigns its name
  return o->call(*this, arguments);
}

Value Interpreter::apply_filters(const Expression& e, const Value& body, const ScopePtr& scope) {
  const Value of = !e.of[0]                        ? body
                   : e.of[0]->kind == Kind::filter ? apply_filters(*e.of[0], body, scope)
                                                   : evaluate(*e.of[0], scope);
  const Arguments arguments = arguments_of(e.arguments, scope);
  spend(1);
  line_ = e.line;
  Value made = filter(e.text, of, arguments);
  count(made);
  return made;
}

Value Interpreter::filter(const std::string& name, const Value& of, const Arguments& arguments) {
  const FilterBody body = find_filter(name);
  if (!body) fault("there is no filter '" + name + "'");
  return body(*this, of, arguments);
}
bool Interpreter::test(const std::string& name, const Value& of, const Arguments& arguments) {
  const TestBody body = find_test(name);
  if (!body) fault("there is no test '" + name + "'");
  return body(*this, of, arguments);
}

std::vector<std::size_t> slice_places(std::size_t size, const Value& begin, const Value& end, const Value& step) {
  const auto n = static_cast<std::int64_t>(size);
  const std::int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) fault("slice step cannot be zero");
  const auto bound = [&](const Value& v, std::int64_t otherwise) {
    if (v.is_none()) return otherwise;
    std::int64_t i = v.integer();
    if (i < 0) i = std::max<std::int64_t>(i + n, by > 0 ? 0 : -1);
    return std::min(i, by > 0 ? n : n - 1);
  };
  const std::int64_t first = bound(begin, by > 0 ? 0 : n - 1), last = bound(end, by > 0 ? n : -1);
  std::vector<std::size_t> out;
  if (by > 0) {
    for (std::int64_t i = first; i < last; i += std::min(by, n)) {
      out.push_back(static_cast<std::size_t>(i));
      if (by >= n) break;
    }
  } else {
    for (std::int64_t i = first; i > last; i += std::max(by, -n)) {
      out.push_back(static_cast<std::size_t>(i));
      if (-by >= n || by == INT64_MIN) break;
    }
  }
  return out;
}

}  // namespace tessera::jinja
