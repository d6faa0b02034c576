// SPDX-License-Identifier: Apache-2.0
// Generates points on the arms of a spiral, and draws the decision regions of a network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/learner.h"

namespace tessera::app {

inline constexpr double spiral_extent = 1.15;  ///< both axes of an image range from -spiral_extent to spiral_extent

/// Returns random points, f32 of shape (count, 2), and their arms. An arm starts at the centre and reaches radius 1
/// after one and a half turns. The points are normally distributed around it. They only depend on `seed` and `number`.
Batch spiral_points(std::int64_t count, std::int64_t arms, std::uint64_t seed, std::uint64_t number);

/// Divides the plane into width x height cells and returns their centres (width * height, 2), row by row from the top.
Array plane(std::int64_t width, std::int64_t height);

/// Draws the classes of the cells as text, in lines of `width` characters.
std::string plane_text(const std::vector<std::int32_t>& classes, std::size_t width);
/// Draws the classes of the cells, and points, as an SVG. The number of rows and columns must be equal.
std::string plane_svg(const std::vector<std::int32_t>& classes, const Batch& points, std::string_view title);

}  // namespace tessera::app
