// SPDX-License-Identifier: Apache-2.0
// Turns generated tokens into text, and finds where the text ends.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/unicode.h"
#include "tessera/llm/stop_filter.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {

class TextBuilder {
 public:
  /// `stop`: texts that end the answer. `shown`: control tokens to include. The tokenizer must outlive the object.
  /// Throws ArgumentError if a stop text is empty.
  TextBuilder(const Tokenizer& tokenizer, std::vector<std::string> stop, std::vector<TokenId> shown);
  /// Returns the text that can be emitted after this token: whole characters that cannot become part of a stop text.
  std::string push(TokenId token);
  /// Returns the text that was held back. Call this after the last token, unless a stop text has ended the text.
  std::string finish();
  /// The stop text that ended the text, if any.
  const std::optional<std::string>& stopped() const { return stops_.stopped(); }

 private:
  const Tokenizer& tokenizer_;
  StopFilter stops_;
  std::vector<TokenId> shown_;
  Utf8Stream characters_;
};

}  // namespace tessera
