// SPDX-License-Identifier: Apache-2.0
// Converts an image of a digit to the format of the training samples.
#pragma once

#include "image.h"

namespace tessera::app {

/// Returns an image of 28 x 28 pixels with a white digit on black. The digit is cropped, scaled so that its larger
/// dimension is 20 pixels, and centred. The input may be dark on light or light on dark; the border decides which
/// brightness is the background. Throws ArgumentError if the image has uniform brightness; the message contains `file`.
Image normalize_digit(const Image& picture, const std::string& file);

}  // namespace tessera::app
