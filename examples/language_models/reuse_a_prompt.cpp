// SPDX-License-Identifier: Apache-2.0
// How do I generate several continuations without reading the prompt each time?
// A TextSession keeps keys and values. If a text starts like the previous one, only the new part is read.
#include <tessera/llm/text_session.h>

#include <cstdio>

using namespace tessera;

int main() {
  const auto model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf");  // run this at the top of the repository
  TextSession session(model, /*context=*/256);
  std::vector<TokenId> prompt = model.tokenizer().encode("A table is stored in a file. The index");
  std::int64_t read = 0;
  for (int seed = 0; seed < 3; ++seed) {
    const auto result = session.generate(
        prompt, {.sampling = {.temperature = 0.8, .seed = static_cast<std::uint64_t>(seed)}, .max_tokens = 8});
    std::printf("read %lld of %zu tokens:%s\n", static_cast<long long>(result.read), prompt.size(),
                result.text.c_str());
    read = result.read;
  }
  return read == 1 ? 0 : 1;  // only the last token of the prompt was read again, for its logits
}

// Output:
// read 11 of 11 tokens:...
// ...
// read 1 of 11 tokens:...
// ...
// read 1 of 11 tokens:...
// ...
