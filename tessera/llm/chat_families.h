// SPDX-License-Identifier: Apache-2.0
// Chat templates of the common families, for files that bring none.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera {

struct ChatFamily {
  std::string_view name;
  std::string_view source;  ///< in Jinja
  /// Texts in it that should be tokens of the vocabulary, the one that ends a turn first. Empty: the file's end token
  /// ends a turn.
  std::vector<std::string_view> special;
};
std::span<const ChatFamily> chat_families();

}  // namespace tessera
