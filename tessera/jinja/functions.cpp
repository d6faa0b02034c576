// SPDX-License-Identifier: Apache-2.0
// Functions that all templates can call.
#include <algorithm>
#include <unordered_map>

#include "tessera/jinja/filter_bodies.h"

namespace tessera::jinja {
namespace {

Value range(Interpreter& in, const Arguments& a) {
  a.check("range", {"start", "stop", "step"});
  if (a.positional.empty()) fault("range needs a number");
  const std::int64_t first = a.positional[0].integer();
  const std::int64_t begin = a.positional.size() > 1 ? first : 0;
  const std::int64_t end = a.positional.size() > 1 ? a.positional[1].integer() : first;
  const std::int64_t step = a.positional.size() > 2 ? a.positional[2].integer() : 1;
  if (step == 0) fault("range: the step cannot be zero");
  std::vector<Value> out;
  // The sandbox that `transformers` uses for rendering has the same limit.
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (out.size() == 100'000) fault("range: more than 100,000 numbers");
    out.emplace_back(i);
    in.spend(1);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(out));
}

Value dict(Interpreter&, const Arguments& a) {
  Dict out;
  if (a.positional.size() > 1) fault("dict takes one positional argument and any number of named arguments");
  if (!a.positional.empty()) {
    const Value& from = a.positional[0];
    if (from.dict()) {
      for (const auto& [key, value] : from.dict()->entries()) out.set(key, value);
    } else {
      for (const Value& pair : elements(from)) {
        const auto two = elements(pair);
        if (two.size() != 2) fault("the argument of dict must be a sequence of pairs");
        out.set(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : a.named) out.set(name, value);
  return out;
}

Value make_namespace(Interpreter& in, const Arguments& a) {
  const auto out = std::make_shared<Namespace>();
  const Value first = dict(in, a);
  for (const auto& [key, value] : first.dict()->entries()) out->set(to_text(key).bytes, value);
  in.spend(16);
  in.keep(out);
  return Value(std::static_pointer_cast<Object>(out));
}

/// cycler("a", "b") has .next(), .current and .reset().
class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> values) : values_(std::move(values)) {}
  std::string name() const override { return "Cycler"; }
  void forget() override { values_.clear(); }
  std::optional<Value> attribute(std::string_view name) const override {
    auto* self = const_cast<Cycler*>(this);  // the interpreter keeps this object alive
    if (name == "current") return values_[at_];
    if (name == "next")
      return function("next", [self](Interpreter&, const Arguments&) {
        return self->values_[std::exchange(self->at_, (self->at_ + 1) % self->values_.size())];
      });
    if (name == "reset")
      return function("reset", [self](Interpreter&, const Arguments&) { return self->at_ = 0, Value(None{}); });
    return std::nullopt;
  }

 private:
  std::vector<Value> values_;
  std::size_t at_ = 0;
};

/// joiner(", ") returns an empty string on the first call and the separator on later calls.
class Joiner : public Object {
 public:
  explicit Joiner(Value between) : between_(std::move(between)) {}
  std::string name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, const Arguments&) override { return std::exchange(used_, true) ? between_ : Value(""); }

 private:
  Value between_;
  bool used_ = false;
};

}  // namespace

void add_functions(std::unordered_map<std::string, Value>& names) {
  names["range"] = function("range", range);
  names["dict"] = function("dict", dict);
  names["namespace"] = function("namespace", make_namespace);
  names["cycler"] = function("cycler", [](Interpreter& in, const Arguments& a) {
    if (a.positional.empty()) fault("cycler needs values");
    const auto out = std::make_shared<Cycler>(a.positional);
    in.spend(16);
    in.keep(out);
    return Value(std::static_pointer_cast<Object>(out));
  });
  names["joiner"] = function("joiner", [](Interpreter&, const Arguments& a) {
    return Value(std::static_pointer_cast<Object>(std::make_shared<Joiner>(a.get(0, "sep", ", "))));
  });
}

}  // namespace tessera::jinja
