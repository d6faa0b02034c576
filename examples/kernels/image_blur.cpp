// SPDX-License-Identifier: Apache-2.0
// How do I process an image?
// A Gaussian blur launches one kernel twice, first along the rows and then along the columns.
// usage: example_image_blur [[--draw] BEFORE.png AFTER.png]. Without files or with --draw, it draws a picture first.
#include <tessera/kernel/buffer.h>
#include <tessera/kernel/kernel.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>

#include "picture.h"

using namespace tessera;

constexpr int radius = 12;

/// One thread per pixel. `along` is 1 for blurring along rows and 0 along columns. Pixels at the edge are repeated.
const auto blur =
    kernel("blur", [](Buffer<const std::uint8_t> from, Buffer<std::uint8_t> to, Buffer<const float> weights,
                      Val<Index> width, Val<Index> height, Val<Index> along) {
      auto x = global_id(0), y = global_id(1);
      Var<float> sums[3];
      for_(-radius, radius + 1, [&](Val<Index> d) {
        auto at = min(max(y + d * (1 - along), 0), height - 1) * width + min(max(x + d * along, 0), width - 1);
        for (int c = 0; c < 3; ++c) sums[c] += weights[d + radius] * cast<float>(from[at * 3 + c]);
      });
      for (int c = 0; c < 3; ++c) to[(y * width + x) * 3 + c] = cast<std::uint8_t>(rint(sums[c]));
    });

int main(int argc, char** argv) try {
  const bool draws = argc == 1 || std::string(argv[1]) == "--draw";
  if (argc != 1 && argc != (draws ? 4 : 3))
    return std::cerr << "usage: example_image_blur [[--draw] BEFORE.png AFTER.png]\n", 2;
  std::string folder = std::filesystem::temp_directory_path() / "tessera-blur-XXXXXX";
  if (argc == 1 && ::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot create " + folder);
  const std::string in = argc == 1 ? folder + "/before.png" : argv[argc - 2];
  const std::string out = argc == 1 ? folder + "/after.png" : argv[argc - 1];
  if (draws) write_png(in, draw_mosaic());

  Picture p = read_png(in);
  const std::vector<float> weights = gaussian(radius);
  const DeviceBuffer<std::uint8_t> picture(p.rgb);
  DeviceBuffer<std::uint8_t> rows(p.rgb.size()), both(p.rgb.size());
  const DeviceBuffer<float> w(weights);
  blur.launch({p.width, p.height}, picture, rows, w, p.width, p.height, 1);
  blur.launch({p.width, p.height}, rows, both, w, p.width, p.height, 0);

  const auto expected = blur_on_host(p, blur_on_host(p, p.rgb, weights, 1), weights, 0);
  p.rgb = both.to_vector();
  write_png(out, p);
  int error = 0;  // each of the two launches may round differently
  for (std::size_t i = 0; i < expected.size(); ++i) error = std::max(error, std::abs(expected[i] - p.rgb[i]));
  std::cout << in << " -> " << out << " on " << to_string(current_device()) << ", largest error: " << error
            << " of 255\n";
  return error <= 2 && read_png(out).rgb == p.rgb ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}

// Output:
// ...before.png -> ...after.png on ..., largest error: ... of 255
