// SPDX-License-Identifier: Apache-2.0
// Text that models generate with a grammar: it matches the grammar or schema, ends with it, and is otherwise chosen as
// without a grammar.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/grammar/grammar.h"
#include "tessera/llm/text_session.h"
#include "tests/grammar/schema_validator.h"
#include "tests/support/errors.h"
#include "tests/support/scripted_model.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_throw;

const Device cpu{Backend::cpu, 0};

const LanguageModel& manual_model() {
  static const LanguageModel m = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", cpu);
  return m;
}

/// A model with single bytes and some words that JSON contains, whose logits are nearly random.
LanguageModel random_model() {
  std::vector<std::vector<std::string>> lines;
  for (const char* word : {"{\"", "\": ", "\", \"", "\"}", "},", "]}", "[{", "12", "-3", "true", "null", "name", "kind",
                           " Zürich", "日本", "\xF0\x9F", "\\u00", "\n  "})
    lines.push_back({word, "\"", "end"});
  for (std::size_t i = 1; i < lines.size(); ++i) lines[i] = {lines[i][0], lines[i - 1][0]};
  const auto bytes = test::scripted_model({"<|end|>", "<|other|>"}, lines, "{{ messages }}").bytes();
  return LanguageModel::load(GgufFile::parse(bytes, "random"), {.devices = {cpu}});
}

GenerateOptions random_options(const LanguageModel& model, std::uint64_t seed) {
  GenerateOptions o;
  o.sampling = {.temperature = 1.5, .top_k = 0, .top_p = 1, .seed = seed};
  o.max_tokens = 250;
  // Make the end of strings, lists and objects likelier, so that most texts are completed.
  for (std::size_t i = 0; i < model.tokenizer().size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view bytes = model.tokenizer().decode(id);
    if (bytes == "\"" || bytes == "}" || bytes == "]" || model.tokenizer().is_end(id))
      o.sampling.logit_bias.emplace_back(id, 6.0);
  }
  return o;
}

const char* const schemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120}, "kind": {"enum": ["a", "b", null]},
        "tags": {"items": {"type": "string"}, "maxItems": 3}}, "required": ["name", "kind"]})",
    R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"v": {"type": "number"},
        "children": {"items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}, "required": ["v"], "additionalProperties": false}}})",
    R"({"items": {"oneOf": [{"format": "date", "type": "string"}, {"type": "integer", "multipleOf": 3}]}, "minItems": 2, "maxItems": 4})",
    R"({"type": "object", "additionalProperties": {"anyOf": [{"type": "boolean"}, {"pattern": "^[a-z]{2}é?$"}]}})",
};

TEST(GrammarGeneration, RandomModelWritesValidJson) {
  const LanguageModel model = random_model();
  TextSession session(model, 512);
  const std::vector<TokenId> prompt = model.tokenizer().encode("{");
  int complete = 0;
  for (const char* schema : schemas) {
    const auto grammar = Grammar::from_json_schema(schema);
    const test::SchemaValidator validator(json::parse(schema));
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      GenerateOptions o = random_options(model, seed);
      o.grammar = grammar;
      const GenerateResult r = session.generate(prompt, o);
      if (r.reason != StopReason::end_token) {
        EXPECT_EQ(r.reason, StopReason::max_tokens);
        continue;
      }
      ++complete;
      EXPECT_EQ(r.end_token, model.tokenizer().ends().front());
      const json v = json::parse(r.text, nullptr, false);
      EXPECT_TRUE(!v.is_discarded() && validator.is_valid(v)) << schema << "\n" << r.text;
      EXPECT_EQ(session.generate(prompt, o).tokens, r.tokens);  // with masks that are already known
    }
  }
  EXPECT_GT(complete, 30);
}

TEST(GrammarGeneration, EndsWhenTheGrammarIsComplete) {
  GenerateOptions o;
  o.sampling.temperature = 0;
  o.grammar = Grammar::from_gbnf("root ::= \" yes\" | \" no\"");
  const GenerateResult r = manual_model().generate("Is an index useful?", o);
  EXPECT_TRUE(r.text == " yes" || r.text == " no") << r.text;
  EXPECT_EQ(r.reason, StopReason::end_token);
  EXPECT_TRUE(r.end_token && manual_model().tokenizer().is_end(*r.end_token));
  // The text can be cut by the number of tokens and by a stop text.
  o.grammar = Grammar::from_gbnf("root ::= [a-z ]{40}");
  o.max_tokens = 3;
  EXPECT_EQ(manual_model().generate("The", o).reason, StopReason::max_tokens);
  o.grammar = Grammar::from_gbnf("root ::= \"abc\" \"def\"");
  o.max_tokens = 20, o.stop = {"cd"};
  const GenerateResult cut = manual_model().generate("The", o);
  EXPECT_EQ(cut.text, "ab");
  EXPECT_EQ(cut.reason, StopReason::stop_text);
}

TEST(GrammarGeneration, LogProbabilitiesAreThoseOfTheModel) {
  GenerateOptions o;
  o.sampling.temperature = 0;
  o.max_tokens = 1;
  o.log_probabilities = 5;
  const GenerateResult plain = manual_model().generate("The index", o);
  o.grammar = Grammar::from_gbnf("root ::= [0-9]+ \"é\"");
  const GenerateResult limited = manual_model().generate("The index", o);
  ASSERT_EQ(limited.log_probabilities.size(), 1u);
  for (std::size_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(limited.log_probabilities[0][i].id, plain.log_probabilities[0][i].id);
    EXPECT_EQ(limited.log_probabilities[0][i].log_probability, plain.log_probabilities[0][i].log_probability);
  }
  EXPECT_LT(limited.log_probabilities[0][0].log_probability, plain.log_probabilities[0][5].log_probability);
  EXPECT_TRUE(limited.text.find_first_not_of("0123456789") == std::string::npos) << limited.text;
}

TEST(GrammarGeneration, GrammarOfAllTextsChangesNothing) {
  GenerateOptions o;
  o.sampling = {.temperature = 0.9, .seed = 7};
  o.max_tokens = 40;
  const GenerateResult plain = manual_model().generate("The index", o);
  o.grammar = Grammar::from_gbnf("root ::= .*");
  EXPECT_EQ(manual_model().generate("The index", o).tokens, plain.tokens);
}

TEST(GrammarGeneration, ExampleOfLlmMdIsTested) {
  const auto& model = manual_model();
  // clang-format off
  GenerateOptions options{.max_tokens = 100};
  options.grammar = Grammar::from_json_schema(R"({"type": "array", "items": {"enum": ["btree", "hash"]}, "maxItems": 2})");
  const GenerateResult result = model.generate("Index types:", options);
  // clang-format on
  EXPECT_EQ(result.reason, StopReason::end_token);
  EXPECT_TRUE(json::parse(result.text).is_array());
  std::stringstream page, source;
  page << std::ifstream("docs/llm.md").rdbuf();
  source << std::ifstream("tests/grammar/grammar_generation_test.cpp").rdbuf();
  const std::string text = page.str(), begin = "```cpp\nGenerateOptions options";
  ASSERT_NE(text.find(begin), std::string::npos);
  std::istringstream lines(text.substr(text.find(begin) + 7));
  for (std::string line; std::getline(lines, line) && line != "```";) EXPECT_TRUE(test::holds(source.str(), line));
}

}  // namespace
}  // namespace tessera
