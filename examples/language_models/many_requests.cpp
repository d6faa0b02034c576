// SPDX-License-Identifier: Apache-2.0
// How do I answer many requests at the same time?
// Submit them to a Scheduler. All run together, and prompts that begin alike are read once. Run it at the top of the
// repository.
#include <tessera/tessera.h>

#include <iostream>
#include <latch>

using namespace tessera;

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf";
  try {
    const auto model = LanguageModel::load(path);
    const std::vector<std::string> prompts = {"The index", "A table", "A transaction", "The function"};
    std::vector<std::string> texts(prompts.size());
    std::latch running(std::ssize(prompts));
    Scheduler scheduler(model, {.context = 256, .parallel = 8});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      TextRequest request;
      request.prompts = {model.tokenizer().encode(prompts[i])};
      request.sampling = {.temperature = 0};
      request.max_tokens = 12;
      request.on_event = [&, i](std::int64_t, const TextEvent& event) {  // called by a thread of the scheduler
        if (const auto* piece = std::get_if<TextPiece>(&event)) texts[i] += piece->text;
        if (const auto* failed = std::get_if<TextFailed>(&event)) texts[i] = failed->message;
        if (std::holds_alternative<TextEnded>(event) || std::holds_alternative<TextFailed>(event)) running.count_down();
      };
      scheduler.submit(request);
    }
    running.wait();
    for (std::size_t i = 0; i < prompts.size(); ++i) std::cout << prompts[i] << texts[i] << "\n";
    return 0;
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}

// Output:
// The index method defines a new operator class for the index method,
// A table can be a partitioned table, or a partitioned table, or
// A transaction that is already prepared is not a harmless than
// The function must return a string that converts the type from the
