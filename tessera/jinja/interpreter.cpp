// SPDX-License-Identifier: Apache-2.0
// Runs statements.
#include "tessera/jinja/interpreter.h"

#include <algorithm>
#include <set>

namespace tessera::jinja {

/// Counts the nesting depth of macros, loops and expressions.
struct Interpreter::Deeper {
  explicit Deeper(Interpreter& i) : in(i) {
    if (++in.depth_ > 200) fault("blocks and macro calls are nested too deeply");
  }
  ~Deeper() { --in.depth_; }
  Deeper(const Deeper&) = delete;
  Interpreter& in;
};

Interpreter::~Interpreter() {
  // Macros refer to the scopes that contain them. Clearing the scopes breaks these reference cycles.
  for (const auto& s : scopes_) s->names.clear();
  for (const auto& o : kept_) o->forget();
}

void Interpreter::spend(std::size_t steps) {
  if (steps > steps_) fault("the template takes too many steps");
  steps_ -= steps;
}
void Interpreter::room(std::size_t bytes) {
  if (bytes > bytes_) fault("the template produces too much text");
  bytes_ -= bytes;
}
void Interpreter::count(const Value& made) {
  if (const Text* t = made.text()) room(t->bytes.size() + 32 * t->given.size());
  if (const List* l = made.items()) spend(4 * l->items.size());
  if (const Dict* d = made.dict()) spend(8 * d->entries().size());
}
void Interpreter::output(Text& out, const Text& text) {
  room(text.bytes.size());
  out.append(text);
}

class Macro : public Object {
 public:
  Macro(const Statement& s, ScopePtr scope, std::string name)
      : s_(s), scope_(std::move(scope)), name_(std::move(name)) {}
  bool callable() const override { return true; }
  std::string name() const override { return "macro " + name_; }
  std::optional<Value> attribute(std::string_view name) const override {
    if (name == "name") return Value(name_);
    return std::nullopt;
  }
  void forget() override { scope_.reset(); }

  Value call(Interpreter& in, const Arguments& given) override {
    const Interpreter::Deeper deeper(in);
    const auto scope = std::make_shared<Scope>();
    scope->outer = scope_;
    std::set<std::string> used;
    for (std::size_t i = 0; i < s_.parameters.size(); ++i) {
      const Parameter& p = s_.parameters[i];
      Value value = Value::undefined("parameter '" + p.name + "' was not provided");
      if (const Value* v = given.find(i, p.name)) {
        value = *v;
        used.insert(p.name);
      } else if (p.otherwise) {
        value = in.evaluate(*p.otherwise, scope);
      }
      scope->names[p.name] = std::move(value);
    }
    if (given.positional.size() > s_.parameters.size()) {
      if (!s_.takes_more)
        fault("'" + name() + "' takes at most " + std::to_string(s_.parameters.size()) + " arguments");
    }
    if (s_.takes_more) {
      const auto first = std::min(s_.parameters.size(), given.positional.size());
      scope->names["varargs"] =
          Value::tuple({given.positional.begin() + static_cast<std::ptrdiff_t>(first), given.positional.end()});
    }
    Dict more;
    for (const auto& [name, value] : given.named) {
      if (name == "caller") {
        scope->names["caller"] = value;
      } else if (!used.count(name)) {
        if (!s_.takes_more_named) fault("'" + this->name() + "' takes no keyword argument '" + name + "'");
        more.set(name, value);
      }
    }
    if (s_.takes_more_named) scope->names["kwargs"] = std::move(more);
    Text out;
    in.run(s_.body, scope, out);
    return out;
  }

 private:
  const Statement& s_;
  ScopePtr scope_;
  std::string name_;
};

/// The variable `loop` in the body of a loop.
class Loop : public Object {
 public:
  std::vector<Value> items;
  std::size_t at = 0;
  int depth = 1;
  std::optional<Value> last_changed;
  std::function<Value(const Value&)> again;  // runs the loop on other items, for `recursive` loops

