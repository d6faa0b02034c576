// SPDX-License-Identifier: Apache-2.0
#include "train/normalize_digit.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "train/digits.h"

namespace tessera::app {
namespace {

/// Returns the mean brightness of a rectangle whose corners may be fractional. Pixels outside of the image are black.
double mean_of(const Image& p, double left, double top, double right, double bottom) {
  const auto end = [](double at, std::size_t extent) {
    return static_cast<std::size_t>(std::clamp(std::ceil(at), 0.0, static_cast<double>(extent)));
  };
  double total = 0;
  for (auto y = static_cast<std::size_t>(std::max(0.0, std::floor(top))); y < end(bottom, p.height); ++y)
    for (auto x = static_cast<std::size_t>(std::max(0.0, std::floor(left))); x < end(right, p.width); ++x) {
      const double wide = std::min(right, double(x) + 1) - std::max(left, double(x));
      const double high = std::min(bottom, double(y) + 1) - std::max(top, double(y));
      total += wide * high * p.grey[y * p.width + x];
    }
  return total / ((right - left) * (bottom - top));
}

}  // namespace

Image normalize_digit(const Image& picture, const std::string& file) {
  Image p = picture;
  const auto [low, high] = std::minmax_element(p.grey.begin(), p.grey.end());
  const float darkest = *low, range = *high - *low;
  if (range < 0.05f)
    fail<ArgumentError>({.operation = "read a digit",
                         .with = {{"file", file}},
                         .wrong = "the image has uniform brightness, so it contains no digit"});
  double border = 0;
  std::size_t count = 0;
  for (std::size_t y = 0; y < p.height; ++y)
    for (std::size_t x = 0; x < p.width; ++x) {
      float& v = p.grey[y * p.width + x];
      v = (v - darkest) / range;
      if (x == 0 || y == 0 || x + 1 == p.width || y + 1 == p.height) border += v, ++count;
    }
  if (border > 0.5 * static_cast<double>(count))
    for (float& v : p.grey) v = 1 - v;

  std::size_t left = p.width, top = p.height, right = 0, bottom = 0;  // bounding box of the digit
  for (std::size_t y = 0; y < p.height; ++y)
    for (std::size_t x = 0; x < p.width; ++x)
      if (p.grey[y * p.width + x] > 0.4f) {
        left = std::min(left, x), right = std::max(right, x + 1);
        top = std::min(top, y), bottom = std::max(bottom, y + 1);
      }
  constexpr std::size_t side = digit_side;
  constexpr double ink = 20;
  // number of input pixels per output pixel
  const double scale = static_cast<double>(std::max(right - left, bottom - top)) / ink;
  const double from_x = (static_cast<double>(left + right) - scale * side) / 2;
  const double from_y = (static_cast<double>(top + bottom) - scale * side) / 2;
  Image out{side, side, {}};
  for (std::size_t y = 0; y < side; ++y)
    for (std::size_t x = 0; x < side; ++x) {
      const double u = from_x + scale * double(x), v = from_y + scale * double(y);
      out.grey.push_back(static_cast<float>(mean_of(p, u, v, u + scale, v + scale)));
    }
  return out;
}

}  // namespace tessera::app
