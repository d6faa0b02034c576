// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/llm/gguf.h"

namespace tessera {

/// Throws FormatError for a vocabulary that cannot be used. The message contains the file and the key.
[[noreturn]] inline void throw_tokenizer_error(const GgufFile& file, std::string_view key, std::string wrong,
                                               std::string remedy = {}) {
  fail<FormatError>({.operation = "make tokenizer",
                     .with = {{"file", file.name()}, {"key", std::string(key)}},
                     .wrong = std::move(wrong),
                     .remedy = std::move(remedy)});
}

}  // namespace tessera
