// SPDX-License-Identifier: Apache-2.0
// Learns a vocabulary from files for tools/check_tokenizer_training.py. Each file is one text. Prints the merges, one
// per line, and writes the seconds to standard error. Usage: train_tokenizer VOCABULARY PRE_TOKENIZER FILE...
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tessera/llm/train_tokenizer.h"

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: train_tokenizer VOCABULARY PRE_TOKENIZER FILE...\n");
    return 2;
  }
  try {
    std::vector<std::string> texts;
    for (int i = 3; i < count; ++i) {
      std::ifstream in(words[i], std::ios::binary);
      texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
      if (!in) throw std::runtime_error(std::string("cannot read ") + words[i]);
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const auto start = std::chrono::steady_clock::now();
    const auto learned =
        tessera::train_tokenizer(views, {.vocabulary = std::stoll(words[1]), .pre_tokenizer = words[2]});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const std::string& merge : learned.merges) std::printf("%s\n", merge.c_str());
    std::fprintf(stderr, "%.3f\n", seconds);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_tokenizer: %s\n", e.what());
    return 1;
  }
}
