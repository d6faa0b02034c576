// SPDX-License-Identifier: Apache-2.0
// Checks the claims in models/README.md: the shipped models mostly generate words of their training text, and their
// greedy tokens are the same as llama.cpp's (models/reference-greedy.json, written by tools/check_with_llama_cpp.py).
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/llm/language_model.h"
#include "tessera/testing/testing.h"

namespace tessera {
namespace {

// Returns the words of a text in lower case. A word consists of ASCII letters and inner apostrophes, the same as in
// tools/corpus.py.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 128;
    const bool inner =
        c == '\'' && !word.empty() && i + 1 < text.size() && std::isalpha(static_cast<unsigned char>(text[i + 1]));
    if (letter || inner)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!word.empty())
      out.push_back(std::move(word)), word.clear();
  }
  return out;
}

TEST(ShippedModel, MostWordsAreFromTheTrainingText) {
  std::ifstream file("models/words.txt");
  std::set<std::string> known;
  for (std::string w; file >> w;) known.insert(w);
  ASSERT_GT(known.size(), 1000u);
  const auto model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", Device{Backend::cpu, 0});
  // A text may end early, so generate texts until there are 1,500 tokens in total.
  const char* const prompts[] = {"A transaction", "The query planner", "If the server is not running,"};
  std::size_t tokens = 0, found = 0, counted = 0;
  std::string unknown;
  for (std::uint64_t i = 0; tokens < 1500 && i < 100; ++i) {
    GenerateOptions options;
    options.sampling = {.temperature = 0.8, .top_k = 0, .top_p = 1, .seed = testing::seed() + i};
    options.max_tokens = 500;
    const auto result = model.generate(prompts[i % 3], options);
    tokens += result.tokens.size();
    for (const auto& w : words_of(result.text)) {
      ++counted;
      if (known.count(w))
        ++found;
      else
        unknown += " " + w;
    }
  }
  ASSERT_GE(tokens, 1500u);
  ASSERT_GT(counted, 500u);
  const double share = 100.0 * static_cast<double>(found) / static_cast<double>(counted);
  std::printf("%.2f %% of %zu words in %zu tokens are known; not:%s\n", share, counted, tokens, unknown.c_str());
  EXPECT_GE(share, 95.0);
}

TEST(ShippedModel, GreedyTokensMatchLlamaCpp) {
  std::ifstream file("models/reference-greedy.json");
  const auto reference = nlohmann::json::parse(file);
  int equal = 0, parted = 0;
  for (const auto& [name, prompts] : reference.at("models").items()) {
    // For the q8_0 file, both programs round activations to 8 bits. For the f16 file, llama.cpp rounds them to 16 bits,
    // and Tessera does not round them.
    const double near = name.find("q8_0") != std::string::npos ? 2e-2 : 2e-3;
    const auto model = LanguageModel::load("models/" + name, Device{Backend::cpu, 0});
    for (const auto& p : prompts) {
      const auto want = p.at("tokens").get<std::vector<TokenId>>();
      GenerateOptions options;
      options.sampling.temperature = 0;
      options.max_tokens = static_cast<std::int64_t>(want.size());
      options.cache_dtype = DType::f32;
      const auto got = model.generate(p.at("prompt").get<std::string>(), options);
      ASSERT_EQ(got.prompt_tokens, p.at("prompt_tokens").get<std::vector<TokenId>>()) << p.at("prompt");
      std::size_t same = 0;
      while (same < want.size() && same < got.tokens.size() && got.tokens[same] == want[same]) ++same;
      if (same == want.size()) {
        std::printf("%s, %s: all %zu tokens\n", name.c_str(), p.at("prompt").dump().c_str(), same);
        ++equal;
        continue;
      }
      ++parted;
      const double gap = p.at("gap")[same].get<double>(), range = p.at("logit_range")[same].get<double>();
      std::printf("%s, %s: differs at token %zu, where llama.cpp's two best differ by %.5f of a range of %.2f (%.1e)\n",
                  name.c_str(), p.at("prompt").dump().c_str(), same, gap, range, gap / range);
      ASSERT_LT(same, got.tokens.size());
      EXPECT_EQ(got.tokens[same], p.at("runner_up")[same].get<TokenId>()) << "not even the second choice";
      EXPECT_LE(gap, 2 * near * range) << "not a near-tie";
    }
  }
  EXPECT_GE(equal, 4) << "most prompts have no near-tie";
  EXPECT_EQ(equal + parted, 8);
}

}  // namespace
}  // namespace tessera
