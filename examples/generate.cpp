// SPDX-License-Identifier: Apache-2.0
// A language model through the library: load a file, continue a prompt, write the text as it comes.
// usage: example_generate [MODEL.gguf [PROMPT]], see below.
#include <tessera/tessera.h>

#include <filesystem>
#include <iostream>

using namespace tessera;

constexpr const char* usage =
    "usage: example_generate [MODEL.gguf [PROMPT]]\n"
    "The model's path is the first argument. Without one it is models/pgdocs-2m-q8_0.gguf, which is found from the "
    "root\n"
    "of Tessera's source. The prompt is \"The index\" unless given.\n";

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf";
  if (path == "--help" || path == "-h") {
    std::cout << usage;
    return 0;
  }
  if (argc > 3 || path.starts_with('-')) {
    std::cerr << usage;
    return 2;
  }
  if (argc == 1 && !std::filesystem::exists(path)) {
    std::cerr << path << " is not there.\n" << usage;
    return 1;
  }
  try {
    const auto model = LanguageModel::load(path);
    const auto result = model.generate(argc > 2 ? argv[2] : "The index",
                                       {.sampling = {.temperature = 0}, .max_tokens = 40}, [](std::string_view piece) {
                                         std::cout << piece << std::flush;
                                         return true;  // false ends it
                                       });
    std::cout << "\n"
              << result.tokens.size() << (result.tokens.size() == 1 ? " token at " : " tokens at ")
              << result.tokens_per_second() << " a second on " << why_current_device() << "\n";
    return result.text.empty();
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
