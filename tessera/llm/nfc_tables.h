// SPDX-License-Identifier: Apache-2.0
// Unicode data for nfc.cpp. Internal.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

/// The canonical decomposition of a character into one or two others.
struct NfcDecomposition {
  char32_t code, first, second;  ///< `second` is 0 if there is only one
  bool composes;                 ///< the two are combined to `code`
};
extern const std::span<const NfcDecomposition> nfc_decompositions;  ///< sorted by code

/// The characters `first` to `last` have this combining class, which is not 0.
struct NfcClass {
  char32_t first, last;
  std::uint8_t combining;
};
extern const std::span<const NfcClass> nfc_classes;  ///< sorted by code

}  // namespace tessera
