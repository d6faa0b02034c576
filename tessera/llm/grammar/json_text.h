// SPDX-License-Identifier: Apache-2.0
// Expressions for the text of JSON documents (RFC 8259), and the rules that schemas share.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/grammar/expression.h"

namespace tessera::grammar {

/// Returns one character of `set` in a JSON string. It is written without an escape if possible, otherwise with an
/// escape of two characters. Other control characters are left out, unless the set has no more than these.
Expression string_character(const CodePointSet& set);
/// Returns any characters in a JSON string, written like string_character().
Expression string_characters(std::uint32_t min = 0, std::uint32_t max = unlimited);
/// Returns `inner` between quotation marks.
Expression quoted(Expression inner);

/// The rules of a grammar for JSON. Rules for values of any form are added when they are first used.
class JsonRules {
 public:
  Rules rules;

  /// Adds a rule, whose body can be set later, and returns its index.
  std::uint32_t add(std::string name, Expression body = {});

  Expression space();    ///< nothing, one space, or a line break and up to 40 spaces
  Expression string();   ///< any string, with any escapes. Surrogates occur only in pairs
  Expression integer();  ///< an integer with at most 18 digits
  Expression number();   ///< a number with at most 16 digits before and after the point, and 2 of the exponent
  Expression value();    ///< any value
  Expression object();   ///< any object
  Expression array();    ///< any array

  /// An object. `members` is a list of at least one member with commas.
  Expression object_of(Expression members, bool can_be_empty);
  /// An array. `elements` is a list of at least one element with commas.
  Expression array_of(Expression elements, bool can_be_empty);
  /// A member of an object. `key` includes the quotation marks.
  Expression member(Expression key, Expression value);
  /// A comma and space, before another member or element.
  Expression comma();
  /// A string that is none of `names`, which are UTF-8. It is written like string_characters(), so no escape can hide
  /// one of the names.
  Expression string_except(const std::vector<std::string>& names);

 private:
  enum Shared { space_rule, string_rule, integer_rule, number_rule, value_rule, object_rule, array_rule, shared_rules };
  /// Returns a shared rule. If it is new, `body` computes its body, which may use the rule itself.
  template <class Body>
  Expression shared(Shared which, const char* name, const Body& body);
  std::array<std::optional<std::uint32_t>, shared_rules> shared_;
};

}  // namespace tessera::grammar
