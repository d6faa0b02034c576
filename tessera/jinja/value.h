// SPDX-License-Identifier: Apache-2.0
// The values of chat templates: the subset of Python's values that Jinja uses.
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

/// An error in a template at run time. `Template` adds the line.
class Fault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fault(const std::string& what);

/// A byte range of a text.
struct Span {
  std::size_t begin, end;
};

/// UTF-8 text that records which of its bytes were passed to the template as data. Special tokens in data are plain
/// text. If an operation cannot determine which bytes of its result are data, it marks all of them.
struct Text {
  std::string bytes;
  std::vector<Span> given;  ///< the ranges of data: sorted, disjoint and not empty
  bool markup = false;      ///< result of `|safe` or `|escape`: text added with + is HTML-escaped

  Text() = default;
  Text(std::string ours) : bytes(std::move(ours)) {}  // NOLINT: the template's own text
  static Text data(std::string bytes);

  bool any_given() const { return !given.empty(); }
  void append(const Text& more);
  void append(std::string_view ours) { bytes += ours; }
  void append(const std::string& ours) { bytes += ours; }
  void append(const char* ours) { bytes += ours; }
  /// Returns the bytes [begin, end).
  Text part(std::size_t begin, std::size_t end) const;
  /// Returns a text with these bytes, which were computed from all of this text. All of them are marked as data if any
  /// byte of this text is data.
  Text made(std::string bytes) const;
};

class Value;
class Object;
struct List;
class Dict;

/// The value of an undefined name. `what` is the error message for its use.
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
  /// Throws a Fault if lists are nested more than `max_depth` levels deep.
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
  const List* items() const;  ///< for lists and tuples
  const Dict* dict() const;
  Object* object() const;
  std::int64_t integer() const;  ///< also accepts a bool
  double real() const;           ///< accepts any number
  const Undefined* missing() const { return std::get_if<Undefined>(&v_); }

  /// Returns Python's truth value. Undefined values are false.
  bool truth() const;
  /// Returns the nesting depth of lists and dicts.
  int depth() const;
  /// Returns Python's name of the type: "str", "int", ...
  std::string type() const;
  bool same(const Value& other) const;  ///< Python's `is`, as far as templates can observe it

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

/// A dict. Keys keep their insertion order. 1, 1.0 and true are the same key.
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

  /// Returns the argument at this position or with this name. The result is undefined if it was not passed.
  Value get(std::size_t place, std::string_view name) const;
  Value get(std::size_t place, std::string_view name, Value otherwise) const;
  const Value* find(std::size_t place, std::string_view name) const;
  /// Throws a Fault if there are more positional arguments than `names`, or if a named argument is not in `names`. The
  /// message contains `who`.
  void check(std::string_view who, std::initializer_list<std::string_view> names) const;
};

class Interpreter;

/// A value that has attributes or can be called: macros, namespaces, `loop` and functions.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(std::string_view) const { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, const Arguments&);
  virtual void forget() {}  ///< drops references to other objects at the end of a rendering
  virtual std::string name() const = 0;
};

bool equal(const Value& a, const Value& b);
/// Returns a negative number, 0 or a positive number. Throws a Fault if Python cannot compare the values.
int compare(const Value& a, const Value& b);
/// Returns true if `item` is an element, a key or a substring of `container`.
bool contains(const Value& container, const Value& item);
/// Returns the values that a loop iterates over: elements, keys or characters. Undefined values have none. Throws a
/// Fault for other values.
std::vector<Value> elements(const Value& of);
/// Escapes &, <, > and quotes for HTML.
Text escaped(const Text& t);
/// Python's str(v) and repr(v).
Text to_text(const Value& v);
Text to_repr(const Value& v);
std::string real_repr(double d);
/// Truncates towards zero. Throws a Fault if the result does not fit in 64 bits.
std::int64_t truncated(double d);
/// Like Python's json.dumps with ensure_ascii=False. If `indent` is negative, the result is a single line.
Text to_json(const Value& v, int indent, bool sort_keys, const std::string& item_separator,
             const std::string& key_separator);

/// Returns the offset of each character of a text, followed by the size of the text.
std::vector<std::size_t> character_starts(std::string_view text);
std::size_t count_characters(std::string_view text);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
bool is_space(char32_t c);  ///< like Python's str.isspace

}  // namespace tessera::jinja
