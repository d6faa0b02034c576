// SPDX-License-Identifier: Apache-2.0
// Tests the shipped digits and errors in their files, and compares augmented samples on every device with plain C++.
#include "app/train/digits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "app/image.h"
#include "tessera/base/philox.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera::app {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

TEST(Digits, ImageMatchesTheTable) {
  std::ifstream file(digits_folder() / "digits.csv");
  ASSERT_TRUE(file) << digits_folder();
  std::map<std::string, std::set<std::string>> families, of_class[2];
  std::string line;
  std::getline(file, line);
  std::size_t rows = 0, train_rows = 0;
  for (; std::getline(file, line); ++rows) {
    std::vector<std::string> fields(1);
    for (const char c : line) c == ',' ? fields.emplace_back() : fields.back() += c;
    ASSERT_EQ(fields.size(), 7u) << line;
    for (const std::string& field : fields) EXPECT_FALSE(field.empty()) << line;
    families[fields[3]].insert(fields[0]);
    of_class[fields[3] == "train"][fields[2]].insert(fields[0]);
    train_rows += fields[3] == "train";
  }
  EXPECT_GE(families["train"].size(), 60u);
  EXPECT_GE(families["held out"].size(), 12u);
  for (const std::string& family : families["held out"]) EXPECT_FALSE(families["train"].contains(family)) << family;
  for (const auto& half : of_class)
    for (const char* kind : {"sans", "serif", "mono"}) EXPECT_GE(half.at(kind).size(), 5u) << kind;
  EXPECT_LE(std::filesystem::file_size(digits_folder() / "digits.png"), 1'000'000u);

  const Digits digits = load_digits(digits_folder(), Device{});
  const auto count = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  EXPECT_EQ(digits.train.shape(), (Shape{count(train_rows * 10), 32, 32}));
  EXPECT_EQ(digits.held_out.shape(), (Shape{count((rows - train_rows) * 10), 32, 32}));
  for (const auto& [glyphs, labels] :
       {std::pair(digits.train, digits.train_labels), std::pair(digits.held_out, digits.held_out_labels)}) {
    EXPECT_EQ(glyphs.dtype(), DType::u8);
    ASSERT_EQ(labels.size(), glyphs.shape(0));
    const auto pixels = glyphs.to_vector<std::uint8_t>();
    const auto label = labels.to_vector<std::int32_t>();
    for (std::size_t i = 0; i < label.size(); ++i) {
      EXPECT_EQ(label[i], static_cast<std::int32_t>(i % 10));
      // The glyph is white and centred, with a black border of two pixels.
      long ink = 0, border = 0, right = 0, down = 0;
      for (int y = 0; y < 32; ++y)
        for (int x = 0; x < 32; ++x) {
          const int p = pixels[i * 1024 + static_cast<std::size_t>(32 * y + x)];
          ink += p, right += p * (2 * x - 31), down += p * (2 * y - 31);
          border += std::min({x, y, 31 - x, 31 - y}) < 2 ? p : 0;
        }
      EXPECT_GT(ink, 255 * 20) << i;
      EXPECT_LT(ink, 255 * 450) << i;
      EXPECT_EQ(border, 0) << i;
      EXPECT_LT(std::abs(right), 8 * ink) << i;
      EXPECT_LT(std::abs(down), 12 * ink) << i;
    }
  }
}

TEST(Digits, RejectsFilesThatDoNotMatch) {
  const test::Folder folder;
  const std::string head = "family,style,class,split,licence,package,version\n", row = "A,regular,sans,train,MIT,p,1\n";
  const auto load = [&](const std::string& table, std::size_t height) {
    std::ofstream(folder / "digits.csv") << table;
    write_png(folder / "digits.png", {320, height, std::vector<float>(320 * height, 1)});
    return load_digits(folder.path(), Device{});
  };
  expect_throw<ArgumentError>([&] { load_digits(folder.path()); }, {"digits.csv", "cannot be opened"});
  EXPECT_EQ(load(head + row, 32).train.shape(), (Shape{10, 32, 32}));
  EXPECT_EQ(load(head + row, 32).held_out.shape(), (Shape{0, 32, 32}));
  EXPECT_EQ(load(head + row, 32).train.to_vector<std::uint8_t>(), std::vector<std::uint8_t>(10240, 255));
  expect_throw<FormatError>([&] { load(head + row, 33); }, {"320 x 33 pixels", "1 rows"});
  expect_throw<FormatError>([&] { load(head + row + row, 32); }, {"2 rows"});
  expect_throw<FormatError>([&] { load(head, 32); }, {"0 rows"});
  expect_throw<FormatError>([&] { load(row, 32); }, {"line = 1", "columns"});
  expect_throw<FormatError>([&] { load(head + row + "A,regular,sans,test,MIT,p,1\n", 64); }, {"line = 3", "\"test\""});
  expect_throw<FormatError>([&] { load(head + "A\n", 32); }, {"line = 2", "\"\""});
  load(head + row, 32);
  std::filesystem::remove(folder / "digits.png");
  expect_throw<ArgumentError>([&] { load_digits(folder.path()); }, {"digits.png", "the file does not exist"});
}

