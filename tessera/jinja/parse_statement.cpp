// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "tessera/jinja/parser.h"

namespace tessera::jinja {

using StatementKind = Statement::Kind;

Body parse(std::vector<Token> tokens) { return Parser(std::move(tokens)).whole(); }

Body Parser::whole() {
  Body out = statements({});
  if (now().kind != TokenKind::end) unexpected("the end");
  return out;
}

/// Parses statements up to the end of the template, or up to a block whose name is in `ends`. That name is then the
/// next token.
Body Parser::statements(std::initializer_list<std::string_view> ends) {
  const Deeper deeper(*this);
  const int begun = now().line;
  Body out;
  while (true) {
    switch (now().kind) {
      case TokenKind::data: {
        Statement s{.kind = StatementKind::data, .line = now().line};
        s.text = next().text;
        out.push_back(std::move(s));
        break;
      }
      case TokenKind::output_begin: {
        next();
        Statement s{.kind = StatementKind::output, .line = now().line};
        s.expression = expressions();
        if (now().kind != TokenKind::output_end) unexpected("'}}'");
        next();
        out.push_back(std::move(s));
        break;
      }
      case TokenKind::block_begin: {
        next();
        if (now().kind == TokenKind::name && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
        out.push_back(statement());
        break;
      }
      default:
        if (now().kind == TokenKind::end && ends.size() == 0) return out;
        syntax_error(begun, "a block has no '" + std::string(ends.size() ? *(ends.end() - 1) : "end") + "'");
    }
  }
}

/// Expects `word`, the name of a block that ends another one, followed by '%}'.
void Parser::end_of_block(std::string_view word) {
  if (!word.empty() && !skip_name(word)) unexpected(word);
  if (now().kind != TokenKind::block_end) unexpected("'%}'");
  next();
}

Statement Parser::statement() {
  if (now().kind != TokenKind::name) unexpected("the name of a block");
  const int line = now().line;
  const std::string name = now().text;
  if (name == "if") return if_statement();
  if (name == "for") return for_statement();
  if (name == "set") return set_statement();
  if (name == "with") return with_statement();
  if (name == "macro") return macro_statement();
  if (name == "call") return call_statement();
  Statement out{.kind = StatementKind::body, .line = line};
  if (name == "filter") {
    next();
    out.kind = StatementKind::filter;
    // The first filter has no preceding '|'.
    auto first = make(Expression::Kind::filter);
    first->of.push_back(nullptr);
    first->text = expect_name();
    if (is_sign("(")) first->arguments = arguments();
    out.expression = filter_chain(std::move(first));
    end_of_block("");
    out.body = statements({"endfilter"});
    end_of_block("endfilter");
  } else if (name == "generation") {
    next();
    end_of_block("");
    out.body = statements({"endgeneration"});
    end_of_block("endgeneration");
  } else if (name == "break" || name == "continue") {
    if (loops_ == 0) syntax_error(line, "'" + name + "' outside of a loop");
    next();
    out.kind = name == "break" ? StatementKind::leave : StatementKind::next;
    end_of_block("");
  } else {
    syntax_error(line, "'{% " + name + " %}' is not supported",
                 "Supported are if, for, set, macro, call, filter, with, raw, break, continue and generation");
  }
  return out;
}

Statement Parser::if_statement() {
  const Deeper deeper(*this);
  Statement out{.kind = StatementKind::choice, .line = next().line};
  out.expression = expressions();
  end_of_block("");
  out.body = statements({"elif", "else", "endif"});
  if (is_name("elif")) {
    out.otherwise.push_back(if_statement());  // also parses the endif
  } else {
    if (skip_name("else")) {
      end_of_block("");
      out.otherwise = statements({"endif"});
    }
    end_of_block("endif");
  }
  return out;
}

ExpressionPtr Parser::target(bool with_attribute) {
  const auto one = [&] {
    if (skip_sign("(")) {
      auto out = target(false);
      expect_sign(")");
      return out;
    }
    auto out = make(Expression::Kind::name);
    out->text = expect_name();
    for (const char* s : {"true", "false", "none", "True", "False", "None"})
      if (out->text == s) syntax_error(out->line, "'" + out->text + "' cannot be assigned to");
    return out;
  };
  const Deeper deeper(*this);
  auto first = one();
  if (with_attribute && skip_sign(".")) {
    auto out = make(Expression::Kind::attribute, std::move(first));
    out->text = expect_name();
    return out;
  }
  if (!is_sign(",")) return first;
  auto out = make(Expression::Kind::tuple, std::move(first));
  while (skip_sign(",")) {
    if (is_name("in") || is_sign("=") || is_sign(")")) break;
    out->of.push_back(one());
  }
  return out;
}

Statement Parser::for_statement() {
  Statement out{.kind = StatementKind::loop, .line = next().line};
  out.target = target(false);
  if (!skip_name("in")) unexpected("'in'");
  out.expression = expressions(false);
  if (skip_name("if")) out.condition = expression();
  out.recursive = skip_name("recursive");
  end_of_block("");
  ++loops_;
  out.body = statements({"else", "endfor"});
  --loops_;
  if (skip_name("else")) {
    end_of_block("");
    out.otherwise = statements({"endfor"});
  }
  end_of_block("endfor");
  return out;
}

Statement Parser::set_statement() {
  Statement out{.kind = StatementKind::set, .line = next().line};
  out.target = target(true);
  if (skip_sign("=")) {
    out.expression = expressions();
    end_of_block("");
    return out;
  }
  out.kind = StatementKind::set_block;
  if (is_sign("|")) out.expression = filter_chain(nullptr);
  end_of_block("");
  out.body = statements({"endset"});
  end_of_block("endset");
  return out;
}

Statement Parser::with_statement() {
  Statement out{.kind = StatementKind::with, .line = next().line};
  while (now().kind != TokenKind::block_end) {
    if (!out.targets.empty()) expect_sign(",");
    out.targets.push_back(target(false));
    expect_sign("=");
    out.values.push_back(expression());
  }
  end_of_block("");
  out.body = statements({"endwith"});
  end_of_block("endwith");
  return out;
}

std::vector<Parameter> Parser::parameters() {
  std::vector<Parameter> out;
  expect_sign("(");
  while (!skip_sign(")")) {
    if (!out.empty()) expect_sign(",");
    Parameter p{expect_name(), nullptr};
    if (skip_sign("=")) {
      p.otherwise = expression();
    } else if (!out.empty() && out.back().otherwise) {
      syntax_error(now().line, "a parameter without a default after one with a default");
    }
    out.push_back(std::move(p));
  }
  return out;
}

Statement Parser::macro_statement() {
  Statement out{.kind = StatementKind::macro, .line = next().line};
  out.text = expect_name();
  out.parameters = parameters();
  end_of_block("");
  const int loops = std::exchange(loops_, 0);
  const std::size_t begin = at_;
  out.body = statements({"endmacro"});
  for (std::size_t i = begin; i < at_; ++i) {
    if (tokens_[i].kind != TokenKind::name) continue;
    out.takes_more |= tokens_[i].text == "varargs";
    out.takes_more_named |= tokens_[i].text == "kwargs";
  }
  loops_ = loops;
  end_of_block("endmacro");
  return out;
}

Statement Parser::call_statement() {
  Statement out{.kind = StatementKind::call, .line = next().line};
  if (is_sign("(")) out.parameters = parameters();
  out.expression = expression();
  if (out.expression->kind != Expression::Kind::call) syntax_error(out.line, "'{% call %}' needs a call of a macro");
  end_of_block("");
  const int loops = std::exchange(loops_, 0);
  out.body = statements({"endcall"});
  loops_ = loops;
  end_of_block("endcall");
  return out;
}

}  // namespace tessera::jinja
