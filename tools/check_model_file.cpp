// SPDX-License-Identifier: Apache-2.0
// Reads a model file with Llama and with a double-precision forward pass on its decoded weights, and says how far the
// logits are apart. For files that other people's tools wrote:
//   llama-quantize random-f32.gguf q.gguf Q4_K_M && build/dev/bin/check_model_file q.gguf --tokens 24 --logits q.txt
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <fstream>
#include <map>

#include "tessera/llm/llama.h"
#include "tests/support/reference_llama.h"

int main(int argc, char** argv) {
  using namespace tessera;
  CLI::App app("Compare a model file's logits with a double-precision forward pass");
  std::string path, out, compare;
  std::size_t count = 24;
  double bound = 0.02;
  app.add_option("FILE", path, "A GGUF file of a llama or qwen2")->required();
  app.add_option("--tokens", count, "How many tokens are read")->capture_default_str();
  app.add_option("--bound", bound, "Of the largest difference, relative to the logits' range")->capture_default_str();
  app.add_option("--logits", out, "Write the last token's logits of both here, a line each");
  app.add_option("--compare", compare, "Another program's logits of the last token, a line each");
  CLI11_PARSE(app, argc, argv);
  try {
    const GgufFile file = GgufFile::open(path);
    std::map<std::string, int> types;
    for (const GgufTensor& t : file.tensors()) ++types[std::string(ggml_type_info(t.type)->name)];
    std::string mix;
    for (const auto& [name, number] : types) mix += fmt::format("{}{} {}", mix.empty() ? "" : ", ", number, name);
    const Llama model = Llama::load(file, Device{Backend::cpu, 0});
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < count; ++i)
      tokens.push_back(
          static_cast<std::int32_t>((7919 * (i + 1)) % static_cast<std::size_t>(model.config().vocabulary)));
    KeyValueCache cache = model.make_cache(static_cast<std::int64_t>(count), DType::f32);
    const std::vector<float> got = model.forward(tokens, cache, true).to_vector<float>();
    const auto want = test::ReferenceLlama(file).forward(tokens);
    const auto range = [](const auto& row) {
      const auto [low, high] = std::minmax_element(row.begin(), row.end());
      return static_cast<double>(*high) - static_cast<double>(*low);
    };
    double worst = 0;
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t i = 0; i < want[t].size(); ++i)
        worst = std::max(worst, std::abs(got[t * want[t].size() + i] - want[t][i]) / range(want[t]));
    fmt::print("{}: {}; {} tokens, largest difference {:.2e} of the range\n", path, mix, count, worst);
    const std::size_t last = (count - 1) * want[0].size();
    if (!out.empty()) {
      std::ofstream to(out);
      for (std::size_t i = 0; i < want[0].size(); ++i) to << fmt::format("{} {}\n", got[last + i], want.back()[i]);
    }
    if (!compare.empty()) {
      std::ifstream from(compare);
      double other = 0, number = 0;
      for (std::size_t i = 0; i < want[0].size(); ++i) {
        if (!(from >> number)) throw std::runtime_error(compare + " has too few numbers");
        other = std::max(other, std::abs(number - want.back()[i]) / range(want.back()));
      }
      fmt::print("  of {}: {:.2e}\n", compare, other);
    }
    return worst <= bound ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
