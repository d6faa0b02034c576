// SPDX-License-Identifier: Apache-2.0
// Blurs a picture: reads a PNG, runs one kernel twice (along the rows, then along the columns), writes a PNG.
// It reads the picture that it is given, or draws one, see `usage` below.
#include <png.h>
#include <tessera/tessera.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>

using namespace tessera;

struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // three bytes a pixel, row after row
};

Picture read_png(const std::string& path) {
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

void write_png(const std::string& path, const Picture& p) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(p.width);
  image.height = static_cast<png_uint_32>(p.height);
  image.format = PNG_FORMAT_RGB;
  if (!png_image_write_to_file(&image, path.c_str(), 0, p.rgb.data(), 0, nullptr))
    throw std::runtime_error(path + ": " + image.message);
}

/// A mosaic: tiles of changing colour with dark joints, and a disc in the middle.
Picture draw() {
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

constexpr int radius = 12;

std::vector<float> gaussian() {
  std::vector<float> weights(2 * radius + 1);
  float sum = 0;
  for (int i = -radius; i <= radius; ++i)
    sum += weights[static_cast<std::size_t>(i + radius)] = std::exp(-0.5f * static_cast<float>(i * i) / 16);
  for (float& w : weights) w /= sum;
  return weights;
}

/// One thread a pixel. `along` is 1 to blur along the row and 0 along the column; edges repeat.
const auto blur =
    kernel("blur", [](Buffer<const std::uint8_t> from, Buffer<std::uint8_t> to, Buffer<const float> weights,
                      Val<Index> width, Val<Index> height, Val<Index> along) {
      auto x = global_id(0), y = global_id(1);
      Var<float> red, green, blue;
      for_(-radius, radius + 1, [&](Val<Index> d) {
        auto at = min(max(y + d * (1 - along), 0), height - 1) * width + min(max(x + d * along, 0), width - 1);
        auto w = weights[d + radius];
        red += w * cast<float>(from[at * 3]);
        green += w * cast<float>(from[at * 3 + 1]);
        blue += w * cast<float>(from[at * 3 + 2]);
      });
      auto at = (y * width + x) * 3;
      to[at] = cast<std::uint8_t>(rint(red));
      to[at + 1] = cast<std::uint8_t>(rint(green));
      to[at + 2] = cast<std::uint8_t>(rint(blue));
    });

/// The same in plain C++.
std::vector<std::uint8_t> blur_on_host(const Picture& p, const std::vector<std::uint8_t>& from,
                                       const std::vector<float>& weights, int along) {
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

constexpr const char* usage =
    "usage: example_image_blur BEFORE.png AFTER.png         blurs a picture\n"
    "       example_image_blur --draw BEFORE.png AFTER.png  draws the picture first\n"
    "       example_image_blur                              draws one, both in a new folder for temporary files\n";

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (argc == 2 && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::cout << usage;
    return 0;
  }
  const bool draws = argc == 1 || arguments[0] == "--draw";
  if (argc != 1 && argc != (draws ? 4 : 3)) {
    std::cerr << usage;
    return 2;
  }
  try {
    std::string in, out;
    if (argc == 1) {
      // Of this process alone: others draw as well, and do not own each other's files.
      std::string folder = std::filesystem::temp_directory_path() / "tessera-blur-XXXXXX";
      if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error(folder + ": no folder could be made");
      in = folder + "/before.png", out = folder + "/after.png";
    } else {
      in = argv[argc - 2], out = argv[argc - 1];
    }
    if (draws) write_png(in, draw());
    Picture p = read_png(in);
    const std::vector<float> weights = gaussian();
    const DeviceBuffer<std::uint8_t> picture(p.rgb);
    DeviceBuffer<std::uint8_t> rows(p.rgb.size()), both(p.rgb.size());
    const DeviceBuffer<float> w(weights);
    blur.launch({p.width, p.height}, picture, rows, w, p.width, p.height, 1);
    blur.launch({p.width, p.height}, rows, both, w, p.width, p.height, 0);

    const auto expected = blur_on_host(p, blur_on_host(p, p.rgb, weights, 1), weights, 0);
    p.rgb = both.to_vector();
    write_png(out, p);
    int worst = 0;  // a rounding may go the other way in each pass
    for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(expected[i] - p.rgb[i]));
    std::cout << in << " -> " << out << " on " << to_string(current_device())
              << ", largest difference from the host: " << worst << " of 255\n";
    return worst <= 2 && read_png(out).rgb == p.rgb ? 0 : 1;
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
