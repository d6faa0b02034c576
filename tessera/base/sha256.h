// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): for names and keys on disk from which nobody can tell the text, and which nobody can make
// collide.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// 64 digits of `text`'s SHA-256, in small letters. A few hundred megabytes a second.
std::string sha256(std::string_view text);

}  // namespace tessera
