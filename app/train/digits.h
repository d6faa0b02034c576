// SPDX-License-Identifier: Apache-2.0
// The data of `tessera train digits` (models/digits/README.md), and its augmentation on the device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

#include "tessera/array/array.h"

namespace tessera::app {

inline constexpr std::int64_t glyph_side = 32;  ///< pixels of a glyph in the atlas
inline constexpr std::int64_t digit_side = 28;  ///< pixels of a sample, as in MNIST

/// Glyphs, u8 of shape (n, 32, 32), white (255) on black, and their digits, i32 of shape (n,). No font family is in
/// both halves.
struct Digits {
  Array train, train_labels, held_out, held_out_labels;
};

/// The folder of the shipped digits: next to the installed program, in the build folder, or models/digits below the
/// current folder. Throws ArgumentError, with the searched folders, if none has them.
std::filesystem::path digits_folder();

/// Reads digits.png and digits.csv from a folder. Throws ArgumentError if one is missing; FormatError if one is damaged
/// or they do not match.
Digits load_digits(const std::filesystem::path& folder, std::optional<Device> device = {});

/// The augmentation's ranges: each value is drawn uniformly up to this, in both directions where applicable.
struct Augmentation {
  float shift = 2.5f;     ///< pixels, along each axis
  float turn = 12;        ///< degrees
  float scale = 0.15f;    ///< fraction of the size
  float slant = 0.2f;     ///< horizontal pixels per vertical pixel
  float contrast = 0.3f;  ///< subtracted from white
  float noise = 0.15f;    ///< of each pixel: maximum of a sample's amplitude
};

/// Samples, f32 of shape (batch, 1, 28, 28) from 0 to 1: glyph `indices[i]` (i32; only noise if out of range), scaled
/// from 24 to 20 pixels high, shifted, rotated, scaled and slanted with bilinear interpolation, plus noise. Sample i is
/// number first + i of the Philox stream of `seed`, independent of the batch: the same on every device within rounding.
/// Throws ShapeError, DtypeError or DeviceError if the arguments do not match.
Array augment(const Array& glyphs, const Array& indices, std::uint64_t seed, std::uint64_t first,
              const Augmentation& by = {});

/// Samples first to first + count of the stream of `seed`, from uniformly drawn glyphs, and their digits (i32).
std::pair<Array, Array> digit_samples(const Array& glyphs, const Array& labels, std::uint64_t seed, std::uint64_t first,
                                      std::int64_t count);
/// The seed of the held-out samples, the same in every run.
inline constexpr std::uint64_t held_out_seed = 0x6469676974730000;

}  // namespace tessera::app
