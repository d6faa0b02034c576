// SPDX-License-Identifier: Apache-2.0
// How do I compute embeddings of texts, and compare them?
// An embedding is a vector. Texts with similar meanings have similar vectors. Use a model that was trained for
// embeddings, such as BGE or E5; the default here is a small language model, whose embeddings are crude.
// Run this program at the top of the repository.
#include <tessera/tessera.h>

#include <cstdio>
#include <iostream>

using namespace tessera;

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf";
  if (argc > 2 || path.starts_with('-')) {
    std::cerr << "usage: example_embed [MODEL.gguf]\n";
    return 2;
  }
  try {
    const auto model = EmbeddingModel::load(path);
    std::printf("%lld numbers, %s pooling\n", static_cast<long long>(model.width()),
                to_string(model.pooling()).c_str());
    const std::vector<std::string> texts = {"Create an index on the column.", "An index on a column is created.",
                                            "The server listens on port 5432."};
    const std::vector<EmbeddingResult> embeddings = model.embed(texts);
    const double alike = cosine_similarity(embeddings[0].values, embeddings[1].values),
                 other = cosine_similarity(embeddings[0].values, embeddings[2].values);
    std::printf("%s\n",
                alike > other ? "The first two texts are more alike." : "The last text is closer to the first.");
    return alike > other ? 0 : 1;
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}

// Output:
// ... numbers, mean pooling
// The first two texts are more alike.
