// SPDX-License-Identifier: Apache-2.0
// How do I tokenise text, or train a tokenizer?
// A Tokenizer reads the vocabulary of a GGUF file. train_tokenizer() learns byte pairs from text.
#include <tessera/llm/gguf.h>
#include <tessera/llm/tokenizer.h>
#include <tessera/llm/train_tokenizer.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Tokenizer tokenizer(GgufFile::open("models/pgdocs-2m-q8_0.gguf"));  // run this at the top of the repository
  const std::string text = "An index scan";
  const std::vector<TokenId> tokens = tokenizer.encode(text);
  for (const TokenId t : tokens) std::printf("%5d  \"%s\"\n", t, std::string(tokenizer.decode(t, true)).c_str());

  const std::string_view texts[] = {"the cat sat on the mat", "the hat of the cat"};
  const TrainedTokenizer learned = train_tokenizer(texts, {.vocabulary = 262});
  for (const std::string& merge : learned.merges) std::printf("merge: %s\n", merge.c_str());
  const auto few = learned.tokenizer().encode("the cat", {.add_special = false});
  std::printf("\"the cat\" is %zu tokens\n", few.size());
  return tokenizer.decode(tokens) == text && learned.tokenizer().decode(few) == "the cat" ? 0 : 1;
}

// Output:
//  2047  "<|endoftext|>"
//  1582  "An"
//   538  " index"
//  1245  " scan"
// merge: a t
// merge: h e
// merge: t he
// merge: c at
// merge: Ġ o
// "the cat" is 3 tokens
