// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tessera/jinja/parser.h"

namespace tessera::jinja {
namespace {

using Kind = Expression::Kind;
constexpr int max_depth = 100;

}  // namespace

Parser::Deeper::Deeper(Parser& p) : parser(p) {
  if (++p.depth_ > max_depth) syntax_error(p.now().line, "expressions and blocks are nested more than 100 levels deep");
}

void Parser::expect_sign(std::string_view s) {
  if (!skip_sign(s)) unexpected("'" + std::string(s) + "'");
}
std::string Parser::expect_name() {
  if (now().kind != TokenKind::name) unexpected("a name");
  return next().text;
}
void Parser::unexpected(std::string_view expected) const {
  syntax_error(now().line, "expected " + std::string(expected) + ", found '" + now().text + "'");
}
ExpressionPtr Parser::make(Kind kind) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = now().line});
}
ExpressionPtr Parser::make(Kind kind, ExpressionPtr a, ExpressionPtr b) const {
  auto out = make(kind);
  if (a) out->line = a->line;
  out->of.push_back(std::move(a));
  if (b) out->of.push_back(std::move(b));
  return out;
}

ExpressionPtr Parser::expressions(bool conditional) {
  const auto one = [&] { return conditional ? condition() : logical_or(); };
  auto first = one();
  if (!is_sign(",")) return first;
  auto out = make(Kind::tuple);
  out->of.push_back(std::move(first));
  while (skip_sign(",")) {
    const bool ends = now().kind == TokenKind::block_end || now().kind == TokenKind::output_end || is_sign(")") ||
                      is_sign("]") || is_name("in");
    if (ends) break;
    out->of.push_back(one());
  }
  return out;
}

ExpressionPtr Parser::condition() {
  const Deeper deeper(*this);
  auto value = logical_or();
  // Each further branch of "a if b else c if d else e" adds a nesting level.
  if (!skip_name("if")) return value;
  auto out = make(Kind::condition);
  out->of.push_back(logical_or());
  out->of.push_back(std::move(value));
  out->of.push_back(skip_name("else") ? condition() : nullptr);
  return out;
}

ExpressionPtr Parser::logical_or() {
  auto left = logical_and();
  if (!is_name("or")) return left;
  auto out = make(Kind::logical_or, std::move(left));
  while (skip_name("or")) out->of.push_back(logical_and());
  return out;
}
ExpressionPtr Parser::logical_and() {
  auto left = logical_not();
  if (!is_name("and")) return left;
  auto out = make(Kind::logical_and, std::move(left));
  while (skip_name("and")) out->of.push_back(logical_not());
  return out;
}
ExpressionPtr Parser::logical_not() {
  if (!skip_name("not")) return comparison();
  const Deeper deeper(*this);
  return make(Kind::logical_not, logical_not());
}

