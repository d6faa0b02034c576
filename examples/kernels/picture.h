// SPDX-License-Identifier: Apache-2.0
// Helpers for image_blur.cpp: PNG files, a picture to blur, and a blur in plain C++ for comparison.
#pragma once

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< three bytes per pixel, in row-major order
};

inline Picture read_png(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&image, path.c_str())) throw std::runtime_error(path + ": " + image.message);
  image.format = PNG_FORMAT_RGB;
  Picture p{static_cast<int>(image.width), static_cast<int>(image.height),
            std::vector<std::uint8_t>(PNG_IMAGE_SIZE(image))};
  if (!png_image_finish_read(&image, nullptr, p.rgb.data(), 0, nullptr))
    throw std::runtime_error(path + ": " + image.message);
  return p;
}

inline void write_png(const std::string& path, const Picture& p) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(p.width);
  image.height = static_cast<png_uint_32>(p.height);
  image.format = PNG_FORMAT_RGB;
  if (!png_image_write_to_file(&image, path.c_str(), 0, p.rgb.data(), 0, nullptr))
    throw std::runtime_error(path + ": " + image.message);
}

/// Draws a mosaic of coloured tiles with dark joints, and a disc in the middle.
inline Picture draw_mosaic() {
  Picture p{320, 200, std::vector<std::uint8_t>(320 * 200 * 3)};
  for (int y = 0; y < p.height; ++y) {
    for (int x = 0; x < p.width; ++x) {
      const int column = x / 20, row = y / 20;
      const bool joint = x % 20 < 2 || y % 20 < 2;
      const bool disc = std::hypot(column * 20 + 10 - 160, row * 20 + 10 - 100) < 75;
      const int shade = (column * 37 + row * 61) % 60;
      const int colours[2][3] = {{40 + shade, 90 + shade, 140 + shade}, {190 + shade, 120 + shade, 30 + shade}};
      for (int c = 0; c < 3; ++c)
        p.rgb[static_cast<std::size_t>((y * p.width + x) * 3 + c)] =
            static_cast<std::uint8_t>(joint ? 35 : colours[disc][c]);
    }
  }
  return p;
}

/// Returns 2 radius + 1 weights. Their sum is 1, and the standard deviation is a third of the radius.
inline std::vector<float> gaussian(int radius) {
  std::vector<float> weights;
  for (int i = -radius; i <= radius; ++i)
    weights.push_back(std::exp(-4.5f * static_cast<float>(i * i) / static_cast<float>(radius * radius)));
  const float sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
  for (float& w : weights) w /= sum;
  return weights;
}

/// Blurs along rows (`along` is 1) or columns (0), like the kernel.
inline std::vector<std::uint8_t> blur_on_host(const Picture& p, const std::vector<std::uint8_t>& from,
                                              const std::vector<float>& weights, int along) {
  const int radius = static_cast<int>(weights.size() / 2);
  std::vector<std::uint8_t> to(from.size());
  for (int y = 0; y < p.height; ++y)
    for (int x = 0; x < p.width; ++x)
      for (int c = 0; c < 3; ++c) {
        double sum = 0;
        for (int d = -radius; d <= radius; ++d) {
          const int sx = std::clamp(x + d * along, 0, p.width - 1),
                    sy = std::clamp(y + d * (1 - along), 0, p.height - 1);
          sum += static_cast<double>(weights[static_cast<std::size_t>(d + radius)]) *
                 from[static_cast<std::size_t>((sy * p.width + sx) * 3 + c)];
        }
        to[static_cast<std::size_t>((y * p.width + x) * 3 + c)] = static_cast<std::uint8_t>(std::lrint(sum));
      }
  return to;
}
