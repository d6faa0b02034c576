// SPDX-License-Identifier: Apache-2.0
// Points on the arms of a spiral, generated on the device, and images of a network's decision regions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/learner.h"

namespace tessera::app {

inline constexpr double spiral_extent = 1.15;  ///< images show -spiral_extent to spiral_extent on both axes

/// Points (count, 2), f32, and the arm of each: an arm starts at the centre and winds out to radius 1 in one and a half
/// turns; points are normally distributed around it. A function of seed and number.
Batch spiral_points(std::int64_t count, std::int64_t arms, std::uint64_t seed, std::uint64_t number);

/// The centres of width x height cells of the plane, row by row from the top: (width * height, 2).
Array plane(std::int64_t width, std::int64_t height);

/// The plane as text, with a character for each class: lines of `width` characters.
std::string plane_text(const std::vector<std::int32_t>& classes, std::size_t width);
/// The plane as an SVG with points; `classes` must be those of a square.
std::string plane_svg(const std::vector<std::int32_t>& classes, const Batch& points, std::string_view title);

}  // namespace tessera::app
