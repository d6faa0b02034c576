// SPDX-License-Identifier: Apache-2.0
// Compares the rates of a Scheduler with many and with one sequence, and with LanguageModel::generate. The workloads
// run alternately; the results are medians of ratios with their range.
//
//   build/release/bin/random_model model.gguf --type q8_0
//   build/release/benchmarks/sequences model.gguf [tokens] [sequences] [rounds]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "tessera/llm/scheduler.h"

using namespace tessera;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<TokenId> prompt_of(int number, std::int64_t length) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(300 + (number * 131 + i * 7) % 200));
  return tokens;
}

/// Generates tokens in several sequences. Returns tokens per second, from the first token of the last sequence on.
double rate(Scheduler& scheduler, int sequences, std::int64_t tokens) {
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0, ended = 0;
  std::int64_t generated = 0;
  double begin = 0, end = 0;
  for (int s = 0; s < sequences; ++s) {
    TextRequest r;
    r.prompts = {prompt_of(s, 16)};
    r.sampling = {.temperature = 0};
    r.max_tokens = tokens;
    r.on_event = [&, first = true](std::int64_t, const TextEvent& event) mutable {
      const std::lock_guard lock(mutex);
      if (const auto* piece = std::get_if<TextPiece>(&event)) {
        if (begin != 0) generated += std::ssize(piece->tokens);
        if (std::exchange(first, false) && ++started == sequences) begin = now();
        end = now();
      } else if (std::holds_alternative<TextEnded>(event) || std::holds_alternative<TextFailed>(event)) {
        if (++ended == sequences) changed.notify_all();
      }
    };
    scheduler.submit(std::move(r));
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == sequences; });
  return static_cast<double>(generated) / (end - begin);
}

void print(const char* what, std::vector<double> ratios) {
  std::ranges::sort(ratios);
  fmt::print("{:<44} {:.3f} ({:.3f} to {:.3f})\n", what, ratios[ratios.size() / 2], ratios.front(), ratios.back());
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int tokens = number(2, 24), sequences = number(3, 16), rounds = number(4, 5);
  const LanguageModel model = LanguageModel::load(argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf");
  Scheduler scheduler(model, {.context = 512, .parallel = sequences});
  std::vector<double> many, one;
  for (int round = -1; round < rounds; ++round) {
    const GenerateResult alone =
        model.generate(prompt_of(0, 16), {.sampling = {.temperature = 0}, .max_tokens = tokens, .context = 512});
    const double single = rate(scheduler, 1, tokens), all = rate(scheduler, sequences, tokens);
    if (round < 0) continue;  // compiles kernels
    fmt::print("generate {:.2f}, one sequence {:.2f}, {} sequences {:.2f} tokens a second\n", alone.tokens_per_second(),
               single, sequences, all);
    many.push_back(all / single), one.push_back(single / alone.tokens_per_second());
  }
  print(fmt::format("{} sequences relative to one", sequences).c_str(), many);
  print("one sequence relative to generate", one);
  return 0;
}
