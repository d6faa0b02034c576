// SPDX-License-Identifier: Apache-2.0
#include "train/spirals.h"

#include <cmath>

#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "train/svg.h"

namespace tessera::app {

Batch spiral_points(std::int64_t count, std::int64_t arms, std::uint64_t seed, std::uint64_t number) {
  constexpr double turns = 1.5, deviation = 0.025, circle = 2 * 3.14159265358979;
  const Array drawn = random_uniform({2, count}, seed, Counter(2 * number));
  const Array noise = random_normal({count, 2}, seed, Counter(2 * number + 1), 0, deviation);
  const double n = static_cast<double>(arms);
  const Array arm = minimum(floor(drawn.select(0, 0) * n), n - 1);
  const Array radius = sqrt(drawn.select(0, 1));  // the root distributes points about evenly along an arm
  const Array angle = circle * (turns * radius + arm / n);
  const Array x = stack({radius * cos(angle), radius * sin(angle)}, 1) + noise;
  return {x.eval(), arm.astype(DType::i32).eval()};
}

Array plane(std::int64_t width, std::int64_t height) {
  std::vector<float> at;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      at.push_back(static_cast<float>(spiral_extent * ((2 * double(x) + 1) / double(width) - 1)));
      at.push_back(static_cast<float>(spiral_extent * (1 - (2 * double(y) + 1) / double(height))));
    }
  return Array::from(at, Shape{width * height, 2});
}

std::string plane_text(const std::vector<std::int32_t>& classes, std::size_t width) {
  constexpr std::string_view characters = ".#o+";
  std::string out;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    out += characters[static_cast<std::size_t>(classes[i]) % characters.size()];
    if ((i + 1) % width == 0) out += '\n';
  }
  return out;
}

std::string plane_svg(const std::vector<std::int32_t>& classes, const Batch& points, std::string_view title) {
  constexpr int pixels = 560;
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(classes.size()))));
  const double cell = static_cast<double>(pixels) / static_cast<double>(side);
  Svg svg(pixels, pixels, title);
  for (std::size_t y = 0; y < side; ++y)
    for (std::size_t x = 0, end; x < side; x = end) {  // draw adjacent cells of the same class as one rectangle
      const std::int32_t of = classes[y * side + x];
      for (end = x; end < side && classes[y * side + end] == of;) ++end;
      svg.rectangle(double(x) * cell, double(y) * cell, double(end - x) * cell, cell, "fill" + std::to_string(of));
    }
  const auto at = points.x.to_vector<float>();
  const auto arm = points.y.to_vector<std::int32_t>();
  const auto place = [&](float v) { return pixels * (v / spiral_extent + 1) / 2; };
  for (std::size_t i = 0; i < arm.size(); ++i)
    svg.circle(place(at[2 * i]), pixels - place(at[2 * i + 1]), 2.5, "dot" + std::to_string(arm[i]));
  return svg.str();
}

}  // namespace tessera::app
