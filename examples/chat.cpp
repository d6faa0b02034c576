// SPDX-License-Identifier: Apache-2.0
// A conversation through the library: two questions, the second of which is answered with the first one in mind.
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf";  // from the root of Tessera's source
  if (argc > 3 || path.starts_with('-')) {
    std::cerr << "usage: example_chat [MODEL.gguf [TEMPLATE]]\n";
    return 2;
  }
  try {
    // The shipped model was never made to converse, so a template is named; a model's own file has one.
    const std::string name = argc > 2 ? argv[2] : argc > 1 ? "" : "chatml";
    const auto file = GgufFile::open(path);
    const auto model = LanguageModel::load(file, {.conversation = 512});
    ChatSession chat(model, ChatTemplate::of(file, name), {.generate = {.max_tokens = 40}, .context = 512});
    for (const char* question : {"What is an index?", "And a table?"}) {
      chat.conversation.push_back({"user", question});
      const ChatAnswer answer = chat.answer([](const ThinkingSplitter::Parts& parts) {
        std::cout << parts.text << std::flush;
        return true;  // false ends it
      });
      std::cout << "\n(" << answer.result.read << " tokens read, " << answer.result.tokens.size() << " written)\n";
    }
    return chat.conversation.size() == 4 ? 0 : 1;
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
