// SPDX-License-Identifier: Apache-2.0
// Reads and writes grey images as PNG files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::app {

/// A grey image. `grey` contains the brightness of each pixel from 0 (black) to 1 (white), row by row from the top.
struct Image {
  std::size_t width = 0, height = 0;
  std::vector<float> grey;
};

/// The maximum number of pixels of an image. It limits memory use, because a small file may contain a very large image.
inline constexpr std::size_t most_pixels = std::size_t{1} << 26;

/// Reads a PNG file. Colours are converted to luminance, transparent pixels to white, and 16-bit samples to 8 bits.
/// Throws the errors of InputFile. Throws FormatError if the file is not a PNG, is damaged, or has more than
/// most_pixels pixels.
Image read_png(const std::string& path);

/// Writes an 8-bit grey PNG file. Values outside of [0, 1] are clamped, and NaN becomes 0. An existing file is replaced
/// atomically. Throws the errors of os::write_text. Throws ArgumentError if the image has no pixels, more than
/// most_pixels pixels, or the wrong number of values.
void write_png(const std::string& path, const Image& image);

}  // namespace tessera::app