/// Returns the documented result of augment, computed in double precision.
std::vector<float> expected(const std::vector<std::uint8_t>& glyphs, std::int32_t glyph, std::uint64_t seed,
                            std::uint64_t number, const Augmentation& by) {
  const auto block = [&](std::uint32_t k) {
    return philox4x32(PhiloxCounter{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), k, 0},
                      PhiloxKey{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  };
  const auto unit = [](std::uint32_t w) { return (w >> 8) * 0x1p-24; };
  const auto both = [&](std::uint32_t w) { return 2 * unit(w) - 1; };
  const PhiloxCounter one = block(0), two = block(1);
  const double angle = by.turn * M_PI / 180 * both(one[2]), size = 20. / 24 * (1 + by.scale * both(one[3]));
  std::vector<float> out;
  for (std::uint32_t i = 0; i < 28 * 28; ++i) {
    const double x = i % 28 - 13.5 - by.shift * both(one[0]), y = i / 28 - 13.5 - by.shift * both(one[1]);
    const double v = (std::cos(angle) * y - std::sin(angle) * x) / size;
    const double u = (std::cos(angle) * x + std::sin(angle) * y) / size - by.slant * both(two[0]) * v;
    double ink = 0;
    for (int py = 0; py < 32; ++py)
      for (int px = 0; px < 32; ++px)
        ink += std::max(0., 1 - std::abs(u + 15.5 - px)) * std::max(0., 1 - std::abs(v + 15.5 - py)) *
               glyphs[static_cast<std::size_t>(glyph * 1024 + py * 32 + px)] / 255;
    const double grain = both(block(2 + i / 4)[i % 4]) * by.noise * unit(two[2]);
    out.push_back(static_cast<float>(std::clamp((1 - by.contrast * unit(two[1])) * ink + grain, 0., 1.)));
  }
  return out;
}

TEST_P(OnEveryDevice, SamplesMatchPlainCpp) {
  std::vector<std::uint8_t> pixels(3 * 1024);
  for (std::uint8_t& p : pixels) p = static_cast<std::uint8_t>(random());
  const Array glyphs = Array::from(pixels, Shape{3, 32, 32});
  const std::vector<std::int32_t> which = {2, 0, 1, 1};
  const Array indices = Array::from(which);
  for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 2, random()}) {
    const std::uint64_t seed = random();
    const Augmentation by{.shift = 4, .turn = 30};
    const Array made = augment(glyphs, indices, seed, first, by);
    EXPECT_EQ(made.shape(), (Shape{4, 1, 28, 28}));
    EXPECT_EQ(made.device(), GetParam());
    const auto got = made.to_vector<float>();
    for (std::size_t i = 0; i < which.size(); ++i) {
      const auto want = expected(pixels, which[i], seed, first + i, by);
      for (std::size_t p = 0; p < want.size(); ++p) ASSERT_NEAR(got[i * 784 + p], want[p], 5e-5) << i << " " << p;
    }
    // A sample depends on its number, but not on the batch.
    const auto third = augment(glyphs, indices.slice(0, 2, 3), seed, first + 2, by).to_vector<float>();
    EXPECT_TRUE(std::equal(third.begin(), third.end(), got.begin() + 2 * 784));
  }
  // Without augmentation, the glyph is only scaled from 24 to 20 pixels, and pixels outside of it are black.
  const Augmentation still{0, 0, 0, 0, 0, 0};
  const auto same = augment(glyphs, indices, 1, 0, still).to_vector<float>();
  EXPECT_TRUE(std::equal(same.begin() + 2 * 784, same.begin() + 3 * 784, same.begin() + 3 * 784));
  const auto none = augment(glyphs, Array::from({std::int32_t{-1}, std::int32_t{3}}), 1, 0, still).to_vector<float>();
  EXPECT_EQ(none, std::vector<float>(2 * 784, 0.f));
  EXPECT_EQ(augment(glyphs, indices.slice(0, 0, 0), 1, 0).shape(), (Shape{0, 1, 28, 28}));
}

TEST_P(OnEveryDevice, RejectsInvalidArguments) {
  const Array glyphs = Array::zeros({2, 32, 32}, DType::u8), indices = Array::zeros({3}, DType::i32);
  EXPECT_EQ(augment(glyphs, indices, 1, 0).size(), 3 * 784);
  EXPECT_THROW(augment(Array::zeros({2, 28, 28}, DType::u8), indices, 1, 0), ShapeError);
  EXPECT_THROW(augment(glyphs.select(0, 0), indices, 1, 0), ShapeError);
  EXPECT_THROW(augment(glyphs, indices.reshape({3, 1}), 1, 0), ShapeError);
  EXPECT_THROW(augment(glyphs.transpose(), indices, 1, 0), ShapeError);
  EXPECT_THROW(augment(glyphs.astype(DType::f32), indices, 1, 0), DtypeError);
  EXPECT_THROW(augment(glyphs, indices.astype(DType::i64), 1, 0), DtypeError);
}

}  // namespace
}  // namespace tessera::app
