// SPDX-License-Identifier: Apache-2.0
// Chat templates of common model families, for files without a template.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera {

struct ChatFamily {
  std::string_view name;
  std::string_view source;  ///< in Jinja
  /// Texts that should be tokens of the vocabulary, the end of a turn first. Empty: the file's end token ends a turn.
  std::vector<std::string_view> special;
};
std::span<const ChatFamily> chat_families();

}  // namespace tessera
