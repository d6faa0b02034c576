// SPDX-License-Identifier: Apache-2.0
// The data of `tessera train digits` (models/digits/README.md), and a kernel that augments it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

#include "tessera/array/array.h"

namespace tessera::app {

inline constexpr std::int64_t glyph_side = 32;  ///< pixels of a glyph in the atlas
inline constexpr std::int64_t digit_side = 28;  ///< pixels of a sample, the same as in MNIST

/// The data, split into two halves that have no font family in common. Glyphs are u8 of shape (n, 32, 32), white (255)
/// on black. Labels are i32 of shape (n,).
struct Digits {
  Array train, train_labels, held_out, held_out_labels;
};

/// Returns the folder that contains the digits. Searches the data folder of the installation or build, and then
/// models/digits in the current folder. Throws ArgumentError with the searched folders if it is not found.
std::filesystem::path digits_folder();

/// Reads digits.png and digits.csv from a folder. Throws ArgumentError if a file is missing, and FormatError if a file
/// is damaged or the two files do not match.
Digits load_digits(const std::filesystem::path& folder, std::optional<Device> device = {});

/// The limits of the augmentation. Values are drawn uniformly: shift, turn, scale and slant between minus and plus the
/// limit, and contrast and noise between 0 and the limit.
struct Augmentation {
  float shift = 2.5f;     ///< in pixels along each axis
  float turn = 12;        ///< in degrees
  float scale = 0.15f;    ///< as a fraction of the size
  float slant = 0.2f;     ///< horizontal pixels per vertical pixel
  float contrast = 0.3f;  ///< subtracted from the brightness of white
  float noise = 0.15f;    ///< amplitude of the noise of each pixel
};

/// Returns augmented samples, f32 of shape (batch, 1, 28, 28) with values from 0 to 1. Sample i shows the glyph
/// `indices[i]` (i32), reduced to a height of 20 pixels and then shifted, rotated, scaled and slanted with bilinear
/// interpolation. Noise is added to all pixels. An index that is out of range results in a sample with only noise.
///
/// Sample i has the number first + i in the Philox stream of `seed`. It does not depend on the size of the batch, and
/// it is the same on every device except for rounding. Throws ShapeError, DtypeError or DeviceError if the arguments do
/// not match.
Array augment(const Array& glyphs, const Array& indices, std::uint64_t seed, std::uint64_t first,
              const Augmentation& by = {});

/// Returns `count` augmented samples of random glyphs and their labels (i32). They have the numbers first to first +
/// count - 1 in the stream of `seed`.
std::pair<Array, Array> digit_samples(const Array& glyphs, const Array& labels, std::uint64_t seed, std::uint64_t first,
                                      std::int64_t count);
/// The seed of the held-out samples, which are the same in every run.
inline constexpr std::uint64_t held_out_seed = 0x6469676974730000;

}  // namespace tessera::app