ExpressionPtr Parser::comparison() {
  auto left = sum();
  ExpressionPtr out;
  while (true) {
    std::string op;
    for (const char* s : {"==", "!=", "<=", ">=", "<", ">"})
      if (op.empty() && is_sign(s)) op = s;
    if (op.empty() && is_name("in")) op = "in";
    if (op.empty() && is_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") next(), op = "not in";
    if (op.empty()) break;
    next();
    if (!out) out = make(Kind::comparison, std::move(left));
    out->operators.push_back(op);
    out->of.push_back(sum());
  }
  return out ? std::move(out) : std::move(left);
}

// Parses left-associative operators of the same precedence. A chain of n operators creates a tree of depth n, so the
// length of chains is limited.
ExpressionPtr Parser::sum() {
  auto left = concatenation();
  for (int n = 0; is_sign("+") || is_sign("-"); ++n) {
    if (n == 400) syntax_error(now().line, "the sum has more than 400 terms");
    const std::string op = next().text;
    left = make(Kind::arithmetic, std::move(left), concatenation());
    left->text = op;
  }
  return left;
}
ExpressionPtr Parser::concatenation() {
  auto left = product();
  if (!is_sign("~")) return left;
  auto out = make(Kind::concatenate, std::move(left));
  while (skip_sign("~")) out->of.push_back(product());
  return out;
}
ExpressionPtr Parser::product() {
  auto left = power();
  for (int n = 0; is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%"); ++n) {
    if (n == 400) syntax_error(now().line, "the product has more than 400 factors");
    const std::string op = next().text;
    left = make(Kind::arithmetic, std::move(left), power());
    left->text = op;
  }
  return left;
}
ExpressionPtr Parser::power() {
  auto left = unary();
  for (int n = 0; skip_sign("**"); ++n) {
    if (n == 100) syntax_error(now().line, "the power has more than 100 exponents");
    left = make(Kind::arithmetic, std::move(left), unary());
    left->text = "**";
  }
  return left;
}

ExpressionPtr Parser::unary(bool with_filter) {
  ExpressionPtr out;
  if (is_sign("-") || is_sign("+")) {
    const Deeper deeper(*this);
    const Kind kind = next().text == "-" ? Kind::negative : Kind::positive;
    out = make(kind, unary(false));
  } else {
    out = primary();
  }
  out = postfix(std::move(out));
  return with_filter ? filters(std::move(out)) : std::move(out);
}

ExpressionPtr Parser::primary() {
  const Deeper deeper(*this);
  auto out = make(Kind::constant);
  switch (now().kind) {
    case TokenKind::name: {
      const std::string name = next().text;
      if (name == "true" || name == "True") return out->value = true, std::move(out);
      if (name == "false" || name == "False") return out->value = false, std::move(out);
      if (name == "none" || name == "None") return out->value = None{}, std::move(out);
      out->kind = Kind::name, out->text = name;
      return out;
    }
    case TokenKind::text: {
      std::string text = next().text;
      while (now().kind == TokenKind::text) text += next().text;
      out->value = text;
      return out;
    }
    case TokenKind::integer: return out->value = next().integer, std::move(out);
    case TokenKind::real: return out->value = next().real, std::move(out);
    default: break;
  }
  if (skip_sign("(")) {
    if (skip_sign(")")) return make(Kind::tuple);
    out = expressions();
    expect_sign(")");
    return out;
  }
  if (skip_sign("[")) {
    out->kind = Kind::list;
    while (!skip_sign("]")) {
      if (!out->of.empty()) {
        expect_sign(",");
        if (skip_sign("]")) break;
      }
      out->of.push_back(expression());
    }
    return out;
  }
  if (is_sign("{")) return dict();
  unexpected("an expression");
}

ExpressionPtr Parser::dict() {
  auto out = make(Kind::dict);
  expect_sign("{");
  while (!skip_sign("}")) {
    if (!out->of.empty()) {
      expect_sign(",");
      if (skip_sign("}")) break;
    }
    out->of.push_back(expression());
    expect_sign(":");
    out->of.push_back(expression());
  }
  return out;
}

ExpressionPtr Parser::postfix(ExpressionPtr of) {
  for (int n = 0;; ++n) {
    if (n == 100) syntax_error(now().line, "more than 100 attributes or calls in a row");
    if (is_sign(".") || is_sign("[")) {
      of = subscript(std::move(of));
    } else if (is_sign("(")) {
      of = make(Kind::call, std::move(of));
      of->arguments = arguments();
    } else {
      return of;
    }
  }
}

ExpressionPtr Parser::filters(ExpressionPtr of) {
  for (int n = 0;; ++n) {
    if (n == 100) syntax_error(now().line, "more than 100 filters or tests in a row");
    if (is_sign("|")) {
      of = filter_chain(std::move(of));
    } else if (is_name("is")) {
      of = test(std::move(of));
    } else if (is_sign("(")) {
      of = make(Kind::call, std::move(of));
      of->arguments = arguments();
    } else {
      return of;
    }
  }
}

ExpressionPtr Parser::filter_chain(ExpressionPtr of) {
  for (int n = 0; skip_sign("|"); ++n) {
    if (n == 100) syntax_error(now().line, "more than 100 filters in a row");
    auto out = make(Kind::filter);
    out->of.push_back(std::move(of));
    out->text = expect_name();
    if (is_sign("(")) out->arguments = arguments();
    of = std::move(out);
  }
  return of;
}

ExpressionPtr Parser::test(ExpressionPtr of) {
  next();  // skip `is`
  const bool negated = skip_name("not");
  auto out = make(Kind::test, std::move(of));
  out->text = expect_name();
  while (skip_sign(".")) out->text += "." + expect_name();
  const bool argument_follows =
      (now().kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and")) ||
      now().kind == TokenKind::text || now().kind == TokenKind::integer || now().kind == TokenKind::real ||
      is_sign("[") || is_sign("{");
  if (is_sign("(")) {
    out->arguments = arguments();
  } else if (argument_follows && !is_name("if") && !is_name("in")) {
    if (is_name("is")) syntax_error(now().line, "tests cannot be chained with 'is'");
    auto argument = postfix(primary());
    out->arguments.push_back({WrittenArgument::Kind::positional, "", std::move(argument)});
  }
  return negated ? make(Kind::logical_not, std::move(out)) : std::move(out);
}

ExpressionPtr Parser::subscript(ExpressionPtr of) {
  if (skip_sign(".")) {
    auto out = make(Kind::attribute, std::move(of));
    if (now().kind == TokenKind::integer) {
      out->kind = Kind::item;
      auto index = make(Kind::constant);
      index->value = next().integer;
      out->of.push_back(std::move(index));
    } else {
      out->text = expect_name();
    }
    return out;
  }
  expect_sign("[");
  const Deeper deeper(*this);
  auto out = make(Kind::item, std::move(of));
  ExpressionPtr parts[3];
  bool slice = false;
  for (int i = 0; i < 3; ++i) {
    if (!is_sign(":") && !is_sign("]")) parts[i] = i == 0 ? expressions() : expression();
    if (!skip_sign(":")) break;
    slice = true;
  }
  expect_sign("]");
  if (slice) {
    out->kind = Kind::slice;
    for (auto& p : parts) out->of.push_back(std::move(p));
  } else {
    if (!parts[0]) unexpected("an index");
    out->of.push_back(std::move(parts[0]));
  }
  return out;
}

std::vector<WrittenArgument> Parser::arguments() {
  const Deeper deeper(*this);
  using K = WrittenArgument::Kind;
  std::vector<WrittenArgument> out;
  expect_sign("(");
  while (!skip_sign(")")) {
    if (!out.empty()) {
      expect_sign(",");
      if (skip_sign(")")) break;
    }
    if (skip_sign("*")) {
      out.push_back({K::spread, "", expression()});
    } else if (skip_sign("**")) {
      out.push_back({K::spread_named, "", expression()});
    } else if (now().kind == TokenKind::name && ahead().kind == TokenKind::sign && ahead().text == "=") {
      std::string name = next().text;
      next();
      out.push_back({K::named, std::move(name), expression()});
    } else {
      const bool named_before = std::any_of(out.begin(), out.end(), [](const auto& a) { return a.kind == K::named; });
      if (named_before) syntax_error(now().line, "a positional argument after a named one");
      out.push_back({K::positional, "", expression()});
    }
  }
  return out;
}

}  // namespace tessera::jinja
