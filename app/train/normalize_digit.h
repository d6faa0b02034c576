// SPDX-License-Identifier: Apache-2.0
// Converts an image of a digit to the format of the training data.
#pragma once

#include "image.h"

namespace tessera::app {

/// 28 x 28, white on black: the ink of an image, dark on light or light on dark, is cropped, scaled to 20 pixels high
/// (or wide, if it is wider) and centred. The brightness that is rarer on the border is the ink. Throws ArgumentError,
/// with the file's name, if the image has uniform brightness.
Image normalize_digit(const Image& picture, const std::string& file);

}  // namespace tessera::app
