// SPDX-License-Identifier: Apache-2.0
// Reading and writing PNG files as brightness values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::app {

/// Brightness of each pixel, 0 for black to 1 for white, row by row from the top.
struct Image {
  std::size_t width = 0, height = 0;
  std::vector<float> grey;
};

/// The largest number of pixels that is read or written: a small file may claim to be a very large image.
inline constexpr std::size_t most_pixels = std::size_t{1} << 26;

/// Reads any PNG: colours are converted to luminance, transparency to white, 16 bits to 8. Throws the errors of
/// InputFile, and FormatError with libpng's message if the file is not a PNG, is damaged, or has more than most_pixels.
Image read_png(const std::string& path);

/// Writes an 8-bit grey PNG from numbers from 0 to 1 (others are clamped, NaN becomes 0); the file is replaced
/// atomically. Throws the errors of os::write_text, and ArgumentError if the image has no pixels, more than
/// most_pixels, or the wrong number of values.
void write_png(const std::string& path, const Image& image);

}  // namespace tessera::app
