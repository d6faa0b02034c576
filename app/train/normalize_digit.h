// SPDX-License-Identifier: Apache-2.0
// A digit in somebody's picture, as the network has learned to see digits.
#pragma once

#include "image.h"

namespace tessera::app {

/// 28 x 28, white on black: the ink of a picture, dark on light or light on dark, cut out, made 20 pixels high (or
/// wide, if it is wider than high) and put in the middle. Which of the two is ink: what there is less of on the border
/// is. ArgumentError, with the file's name, if all of the picture is of one brightness.
Image normalize_digit(const Image& picture, const std::string& file);

}  // namespace tessera::app
