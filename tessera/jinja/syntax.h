// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template, and the function that parses it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/jinja/lexer.h"
#include "tessera/jinja/value.h"

namespace tessera::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// An argument of a call in the source.
struct WrittenArgument {
  enum class Kind { positional, named, spread, spread_named };  ///< x, name=x, *x, **x
  Kind kind;
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  /// Each comment shows the source text of the expression, written with the members of this struct.
  enum class Kind {
    constant,     ///< value
    name,         ///< text
    list,         ///< [of[0], of[1], ...]
    tuple,        ///< (of[0], of[1], ...)
    dict,         ///< {of[0]: of[1], of[2]: of[3], ...}
    attribute,    ///< of[0].text
    item,         ///< of[0][of[1]]
    slice,        ///< of[0][of[1]:of[2]:of[3]]; omitted parts are null
    call,         ///< of[0](arguments)
    filter,       ///< of[0] | text(arguments); if of[0] is null, filters the body of a block
    test,         ///< of[0] is text(arguments)
    negative,     ///< -of[0]
    positive,     ///< +of[0]
    arithmetic,   ///< of[0] text of[1]
    concatenate,  ///< of[0] ~ of[1] ~ ...
    comparison,   ///< of[0] operators[0] of[1] operators[1] of[2] ...
    logical_not,
    logical_and,
    logical_or,
    condition,  ///< of[1] if of[0] else of[2], which may be null
  };
  Kind kind;
  int line;
  std::string text = {};
  Value value = {};
  std::vector<ExpressionPtr> of = {};
  std::vector<std::string> operators = {};
  std::vector<WrittenArgument> arguments = {};
};

struct Statement;
using Body = std::vector<Statement>;

/// A parameter of a macro, and its default (null if it has none).
struct Parameter {
  std::string name;
  ExpressionPtr otherwise;
};

struct Statement {
  /// Each comment describes the source of the statement with the members of this struct.
  enum class Kind {
    data,       ///< prints `text`
    output,     ///< prints `expression`
    choice,     ///< if `expression` then `body` else `otherwise`; an elif is a nested choice
    loop,       ///< for `target` in `expression` if `condition`: `body`; `otherwise` is the else branch
    set,        ///< `target` = `expression`
    set_block,  ///< `target` = `body`; `expression` is a filter or null
    with,       ///< with `targets` = `values`: `body`
    macro,      ///< a macro `text` with `parameters` and `body`
    call,       ///< `expression` is the call; `parameters` and `body` define caller()
    filter,     ///< applies the filters in `expression` to `body`
    body,       ///< a generation block with `body`
    leave,      ///< break
    next,       ///< continue
  };
  Kind kind;
  int line;
  std::string text = {};
  ExpressionPtr target = {}, expression = {}, condition = {};
  std::vector<ExpressionPtr> targets = {}, values = {};
  std::vector<Parameter> parameters = {};
  Body body = {}, otherwise = {};
  bool recursive = false;
  bool takes_more = false, takes_more_named = false;  ///< the macro uses varargs or kwargs
};

/// Parses a template. Throws FormatError with the line for syntax errors and unsupported constructs (include, import,
/// extends, block, do, ...).
Body parse(std::vector<Token> tokens);

}  // namespace tessera::jinja
