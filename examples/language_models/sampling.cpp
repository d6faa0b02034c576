// SPDX-License-Identifier: Apache-2.0
// How do I control sampling: temperature, penalties, stop texts, forbidden tokens?
// Set the SamplerOptions in GenerateOptions. The same seed generates the same text on the same device.
#include <tessera/llm/language_model.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

using namespace tessera;

int main() {
  const auto model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf");  // run this at the top of the repository
  const auto show = [](const char* what, const GenerateResult& r) {
    std::printf("%-11s%s [%s]\n", what, r.text.c_str(), to_string(r.reason).c_str());
    return r;
  };
  const std::string prompt = "The index";
  const GenerateOptions greedy{.sampling = {.temperature = 0}, .max_tokens = 12};
  show("greedy", model.generate(prompt, greedy));

  GenerateOptions drawn = greedy;
  drawn.sampling = {.temperature = 0.9, .top_k = 40, .top_p = 0.9, .seed = 5, .repeat_penalty = 1.2};
  const auto first = show("seed 5", model.generate(prompt, drawn));

  GenerateOptions until = greedy;
  until.stop = {" class"};
  const auto stopped = show("stop text", model.generate(prompt, until));

  // Forbids a token with a bias of -infinity, and returns the probabilities of the most likely tokens.
  const TokenId method = model.tokenizer().find("\u0120method").value();  // " method", as written in the vocabulary
  GenerateOptions without = greedy;
  without.sampling.logit_bias = {{method, -std::numeric_limits<double>::infinity()}};
  without.log_probabilities = 2;
  const auto other = show("no method", model.generate(prompt, without));
  const TokenProbability likeliest = other.log_probabilities[0][1];  // index 0 is the chosen token
  std::printf("the likeliest first token was \"%s\" with probability %.2f\n",
              std::string(model.tokenizer().decode(likeliest.id)).c_str(), std::exp(likeliest.log_probability));

  const bool repeats = model.generate(prompt, drawn).text == first.text;
  const bool forbidden = std::ranges::find(other.tokens, method) == other.tokens.end();
  return repeats && forbidden && stopped.reason == StopReason::stop_text ? 0 : 1;
}

// Output:
// greedy      method defines a new operator class for the index method, [...]
// seed 5     ...
// ...
// stop text   method defines a new operator [...]
// no method  ...
// ...
// the likeliest first token was " method" with probability 0.5...
