// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/text_builder.h"

#include <algorithm>

namespace tessera {

TextBuilder::TextBuilder(const Tokenizer& tokenizer, std::vector<std::string> stop, std::vector<TokenId> shown)
    : tokenizer_(tokenizer), stops_(std::move(stop)), shown_(std::move(shown)) {}

std::string TextBuilder::push(TokenId token) {
  // A model may have more logits than its tokenizer has tokens.
  if (static_cast<std::size_t>(token) >= tokenizer_.size()) return {};
  const bool shown = std::ranges::find(shown_, token) != shown_.end();
  return stops_.push(characters_.push(tokenizer_.decode(token, shown)));
}

std::string TextBuilder::finish() {
  std::string text = stops_.push(characters_.flush());
  if (!stops_.stopped()) text += stops_.flush();
  return text;
}

}  // namespace tessera
