// SPDX-License-Identifier: Apache-2.0
// The values of chat templates: the subset of Python's that Jinja exposes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::jinja {

/// An error of a template at run time; `Template` adds the line.
class Fault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fault(const std::string& what);

/// A byte range of a text.
struct Span {
  std::size_t begin, end;
};

/// UTF-8 text that tracks which of its bytes were passed to the template as data, in which special tokens are plain
/// text. If an operation cannot tell which bytes of its result are data, all of them are.
struct Text {
  std::string bytes;
  std::vector<Span> given;  ///< in order, disjoint, none empty
  bool markup = false;      ///< result of `|safe` or `|escape`: text added with + is HTML-escaped

  Text() = default;
  Text(std::string ours) : bytes(std::move(ours)) {}  // NOLINT: a template's own text
  static Text data(std::string bytes);

  bool any_given() const { return !given.empty(); }
  void append(const Text& more);
  void append(std::string_view ours) { bytes += ours; }
  void append(const std::string& ours) { bytes += ours; }
  void append(const char* ours) { bytes += ours; }
  /// The bytes [begin, end).
  Text part(std::size_t begin, std::size_t end) const;
  /// Returns text made from all bytes of this one: all of it is data if any of these bytes is.
  Text made(std::string bytes) const;
};

class Value;
class Object;
struct List;
class Dict;

/// The value of an undefined name; `what` is the error message if it is used.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};

class Value {
 public:
  Value() = default;
  Value(None) : v_(None{}) {}                                        // NOLINT
  Value(Undefined u) : v_(u) {}                                      // NOLINT
  Value(bool b) : v_(b) {}                                           // NOLINT
  Value(std::int64_t i) : v_(i) {}                                   // NOLINT
  Value(int i) : Value(std::int64_t{i}) {}                           // NOLINT
  Value(std::size_t i) : Value(static_cast<std::int64_t>(i)) {}      // NOLINT
  Value(double d) : v_(d) {}                                         // NOLINT
  Value(Text t) : v_(std::make_shared<const Text>(std::move(t))) {}  // NOLINT
  Value(std::string ours) : Value(Text(std::move(ours))) {}          // NOLINT
  Value(const char* ours) : Value(std::string(ours)) {}              // NOLINT
  Value(std::shared_ptr<Object> o) : v_(std::move(o)) {}             // NOLINT
  Value(Dict d);                                                     // NOLINT
  /// Throws a Fault if lists nest more than `max_depth` deep.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value undefined(const std::string& what);
  static constexpr int max_depth = 64;

  bool is_undefined() const { return std::holds_alternative<Undefined>(v_); }
  bool is_none() const { return std::holds_alternative<None>(v_); }
  bool is_bool() const { return std::holds_alternative<bool>(v_); }
  bool is_integer() const { return is_bool() || std::holds_alternative<std::int64_t>(v_); }
  bool is_real() const { return std::holds_alternative<double>(v_); }
  bool is_number() const { return is_integer() || is_real(); }
  bool is_text() const { return text() != nullptr; }

  const Text* text() const;
  const List* items() const;  ///< of a list or tuple
  const Dict* dict() const;
  Object* object() const;
  std::int64_t integer() const;  ///< also of a bool
  double real() const;           ///< of any number
  const Undefined* missing() const { return std::get_if<Undefined>(&v_); }

  /// Python's truth value; undefined is false.
  bool truth() const;
  /// Nesting depth of lists and dicts.
  int depth() const;
  /// Python's type name: "str", "int", ...
  std::string type() const;
  bool same(const Value& other) const;  ///< Python's `is`, as far as it is observable

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      v_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
};

/// Keys keep their insertion order; 1, 1.0 and true are the same key.
class Dict {
 public:
  void set(const Value& key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const Value* find(const std::string& key) const { return find(std::string_view(key)); }
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, std::size_t> at_;
  int depth_ = 1;
};

/// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at this position or with this name; undefined if it was not given.
  Value get(std::size_t place, std::string_view name) const;
  Value get(std::size_t place, std::string_view name, Value otherwise) const;
  const Value* find(std::size_t place, std::string_view name) const;
  /// Throws a Fault if there are more positional arguments than `names`, or named ones that are not in `names`; `who`
  /// is used in the message.
  void check(std::string_view who, std::initializer_list<std::string_view> names) const;
};

class Interpreter;

/// A value with attributes or that can be called: macros, namespaces, `loop`, functions.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(std::string_view) const { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, const Arguments&);
  virtual void forget() {}  ///< drops its references, at the end of a rendering
  virtual std::string name() const = 0;
};

bool equal(const Value& a, const Value& b);
/// Returns a negative number, 0 or a positive number; throws a Fault if Python cannot compare them.
int compare(const Value& a, const Value& b);
/// Whether `item` is in `container`: an element, a key, or a substring.
bool contains(const Value& container, const Value& item);
/// The elements that a loop iterates over: elements, keys or characters; none for undefined; throws a Fault for other
/// values.
std::vector<Value> elements(const Value& of);
/// Escapes &, <, > and quotes for HTML.
Text escaped(const Text& t);
/// Python's str(v) and repr(v).
Text to_text(const Value& v);
Text to_repr(const Value& v);
std::string real_repr(double d);
/// Truncates towards zero; throws a Fault if the result does not fit in 64 bits.
std::int64_t truncated(double d);
/// Like Python's json.dumps with ensure_ascii=False. Negative `indent`: a single line.
Text to_json(const Value& v, int indent, bool sort_keys, const std::string& item_separator,
             const std::string& key_separator);

/// The offset of each character of a text, and the text's size.
std::vector<std::size_t> character_starts(std::string_view text);
std::size_t count_characters(std::string_view text);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
bool is_space(char32_t c);  ///< like str.isspace

}  // namespace tessera::jinja
