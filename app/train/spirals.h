// SPDX-License-Identifier: Apache-2.0
// Points on the arms of a spiral, made on the device, and pictures of what a network makes of the plane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/learner.h"

namespace tessera::app {

inline constexpr double spiral_extent = 1.15;  ///< pictures are of -spiral_extent to spiral_extent, both ways

/// Points (count, 2), f32, and which arm each is of: an arm starts at the middle and winds out to radius 1 in one and a
/// half turns, and points lie beside it by a normal deviation. A function of seed and number alone.
Batch spiral_points(std::int64_t count, std::int64_t arms, std::uint64_t seed, std::uint64_t number);

/// The centres of width x height cells of the plane, row by row from the top: (width * height, 2).
Array plane(std::int64_t width, std::int64_t height);

/// The plane with a character for each class: lines of `width` characters.
std::string plane_text(const std::vector<std::int32_t>& classes, std::size_t width);
/// The same as a picture with points on it; `classes` are of a square.
std::string plane_svg(const std::vector<std::int32_t>& classes, const Batch& points, std::string_view title);

}  // namespace tessera::app
