// SPDX-License-Identifier: Apache-2.0
// `tessera tokenize`: converts text to the tokens of a model and back.
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "command.h"
#include "model_files.h"
#include "model_options.h"
#include "read_text.h"
#include "terminal.h"
#include "tessera/base/printable.h"
#include "tessera/base/unicode.h"
#include "tessera/llm/tokenizer.h"

namespace tessera::app {
namespace {

struct TokenizeArguments {
  std::string model, text;
  bool ids = false, json = false, decode = false, special = false, bare = false;
};

/// Quotes a text. Unprintable characters and invalid UTF-8 are written as \xNN.
std::string quoted_bytes(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Unit unit = utf8_unit(text);
    const bool prints = unit.kind == Utf8Unit::Kind::character && is_printable(unit.code);
    if (prints && unit.code != '"' && unit.code != '\\')
      out += text.substr(0, unit.size);
    else if (prints)
      out += '\\', out += text[0];
    else if (text[0] == '\n')
      out += "\\n";
    else if (text[0] == '\t')
      out += "\\t";
    else
      for (const char c : text.substr(0, unit.size)) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    text.remove_prefix(unit.size);
  }
  return out + "\"";
}

void print_json(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const TokenId id : tokens)
    out.push_back({{"id", id}, {"text", tokenizer.text(id)}, {"bytes", tokenizer.decode(id, true)}});
  app::print("{}\n", out.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int run_tokenize(const TokenizeArguments& o) {
  const GgufFile file = open_model(o.model);
  const Tokenizer tokenizer(file);
  const std::string text = o.text == "-" ? read_standard_input("the text") : o.text;
  if (o.decode) {
    const std::string bytes =
        escape_control_chars(tokenizer.decode(token_numbers(text), o.special), os::is_terminal(output()));
    std::fwrite(bytes.data(), 1, bytes.size(), output());
    if (o.text != "-" || os::is_terminal(output())) app::print("\n");
    return success;
  }
  warn_unless_utf8(text, "the text");
  const std::vector<TokenId> tokens = tokenizer.encode(text, {.add_special = !o.bare, .parse_special = o.special});
  if (o.json) {
    print_json(tokenizer, tokens);
  } else if (o.ids) {
    app::print("{}\n", fmt::join(tokens, " "));
  } else {
    for (const TokenId id : tokens) {
      const bool control = tokenizer.type(id) == TokenType::control;
      app::print("{:>7}  {}{}\n", id,
                 control ? printable_line(tokenizer.text(id)) : quoted_bytes(tokenizer.decode(id, true)),
                 control ? "  (control)" : "");
    }
  }
  return success;
}

}  // namespace

Command tokenize_command(CLI::App& program) {
  auto o = std::make_shared<TokenizeArguments>();
  CLI::App* sub = program.add_subcommand("tokenize", "Show a text as the tokens of a model");
  sub->add_option("MODEL", o->model, model_help)->required();
  sub->add_option("TEXT", o->text, "The text, or \"-\" for standard input; with --decode token ids")->required();
  auto* ids = sub->add_flag("--ids", o->ids, "Print only the ids on one line, for `tessera generate --ids`");
  auto* json = sub->add_flag("--json", o->json, "Print a JSON list of objects with id, text and bytes")->excludes(ids);
  auto* decode =
      sub->add_flag("--decode", o->decode, "Print the text of the given token ids")->excludes(ids)->excludes(json);
  sub->add_flag("--special", o->special,
                "Recognise control tokens such as <|im_end|> in the text; print them when decoding");
  sub->add_flag("--bare", o->bare, "Omit the begin and end tokens that the file requires")->excludes(decode);
  sub->footer(R"(Examples:
  tessera tokenize models/pgdocs-2m-q8_0.gguf "The index"
  tessera tokenize model.gguf --ids - < prompt.txt
  tessera tokenize model.gguf --decode "1 2 3"
  tessera tokenize model.gguf --special "<|im_start|>user")");
  return {sub, [o] { return run_tokenize(*o); }};
}

}  // namespace tessera::app
