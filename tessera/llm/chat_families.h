// SPDX-License-Identifier: Apache-2.0
// Built-in chat templates of common model families, for model files that do not contain a template.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera {

struct ChatFamily {
  std::string_view name;
  std::string_view source;  ///< the template in Jinja
  /// Texts that the vocabulary should contain as tokens. The first one ends a turn. If the list is empty, the file's
  /// end token ends a turn.
  std::vector<std::string_view> special;
};
std::span<const ChatFamily> chat_families();

}  // namespace tessera
