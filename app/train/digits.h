// SPDX-License-Identifier: Apache-2.0
// The digits that `tessera train digits` learns from (models/digits/README.md), and samples made of them on the device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

#include "tessera/array/array.h"

namespace tessera::app {

inline constexpr std::int64_t glyph_side = 32;  ///< pixels of a picture in the atlas
inline constexpr std::int64_t digit_side = 28;  ///< and of a sample, as in MNIST

/// Pictures, u8 of shape (n, 32, 32), white (255) on black; and which digit each is, i32 of shape (n,). Families in one
/// half are not in the other.
struct Digits {
  Array train, train_labels, held_out, held_out_labels;
};

/// Where the shipped digits are: beside the installed program, in the build folder, or models/digits below the current
/// folder. ArgumentError that names the places if they are in none.
std::filesystem::path digits_folder();

/// Reads digits.png and digits.csv of a folder. ArgumentError if one is missing; FormatError if one is damaged or they
/// are not of one another.
Digits load_digits(const std::filesystem::path& folder, std::optional<Device> device = {});

/// How far samples are from the pictures they are made of: each is drawn uniformly up to this, both ways where that
/// means anything.
struct Augmentation {
  float shift = 2.5f;     ///< pixels, along each axis
  float turn = 12;        ///< degrees
  float scale = 0.15f;    ///< part of the size
  float slant = 0.2f;     ///< horizontal pixels a vertical one
  float contrast = 0.3f;  ///< taken from white
  float noise = 0.15f;    ///< of each pixel: the most of a sample's own amplitude
};

/// Samples, f32 of shape (batch, 1, 28, 28) from 0 to 1: glyph `indices[i]` (i32; none if out of range: then only
/// noise), drawn 20 pixels high where the atlas has 24, moved, turned, scaled and slanted by bilinear sampling, with
/// noise. Sample i is number first + i of the stream of Philox that `seed` gives, whatever the batch: a function of
/// these alone, the same on every device within rounding. ShapeError, DtypeError or DeviceError if the arguments do not
/// go together.
Array augment(const Array& glyphs, const Array& indices, std::uint64_t seed, std::uint64_t first,
              const Augmentation& by = {});

/// Samples first to first + count of the stream of `seed`, from pictures drawn alike often, and which digits they are
/// (i32).
std::pair<Array, Array> digit_samples(const Array& glyphs, const Array& labels, std::uint64_t seed, std::uint64_t first,
                                      std::int64_t count);
/// The stream that is measured by: of its own, so that every run is measured alike.
inline constexpr std::uint64_t held_out_seed = 0x6469676974730000;

}  // namespace tessera::app
