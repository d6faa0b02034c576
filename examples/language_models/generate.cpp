// SPDX-License-Identifier: Apache-2.0
// How do I generate text with a language model?
// Load a GGUF file, continue a prompt, and print the text during generation. Run it at the top of the repository.
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf";
  if (argc > 3 || path.starts_with('-')) {
    std::cerr << "usage: example_generate [MODEL.gguf [PROMPT]]\n";
    return 2;
  }
  try {
    const auto model = LanguageModel::load(path);
    const auto result = model.generate(argc > 2 ? argv[2] : "The index",
                                       {.sampling = {.temperature = 0}, .max_tokens = 40}, [](std::string_view piece) {
                                         std::cout << piece << std::flush;
                                         return true;  // return false to stop
                                       });
    std::cout << "\n"
              << result.tokens.size() << " tokens at " << result.tokens_per_second() << " a second on "
              << why_current_device() << "\n";
    return result.text.empty();
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}

// Output:
//  method defines a new operator class for the index method, which uses the index method. ...
// ...
// 40 tokens at ... a second on ...
