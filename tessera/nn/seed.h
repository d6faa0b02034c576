// SPDX-License-Identifier: Apache-2.0
// Seeds for the parts of a model. They depend on the model's seed and the part's path, but not on the device or the
// order of layers. Internal.
#pragma once

#include <string_view>

#include "tessera/base/philox.h"

namespace tessera::detail {

/// 64-bit FNV-1a.
constexpr std::uint64_t path_hash(std::string_view path) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : path) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

constexpr std::uint64_t seed_of(std::uint64_t seed, std::uint64_t hash) {
  const PhiloxCounter words = philox4x32(seed, hash);
  return std::uint64_t{words[1]} << 32 | words[0];
}
constexpr std::uint64_t seed_of(std::uint64_t seed, std::string_view path) { return seed_of(seed, path_hash(path)); }

}  // namespace tessera::detail
