// SPDX-License-Identifier: Apache-2.0
// PNG files: round trips, conversion of all pixel formats to grey, and errors for damaged files.
#include "app/image.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "tessera/base/test_seed.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"

namespace tessera::app {
namespace {

using test::expect_throw;

TEST(Image, RoundTripsThroughPng) {
  const test::Folder folder;
  const std::string path = folder / "new" / "a.png";
  Image image{256, 3, {}};
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < 256; ++x) image.grey.push_back(static_cast<float>(y == 1 ? 255 - x : x) / 255);
  write_png(path, image);
  const Image read = read_png(path);
  EXPECT_EQ(read.width, 256u);
  EXPECT_EQ(read.height, 3u);
  EXPECT_EQ(read.grey, image.grey);
  // Values outside of [0, 1] are clamped.
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  write_png(path, {5, 1, {-1, 2, nan, infinity, 0.5f}});
  EXPECT_EQ(read_png(path).grey, (std::vector<float>{0, 1, 0, 1, 128 / 255.0f}));
  const std::string before = test::text_of(path);
  expect_throw<ArgumentError>([&] { write_png(path, {0, 3, {}}); }, {path, "0 x 3", "the image has no pixels"});
  expect_throw<ArgumentError>([&] { write_png(path, {2, 2, {1}}); }, {"2 x 2", "there are 1 values"});
  expect_throw<ArgumentError>([&] { write_png(path, {most_pixels, 2, {}}); }, {"the limit is"});
  EXPECT_EQ(test::text_of(path), before);
  EXPECT_THROW(write_png(folder.path(), {1, 1, {1}}), ArgumentError);
}

/// Writes an image in one of libpng's formats and reads it.
template <class Sample>
Image through(const std::string& path, std::uint32_t format, std::vector<Sample> samples, std::uint32_t width) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = 1;
  image.format = format;
  EXPECT_NE(png_image_write_to_file(&image, path.c_str(), 0, samples.data(), 0, nullptr), 0) << image.message;
  return read_png(path);
}

TEST(Image, ConvertsAllPixelFormatsToGrey) {
  const test::Folder folder;
  const std::string path = folder / "a.png";
  EXPECT_EQ(through<std::uint8_t>(path, PNG_FORMAT_RGB, {10, 10, 10, 255, 255, 255, 0, 0, 0}, 3).grey,
            (std::vector<float>{10 / 255.0f, 1, 0}));
  const Image colours = through<std::uint8_t>(path, PNG_FORMAT_RGB, {255, 0, 0, 0, 255, 0, 0, 0, 255}, 3);
  EXPECT_GT(colours.grey[1], colours.grey[0]);  // green is brighter than red, and red is brighter than blue
  EXPECT_GT(colours.grey[0], colours.grey[2]);
  EXPECT_GT(colours.grey[2], 0.0f);
  // A transparent pixel becomes white, an opaque pixel is unchanged, and a half transparent pixel is blended.
  const Image clear = through<std::uint8_t>(path, PNG_FORMAT_RGBA, {0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 128}, 3);
  EXPECT_EQ(clear.grey[0], 1.0f);
  EXPECT_EQ(clear.grey[1], 0.0f);
  EXPECT_TRUE(clear.grey[2] > 0.3f && clear.grey[2] < 0.9f) << clear.grey[2];
  EXPECT_EQ(through<std::uint8_t>(path, PNG_FORMAT_GA, {0, 0, 7, 255}, 2).grey, (std::vector<float>{1, 7 / 255.0f}));
  const Image deep = through<std::uint16_t>(path, PNG_FORMAT_LINEAR_Y, {0, 65535}, 2);  // 16 bits
  EXPECT_EQ(deep.grey, (std::vector<float>{0, 1}));
}

TEST(Image, RejectsDamagedFiles) {
  const test::Folder folder;
  const std::string path = folder / "a.png";
  Image image{20, 20, std::vector<float>(400)};
  for (std::size_t i = 0; i < 400; ++i) image.grey[i] = static_cast<float>(i * 37 % 256) / 255;
  write_png(path, image);
  const std::string whole = test::text_of(path);
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return read_png(path);
  };
  EXPECT_EQ(read(whole).grey, image.grey);
  expect_throw<ArgumentError>([&] { read_png(folder / "none.png"); }, {"none.png", "the file does not exist"});
  expect_throw<ArgumentError>([&] { read_png(folder.path()); }, {"directory"});
  expect_throw<FormatError>([&] { read(""); }, {"empty"});
  expect_throw<FormatError>([&] { read("P5 1 1 255 x"); }, {path, "not a readable PNG", "Use a PNG file"});
  // A small file declares a huge image. Its checksum is correct.
  std::string huge = whole;
  huge.replace(16, 8, std::string("\x00\x0F\x42\x40\x00\x0F\x42\x40", 8));  // 1000000 x 1000000
  std::uint32_t crc = ~0u;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= static_cast<std::uint8_t>(huge[i]);
    for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  for (int i = 0; i < 4; ++i) huge[29 + static_cast<std::size_t>(i)] = static_cast<char>(~crc >> (24 - 8 * i));
  expect_throw<FormatError>([&] { read(huge); }, {path, "1000000 x 1000000 pixels exceed", "Scale the image down"});
  // Truncation is detected anywhere before the end of the pixels. Only the end marker follows them.
  for (std::size_t n = 1; n + 16 < whole.size(); ++n) ASSERT_THROW(read(whole.substr(0, n)), FormatError) << n;
  // A randomly damaged file causes an error or is read as an image of the declared size.
  std::mt19937_64 rng(test_seed());
  for (int run = 0; run < 1000; ++run) {
    std::string bytes = whole;
    for (std::uint64_t n = 1 + rng() % 3; n > 0; --n) bytes[rng() % bytes.size()] = static_cast<char>(rng());
    try {
      const Image got = read(bytes);
      EXPECT_EQ(got.grey.size(), got.width * got.height);
    } catch (const FormatError&) {}
  }
}

}  // namespace
}  // namespace tessera::app
