// SPDX-License-Identifier: Apache-2.0
// Compares the experts that a model chooses with those that transformers chooses in float64, for 10,000 tokens. The
// expected sets come from tools/make_expert_choices.py; the model is a case of tests/data/architectures.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/array/observer.h"
#include "tessera/llm/llama.h"
#include "tests/llm/architecture_values.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr Device cpu{Backend::cpu, 0};

/// Collects the logits of the router, and the chosen experts, of each layer.
class Choices : public ArrayObserver {
 public:
  void made(const ArrayOperation& operation) override {
    if (operation.name != "choose_experts") return;
    logits.push_back(std::get<ArraySnapshot>(operation.operands[0]).array().to_vector<float>());
    ids.push_back(operation.results[0].to_vector<std::int32_t>());
    used = static_cast<std::size_t>(operation.results[0].shape(1));
  }
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::int32_t>> ids;
  std::size_t used = 0;
};

/// Returns the sets of `used` of `count` numbers, in lexicographic order.
std::vector<std::vector<std::int32_t>> combinations(std::int32_t count, std::size_t used) {
  std::vector<std::vector<std::int32_t>> out;
  std::vector<bool> chosen(static_cast<std::size_t>(count));
  std::fill_n(chosen.begin(), used, true);
  do {
    out.emplace_back();
    for (std::int32_t i = 0; i < count; ++i)
      if (chosen[static_cast<std::size_t>(i)]) out.back().push_back(i);
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return out;
}

TEST(ExpertChoices, EqualThoseOfTransformersExceptAtTies) {
  constexpr float tie = 1e-4f;  // logits have a range of several units
  const json want = json::parse(std::ifstream("tests/data/expert_choices.json"));
  const auto name = want["name"].get<std::string>();
  const auto bytes = test::writer_of(*std::ranges::find(test::figures()["cases"], name, [](const json& c) {
                       return c["name"].get<std::string>();
                     })).bytes();
  const Llama model = Llama::load(GgufFile::parse(bytes, name), cpu);
  const auto layers = want["layers"].get<std::vector<std::string>>();
  const auto length = want["length"].get<std::size_t>();
  ASSERT_EQ(std::ssize(layers), model.config().layers);
  std::vector<std::int32_t> tokens;
  for (const std::uint32_t b : test::bits_of("tokens", layers[0].size()))
    tokens.push_back(static_cast<std::int32_t>(b % model.config().vocabulary));
  ASSERT_GE(tokens.size(), 10'000u);
  const auto sets = combinations(static_cast<std::int32_t>(model.config().experts),
                                 static_cast<std::size_t>(model.config().used_experts));
  std::size_t different = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += length) {
    Choices choices;
    {
      const ObserverScope scope(&choices);
      KeyValueCache cache = model.make_cache(static_cast<std::int64_t>(length), DType::f32);
      model.forward(std::span(tokens).subspan(begin, length), cache).eval();
    }
    ASSERT_EQ(choices.ids.size(), layers.size());
    const auto experts = choices.logits[0].size() / length;
    for (std::size_t l = 0; l < layers.size(); ++l)
      for (std::size_t t = 0; t < length; ++t) {
        const auto at = choices.ids[l].begin() + static_cast<std::ptrdiff_t>(t * choices.used);
        std::vector<std::int32_t> got(at, at + static_cast<std::ptrdiff_t>(choices.used));
        std::ranges::sort(got);
        if (got == sets.at(static_cast<std::size_t>(layers[l][begin + t] - '0'))) continue;
        ++different;
        const auto first = choices.logits[l].begin() + static_cast<std::ptrdiff_t>(t * experts);
        std::vector<float> sorted(first, first + static_cast<std::ptrdiff_t>(experts));
        std::ranges::sort(sorted, std::greater());
        EXPECT_LT(sorted[choices.used - 1] - sorted[choices.used], tie) << "layer " << l << ", token " << begin + t;
      }
  }
  std::printf("%zu of %zu choices differ\n", different, tokens.size() * layers.size());
  EXPECT_LE(different, tokens.size() * layers.size() / 1000);
}

}  // namespace
}  // namespace tessera
