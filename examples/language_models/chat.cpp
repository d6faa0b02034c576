// SPDX-License-Identifier: Apache-2.0
// How do I chat with a model?
// A ChatSession keeps the conversation. The second answer depends on the first question, and only new tokens are read.
// Run this program at the top of the repository.
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf";
  if (argc > 3 || path.starts_with('-')) {
    std::cerr << "usage: example_chat [MODEL.gguf [TEMPLATE]]\n";
    return 2;
  }
  try {
    // Files of chat models contain a template. This model was not trained for chat, so a built-in template is used.
    const std::string name = argc > 2 ? argv[2] : argc > 1 ? "" : "chatml";
    const auto file = GgufFile::open(path);
    const auto model = LanguageModel::load(file, {.conversation = 512});
    ChatSession chat(model, ChatTemplate::of(file, name), {.generate = {.max_tokens = 40}, .context = 512});
    for (const char* question : {"What is an index?", "And a table?"}) {
      chat.conversation.push_back({"user", question});
      const ChatAnswer answer = chat.answer([](const ThinkingSplitter::Parts& parts) {
        std::cout << parts.text << std::flush;
        return true;  // return false to stop
      });
      std::cout << "\n(" << answer.result.read << " tokens read, " << answer.result.tokens.size() << " written)\n";
    }
    return chat.conversation.size() == 4 ? 0 : 1;
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}

// Output:
// ...
// (39 tokens read, ... written)
// ...
// (... tokens read, ... written)
