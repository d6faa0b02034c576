// SPDX-License-Identifier: Apache-2.0
// Unicode's normalization form C (Unicode Standard Annex 15), which some tokenizers apply to text. Internal.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Returns the text in normalization form C: characters that can be written as one code point or as several have one
/// form. Invalid UTF-8 is kept.
std::string to_nfc(std::string_view text);

}  // namespace tessera
