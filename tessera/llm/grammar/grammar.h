// SPDX-License-Identifier: Apache-2.0
// Grammars for generated text: GenerateOptions::grammar restricts a model's output to texts that match a grammar. A
// grammar is written in GBNF, or derived from a JSON schema.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

namespace grammar {
struct Automaton;
struct Rules;
}  // namespace grammar

/// A compiled grammar. Immutable and thread-safe; one grammar can be used for any number of texts and models.
class Grammar {
 public:
  /// Compiles a grammar in GBNF, the notation of llama.cpp. Error messages call it `name`, which is usually a path.
  ///
  /// Throws FormatError with line and column if the syntax is invalid, if a rule is missing or left-recursive, if no
  /// text matches, or if the grammar exceeds a limit: 1 MiB of text, 100 nested groups, 100,000 repetitions, 250,000
  /// states.
  static std::shared_ptr<const Grammar> from_gbnf(std::string_view text, const std::string& name = "grammar");
  /// Compiles a grammar whose texts are the JSON documents that are valid against a schema (docs/llm.md lists the
  /// keywords). Not all valid documents are generated: properties are in the order of the schema, and white space is
  /// limited.
  ///
  /// Throws FormatError with a JSON pointer if a keyword is not supported or cannot be expressed, and with line and
  /// column if the schema is not JSON. The limits are 64 KiB, 100 levels, and those of from_gbnf.
  static std::shared_ptr<const Grammar> from_json_schema(std::string_view schema, const std::string& name = "schema");
  /// Returns the grammar of all JSON objects.
  static std::shared_ptr<const Grammar> json_object();

  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  /// True if the text, in UTF-8, matches the grammar. A text that can be continued to a match does not match.
  bool matches(std::string_view text) const;

  /// Compiles rules. Throws the errors of from_gbnf, except for those of the syntax. Internal.
  static std::shared_ptr<const Grammar> from_rules(const grammar::Rules& rules, const std::string& name);
  /// The compiled form. Internal.
  const grammar::Automaton& automaton() const { return *automaton_; }
  /// The texts of the control tokens that the grammar contains (grammar::Rules::marks). Internal.
  const std::vector<std::string>& marks() const { return marks_; }

 private:
  Grammar(std::unique_ptr<const grammar::Automaton> automaton, std::vector<std::string> marks);
  std::unique_ptr<const grammar::Automaton> automaton_;
  std::vector<std::string> marks_;
};

}  // namespace tessera