  std::string name() const override { return "loop"; }
  bool callable() const override { return again != nullptr; }
  void forget() override { items.clear(), again = nullptr, last_changed.reset(); }
  Value call(Interpreter&, const Arguments& a) override {
    a.check("loop", {"items"});
    if (!again) fault("only a 'recursive' loop can be called");
    return again(a.get(0, "items"));
  }
  std::optional<Value> attribute(std::string_view name) const override {
    const std::size_t n = items.size();
    if (name == "index") return Value(at + 1);
    if (name == "index0") return Value(at);
    if (name == "revindex") return Value(n - at);
    if (name == "revindex0") return Value(n - at - 1);
    if (name == "first") return Value(at == 0);
    if (name == "last") return Value(at + 1 == n);
    if (name == "length") return Value(n);
    if (name == "depth") return Value(depth);
    if (name == "depth0") return Value(depth - 1);
    if (name == "previtem") return at > 0 ? items[at - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem") return at + 1 < n ? items[at + 1] : Value::undefined("there is no next item");
    if (name == "cycle")
      return function("cycle", [this](Interpreter&, const Arguments& a) {
        if (a.positional.empty()) fault("loop.cycle needs values");
        return a.positional[at % a.positional.size()];
      });
    if (name == "changed")
      return function("changed", [self = const_cast<Loop*>(this)](Interpreter&, const Arguments& a) {
        Value now = Value::tuple(a.positional);
        const bool same = self->last_changed && equal(*self->last_changed, now);
        self->last_changed = std::move(now);
        return Value(!same);
      });
    return std::nullopt;
  }
};

Interpreter::Flow Interpreter::run(const Body& body, const ScopePtr& scope, Text& out) {
  for (const Statement& s : body)
    if (const Flow flow = run(s, scope, out); flow != Flow::on) return flow;
  return Flow::on;
}

Interpreter::Flow Interpreter::run(const Statement& s, const ScopePtr& scope, Text& out) {
  using Kind = Statement::Kind;
  const Deeper deeper(*this);
  spend(1);
  line_ = s.line;
  const auto inner = [&] {
    auto in = std::make_shared<Scope>();
    in->outer = scope;
    return in;
  };
  switch (s.kind) {
    case Kind::data: output(out, s.text); break;
    case Kind::output: output(out, to_text(evaluate(*s.expression, scope))); break;
    case Kind::choice: return run(evaluate(*s.expression, scope).truth() ? s.body : s.otherwise, scope, out);
    case Kind::loop: return loop(s, evaluate(*s.expression, scope), scope, out, 1);
    case Kind::set: assign(*s.target, evaluate(*s.expression, scope), scope); break;
    case Kind::set_block: {
      Text text;
      const Flow flow = run(s.body, inner(), text);
      if (flow != Flow::on) return flow;
      assign(*s.target, s.expression ? apply_filters(*s.expression, text, scope) : Value(text), scope);
      break;
    }
    case Kind::with: {
      const auto in = inner();
      for (std::size_t i = 0; i < s.targets.size(); ++i) assign(*s.targets[i], evaluate(*s.values[i], scope), in);
      return run(s.body, in, out);
    }
    case Kind::macro:
      scopes_.push_back(scope);
      spend(16);
      scope->names[s.text] = Value(std::make_shared<Macro>(s, scope, s.text));
      break;
    case Kind::call: {
      scopes_.push_back(scope);
      spend(16);
      const Value caller(std::make_shared<Macro>(s, scope, "caller"));
      output(out, to_text(call_expression(*s.expression, scope, &caller)));
      break;
    }
    case Kind::filter: {
      Text text;
      const Flow flow = run(s.body, inner(), text);
      output(out, to_text(apply_filters(*s.expression, text, scope)));
      return flow;
    }
    case Kind::body: return run(s.body, inner(), out);
    case Kind::leave: return Flow::leave;
    case Kind::next: return Flow::next;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::loop(const Statement& s, const Value& over, const ScopePtr& scope, Text& out,
                                    int depth) {
  const Deeper deeper(*this);
  if (const Undefined* u = over.missing(); u && depth > 1 && u->what) fault(*u->what);
  std::vector<Value> items = elements(over);
  spend(4 * items.size());
  const auto fresh = [&] {
    auto in = std::make_shared<Scope>();
    in->outer = scope;
    return in;
  };
  if (s.condition) {
    std::vector<Value> chosen;
    for (const Value& v : items) {
      const auto in = fresh();
      assign(*s.target, v, in);
      if (evaluate(*s.condition, in).truth()) chosen.push_back(v);
    }
    items = std::move(chosen);
  }
  if (items.empty()) return run(s.otherwise, scope, out);
  const auto state = std::make_shared<Loop>();
  state->items = std::move(items);
  state->depth = depth;
  if (s.recursive)
    state->again = [&](const Value& more) {
      Text text;
      loop(s, more, scope, text, depth + 1);
      return Value(text);
    };
  keep(state);
  for (; state->at < state->items.size(); ++state->at) {
    const auto in = fresh();
    in->names["loop"] = Value(std::static_pointer_cast<Object>(state));
    assign(*s.target, state->items[state->at], in);
    if (run(s.body, in, out) == Flow::leave) break;
  }
  // If the template kept the `loop` object, it stays at the last item and can no longer be called.
  state->again = nullptr;
  if (state->at == state->items.size()) --state->at;
  if (state.use_count() == 2) state->forget();
  return Flow::on;
}

void Interpreter::assign(const Expression& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == Expression::Kind::name) {
    scope->names[target.text] = value;
  } else if (target.kind == Expression::Kind::attribute) {
    auto* space = dynamic_cast<Namespace*>(evaluate(*target.of[0], scope).object());
    if (!space) fault("cannot assign attribute '" + target.text + "' of a value that is not a namespace");
    space->set(target.text, value);
  } else {
    if (const Undefined* u = value.missing(); u && u->what) fault(*u->what);
    const auto parts = elements(value);
    if (parts.size() != target.of.size())
      fault(std::to_string(target.of.size()) + " names for " + std::to_string(parts.size()) + " values");
    for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.of[i], parts[i], scope);
  }
}

std::optional<Value> Namespace::attribute(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return std::nullopt;
  return at->second;
}

Value function(std::string name, Function::Body body) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<Function>(std::move(name), std::move(body))));
}

}  // namespace tessera::jinja
