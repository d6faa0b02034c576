// SPDX-License-Identifier: Apache-2.0
// Pictures as the program needs them: PNG files read and written as brightness.
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

/// The most pixels that are read or written: a small file may claim to be a very large picture.
inline constexpr std::size_t most_pixels = std::size_t{1} << 26;

/// Reads any PNG: colours become their luminance, what is transparent becomes white as paper, 16 bits become 8. Errors
/// of InputFile; FormatError with libpng's words if it is not a PNG, is damaged, or has more than most_pixels.
Image read_png(const std::string& path);

/// Writes 8 bits of grey, of numbers from 0 to 1 (what is outside, or NaN, becomes the nearest, or 0), in the old
/// file's place in one step, with the errors of os::write_text. ArgumentError if the picture has no pixels, more than
/// most_pixels, or not as many numbers as it says.
void write_png(const std::string& path, const Image& image);

}  // namespace tessera::app
