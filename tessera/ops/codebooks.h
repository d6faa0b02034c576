// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The codebooks of the IQ1, IQ2 and IQ3 formats: tables of 4 or 8 numbers, to which the indices in
// these formats refer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/ops/weight.h"
#include "tessera/ops/weight_formats.h"

namespace tessera::ops {

/// The codebook of a format: an entry has eight 2-bit codes, or in iq3_xxs and iq3_s four codes of 4 bits, lowest
/// first. Formats without a codebook have no entries.
std::span<const std::uint16_t> codebook_of(WeightFormat format);
/// The magnitude of a 2-bit code of the IQ2 formats.
inline constexpr std::uint8_t iq2_magnitudes[] = {8, 25, 43};
/// The magnitude of a code of iq3_xxs. That of a code c of iq3_s is 2 c + 1.
inline constexpr std::uint8_t iq3_xxs_magnitudes[] = {4, 12, 20, 28, 36, 44, 52, 62};

/// The codebook in the form that kernels read, one word for each entry:
/// - IQ1: bits 8 j + 2 i and 8 j + 2 i + 1 are the code of number 4 i + j.
/// - IQ2: bit 8 j + i is set if number 4 i + j is 25, and bit 8 j + i + 4 if it is 43.
/// - iq3_xxs: byte j is 64 plus number j.
/// - iq3_s: byte j is 15 plus number j.
std::vector<std::uint32_t> codebook_words(WeightFormat format);
/// These words on a device. The weights of a device share the array.
Array codebook_on(WeightFormat format, Device device);

/// The factors of a part of 32 columns in a block of iq1_m; two parts share a 16-bit number.
std::uint16_t iq1_m_factors(const std::byte* block, std::size_t part);
/// The scale of a block of iq1_m, whose bits are distributed, as the bits of an f16.
std::uint16_t iq1_m_scale(const std::byte* block);

// Unpack a block of a file; see codebook_kernels.cpp for the layout.
void unpack_iq2_xxs(const std::byte* block, UnpackedBlock& out);
void unpack_iq2_xs(const std::byte* block, UnpackedBlock& out);
void unpack_iq2_s(const std::byte* block, UnpackedBlock& out);
void unpack_iq3_xxs(const std::byte* block, UnpackedBlock& out);
void unpack_iq3_s(const std::byte* block, UnpackedBlock& out);
void unpack_iq1_s(const std::byte* block, UnpackedBlock& out);
void unpack_iq1_m(const std::byte* block, UnpackedBlock& out);

}  // namespace tessera::ops
