// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/llm/gguf.h"

namespace tessera {

/// Throws the FormatError of a vocabulary that cannot be used, with the file and the key.
[[noreturn]] inline void refuse_tokenizer(const GgufFile& file, std::string_view key, std::string wrong,
                                          std::string todo = {}) {
  fail<FormatError>({.asked = "make tokenizer",
                     .with = {{"file", file.name()}, {"key", std::string(key)}},
                     .wrong = std::move(wrong),
                     .todo = std::move(todo)});
}

}  // namespace tessera
