// SPDX-License-Identifier: Apache-2.0
// The values that a chat template computes with: Python's, as far as Jinja shows them.
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

/// What a template does wrong while it runs; `Template` adds the line.
class Fault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fault(const std::string& what);

/// A part of a text, in bytes.
struct Span {
  std::size_t begin, end;
};

/// UTF-8 that knows which of its bytes were given to the template as data: what looks like a special token there is
/// plain text. Where an operation cannot say which bytes of its result are data, all are.
struct Text {
  std::string bytes;
  std::vector<Span> given;  ///< in order, apart from one another, none empty
  bool markup = false;      ///< `|safe` or `|escape`: what is added to it with + is escaped for HTML first

  Text() = default;
  Text(std::string ours) : bytes(std::move(ours)) {}  // NOLINT: a template's own text
  static Text data(std::string bytes);

  bool any_given() const { return !given.empty(); }
  void append(const Text& more);
  void append(std::string_view ours) { bytes += ours; }
  void append(const std::string& ours) { bytes += ours; }
  void append(const char* ours) { bytes += ours; }
  /// The bytes from `begin` to before `end`.
  Text part(std::size_t begin, std::size_t end) const;
  /// `bytes` in place of these, made of all of them: data if any of these is.
  Text made(std::string bytes) const;
};

class Value;
class Object;
struct List;
class Dict;

/// A name that has no value; `what` is the sentence for the one who uses it all the same.
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
  /// Lists nest at most `max_depth` deep, else a Fault.
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
  const List* items() const;  ///< of a list or a tuple
  const Dict* dict() const;
  Object* object() const;
  std::int64_t integer() const;  ///< of a bool too
  double real() const;           ///< of any number
  const Undefined* missing() const { return std::get_if<Undefined>(&v_); }

  /// Python's truth. Undefined is false.
  bool truth() const;
  /// How deep lists and dicts nest in it.
  int depth() const;
  /// "str", "int", ... as Python's messages name them.
  std::string type() const;
  bool same(const Value& other) const;  ///< Python's `is`, where it can be seen

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

/// Keys keep the order in which they came; 1, 1.0 and true are one key.
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

/// Arguments of a call, as a template writes them.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument of this place or name; undefined if it was not given.
  Value get(std::size_t place, std::string_view name) const;
  Value get(std::size_t place, std::string_view name, Value otherwise) const;
  const Value* find(std::size_t place, std::string_view name) const;
  /// A Fault if there are more than these: `who` takes that many, and these names.
  void check(std::string_view who, std::initializer_list<std::string_view> names) const;
};

class Interpreter;

/// What has attributes or can be called: macros, namespaces, `loop`, functions.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(std::string_view) const { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, const Arguments&);
  virtual void forget() {}  ///< drops what it refers to, at the end of a rendering
  virtual std::string name() const = 0;
};

bool equal(const Value& a, const Value& b);
/// Negative, 0 or positive; a Fault where Python cannot order them.
int compare(const Value& a, const Value& b);
/// Whether `item` is in `container`: an element, a key, a part of a text.
bool contains(const Value& container, const Value& item);
/// What a loop over it meets: elements, keys, characters; nothing for undefined; else a Fault.
std::vector<Value> elements(const Value& of);
/// With &, <, > and quotes as HTML's entities.
Text escaped(const Text& t);
/// str(v) and repr(v) of Python.
Text to_text(const Value& v);
Text to_repr(const Value& v);
std::string real_repr(double d);
/// Towards zero; a Fault where no 64 bits hold it.
std::int64_t truncated(double d);
/// As Python's json.dumps with ensure_ascii=False. `indent` below 0: on one line.
Text to_json(const Value& v, int indent, bool sort_keys, const std::string& item_separator,
             const std::string& key_separator);

/// Where each character of a text begins, and the text's end.
std::vector<std::size_t> character_starts(std::string_view text);
std::size_t count_characters(std::string_view text);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
bool is_space(char32_t c);  ///< as str.isspace

}  // namespace tessera::jinja
