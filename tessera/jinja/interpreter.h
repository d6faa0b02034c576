// SPDX-License-Identifier: Apache-2.0
// Interprets the syntax tree of a template.
#pragma once

#include <functional>
#include <map>
#include <unordered_map>

#include "tessera/jinja/syntax.h"

namespace tessera::jinja {

/// The variables of a block, and a link to the enclosing scope.
struct Scope {
  std::unordered_map<std::string, Value> names;
  std::shared_ptr<Scope> outer;
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  /// Limits evaluation to `steps` steps and `bytes` bytes of generated text.
  Interpreter(std::size_t steps, std::size_t bytes) : steps_(steps), bytes_(bytes) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  enum class Flow { on, leave, next };
  Flow run(const Body& body, const ScopePtr& scope, Text& out);
  Value evaluate(const Expression& e, const ScopePtr& scope);
  Value call(const Value& what, const Arguments& arguments);

  /// Counts steps. Throws a Fault if the limit is exceeded.
  void spend(std::size_t steps);
  /// Counts bytes of text or other generated data. Throws a Fault if the limit is exceeded.
  void room(std::size_t bytes);
  /// Counts the size of the result of a filter or function.
  void count(const Value& made);
  /// Registers an object that may be part of a reference cycle, so that it is freed at the end.
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }
  int line() const { return line_; }

  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& index);
  /// Looks up a path such as "a.b.0" within a value, for the `attribute` arguments of filters.
  Value path(const Value& of, const Value& path);
  Value filter(const std::string& name, const Value& of, const Arguments& arguments);
  bool test(const std::string& name, const Value& of, const Arguments& arguments);

 private:
  friend class Macro;
  friend class Loop;
  Flow run(const Statement& s, const ScopePtr& scope, Text& out);
  Flow loop(const Statement& s, const Value& over, const ScopePtr& scope, Text& out, int depth);
  void assign(const Expression& target, const Value& value, const ScopePtr& scope);
  Arguments arguments_of(const std::vector<WrittenArgument>& written, const ScopePtr& scope);
  Value apply_filters(const Expression& e, const Value& body, const ScopePtr& scope);
  Value call_expression(const Expression& e, const ScopePtr& scope, const Value* caller);
  Value compute(const Expression& e, const ScopePtr& scope);
  Value compare_chain(const Expression& e, const ScopePtr& scope);
  Value slice(const Expression& e, const ScopePtr& scope);
  void output(Text& out, const Text& text);

  struct Deeper;
  std::size_t steps_, bytes_;
  int line_ = 1, depth_ = 0, expression_depth_ = 0;
  std::vector<ScopePtr> scopes_;  // the scopes that macros refer to
  std::vector<std::shared_ptr<Object>> kept_;
};

/// A function that a template can call.
class Function : public Object {
 public:
  using Body = std::function<Value(Interpreter&, const Arguments&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  bool callable() const override { return true; }
  Value call(Interpreter& in, const Arguments& arguments) override { return body_(in, arguments); }
  std::string name() const override { return "function " + name_; }
  void forget() override { body_ = nullptr; }

 private:
  std::string name_;
  Body body_;
};
Value function(std::string name, Function::Body body);

/// The result of `namespace(...)`. This is the only object that templates can modify.
class Namespace : public Object {
 public:
  std::optional<Value> attribute(std::string_view name) const override;
  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  std::string name() const override { return "Namespace"; }
  void forget() override { values_.clear(); }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

// These look up a function by name and return null if there is none.
using FilterBody = Value (*)(Interpreter&, const Value&, const Arguments&);
using TestBody = bool (*)(Interpreter&, const Value&, const Arguments&);
FilterBody find_filter(std::string_view name);                   // filters.cpp
TestBody find_test(std::string_view name);                       // tests.cpp
FilterBody find_method(const Value& of, std::string_view name);  // methods.cpp
/// Adds range, dict, namespace, cycler and joiner.
void add_functions(std::unordered_map<std::string, Value>& names);

/// Computes an operation like Python. `op` is "+", "-", "*", "/", "//", "%" or "**".
Value arithmetic(Interpreter& in, const std::string& op, const Value& a, const Value& b);
/// Computes "..." % values like Python.
Text format_percent(Interpreter& in, const Text& form, const Value& values);
/// Returns the indices that [begin:end:step] selects from `size` elements in Python.
std::vector<std::size_t> slice_places(std::size_t size, const Value& begin, const Value& end, const Value& step);

}  // namespace tessera::jinja
