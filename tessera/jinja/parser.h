// SPDX-License-Identifier: Apache-2.0
// A recursive descent parser with the precedences of Jinja, which are defined by the code of jinja2/parser.py.
#pragma once

#include <algorithm>

#include "tessera/jinja/syntax.h"

namespace tessera::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body whole();

 private:
  // Defined in parse_statement.cpp.
  Body statements(std::initializer_list<std::string_view> ends);
  Statement statement();
  Statement if_statement();
  Statement for_statement();
  Statement set_statement();
  Statement with_statement();
  Statement macro_statement();
  Statement call_statement();
  std::vector<Parameter> parameters();
  ExpressionPtr target(bool with_attribute);
  void end_of_block(std::string_view word);

  // Defined in parse_expression.cpp.
  ExpressionPtr expression() { return condition(); }
  /// Parses an expression, or a tuple of expressions separated by commas. `conditional` allows "x if y".
  ExpressionPtr expressions(bool conditional = true);
  ExpressionPtr condition();
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr of);
  ExpressionPtr filters(ExpressionPtr of);
  ExpressionPtr filter_chain(ExpressionPtr of);
  ExpressionPtr test(ExpressionPtr of);
  ExpressionPtr subscript(ExpressionPtr of);
  std::vector<WrittenArgument> arguments();
  ExpressionPtr dict();

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool is_sign(std::string_view s) const { return now().kind == TokenKind::sign && now().text == s; }
  bool is_name(std::string_view s) const { return now().kind == TokenKind::name && now().text == s; }
  bool skip_sign(std::string_view s) { return is_sign(s) && (next(), true); }
  bool skip_name(std::string_view s) { return is_name(s) && (next(), true); }
  void expect_sign(std::string_view s);
  std::string expect_name();
  [[noreturn]] void unexpected(std::string_view expected) const;
  ExpressionPtr make(Expression::Kind kind) const;
  ExpressionPtr make(Expression::Kind kind, ExpressionPtr a, ExpressionPtr b = nullptr) const;

  /// Counts the nesting depth, which is limited because the tree is parsed, run and destroyed recursively.
  struct Deeper;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

struct Parser::Deeper {
  explicit Deeper(Parser& p);
  ~Deeper() { --parser.depth_; }
  Deeper(const Deeper&) = delete;
  Parser& parser;
};

}  // namespace tessera::jinja
