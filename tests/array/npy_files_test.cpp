// SPDX-License-Identifier: Apache-2.0
// Parts of .npy files, mapped files, and .npz archives. tests/python compares them with NumPy.
#include <gtest/gtest.h>

#include <random>

#include "tessera/array/functions.h"
#include "tessera/array/npy.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();
const Device cpu{Backend::cpu, 0};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
std::string bytes_of_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}
bool same(const Array& a, const Array& b) {
  const auto values = [](const Array& x) { return x.to(cpu).astype(DType::f64).to_vector<double>(); };
  return a.dtype() == b.dtype() && a.shape() == b.shape() && values(a) == values(b);
}

// Written by NumPy 2.4.6: np.savez_compressed(f, a=a, b=b, **{"c.d": c}) with
// a = np.arange(6, dtype=np.float32).reshape(2, 3), b = np.array(7, dtype=np.int64),
// c = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)).
const std::string numpy_archive = bytes_of_hex(
    "504b03042d0000000800000021004fe9002affffffffffffffff05001400612e6e707901001000980000000000000055000000000000009bec"
    "17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a463a"
    "0ac69a3a0ab50a64032e063068b007120e4004c40d40bcc00100504b03042d00000008000000210023b8f06cffffffffffffffff0500140062"
    "2e6e707901001000880000000000000046000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a1aea3a09e965f5452"
    "9498179f5f94920a12774bcc294e058a17672416a402f91a9a3a0ab50a14012e7606080000504b03042d00000008000000210023c8e7feffff"
    "ffffffffffff07001400632e642e6e70790100100086000000000000004b000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5"
    "a05e536aa8aea3a09e965f54529498179f5f94920a120f292a4d050a17672416a402b91a463a0ac69a3a0ab50ae4032e06664616265600504b"
    "01022d032d0000000800000021004fe9002a5500000098000000050000000000000000000000800100000000612e6e7079504b01022d032d00"
    "000008000000210023b8f06c460000008800000005000000000000000000000080018c000000622e6e7079504b01022d032d00000008000000"
    "210023c8e7fe4b00000086000000070000000000000000000000800109010000632e642e6e7079504b050600000000030003009b0000008d01"
    "00000000");

TEST_P(OnEveryDevice, LoadsArchivesOfNumpy) {
  const test::Folder folder;
  const std::string path = folder / "a.npz";
  write(path, numpy_archive);
  const std::map<std::string, Array> arrays = load_npz(path);
  ASSERT_EQ(arrays.size(), 3u);
  EXPECT_TRUE(same(arrays.at("a"), Array::arange(6).astype(DType::f32).reshape({2, 3})));
  EXPECT_TRUE(same(arrays.at("b"), Array::full({}, 7, DType::i64)));
  EXPECT_TRUE(same(arrays.at("c.d"), Array::arange(6).astype(DType::u8).reshape({2, 3})));
  EXPECT_EQ(arrays.at("a").device(), GetParam());
  // A zip archive may have something before it, and a comment.
  const std::string with_comment = numpy_archive.substr(0, numpy_archive.size() - 2) + std::string("\x03\0abc", 5);
  write(path, with_comment);
  EXPECT_EQ(load_npz(path).size(), 3u);
}

TEST_P(OnEveryDevice, RoundTripsArchives) {
  const test::Folder folder;
  const std::string path = folder / "new/a.npz", again = folder / "b.npz";
  std::vector<std::pair<std::string, Array>> arrays = {{"empty", Array::zeros({0, 3})}, {"größe", Array::arange(3)}};
  for (const DType t : storable_dtypes)
    if (t != DType::f64 || device_info(GetParam()).can.f64)
      arrays.emplace_back(dtype_name(t), (Array::arange(24).reshape({2, 3, 4}) - 3).astype(t).transpose());
  std::mt19937 random(5);
  std::vector<float> large(100'000);
  for (float& v : large) v = static_cast<float>(random() % 7);
  arrays.emplace_back("large", Array::from(large));
  for (const bool compress : {false, true}) {
    save_npz(path, arrays, compress);
    save_npz(again, arrays, compress);
    EXPECT_EQ(text_of(path), text_of(again));
    const auto loaded = load_npz(path);
    ASSERT_EQ(loaded.size(), arrays.size());
    for (const auto& [name, a] : arrays) EXPECT_TRUE(same(loaded.at(name), a)) << name << " " << compress;
  }
  EXPECT_LT(text_of(path).size(), 100'000u);  // 400 kB without compression
  save_npz(path, {});
  EXPECT_TRUE(load_npz(path).empty());
}

TEST(Npz, RejectsInvalidNamesAndFiles) {
  const test::Folder folder;
  const std::string path = folder / "a.npz";
  const Array a = Array::arange(3);
  save_npz(path, {{"a", a}});
  const std::string before = text_of(path);
  expect_throw<ArgumentError>([&] { save_npz(path, {{"x", a}, {"x", a}}); }, {"save_npz", path, "two arrays"});
  expect_throw<ArgumentError>([&] { save_npz(path, {{"", a}}); }, {"save_npz", "empty"});
  expect_throw<ArgumentError>([&] { save_npz("/dev/full", {{"x", a}}); }, {"/dev/full"});
  EXPECT_EQ(text_of(path), before);
  const auto rejected = [&](std::string text, const std::vector<std::string>& parts) {
    write(path, text);
    expect_throw<FormatError>([&] { load_npz(path); }, parts);
  };
  rejected("this is text", {"load_npz", path, "not a .npz file"});
  const auto altered = [&](const std::string& from, const std::string& to, int times) {
    std::string out = before;
    for (std::size_t at = 0; times-- > 0; at += to.size())
      if ((at = out.find(from, at)) == std::string::npos)
        return out;
      else
        out.replace(at, from.size(), to);
    return out;
  };
  rejected(altered("a.npy", "a.txt", 2), {"a.txt is not an array"});
  // Flags (encrypted) and method of the directory's entry.
  rejected(altered(std::string("\x01\x02\x2d\0\x14\0\0\0", 8), std::string("\x01\x02\x2d\0\x14\0\x01\0", 8), 1),
           {"a.npy is encrypted"});
  rejected(altered(std::string("\x01\x02\x2d\0\x14\0\0\0\0", 9), std::string("\x01\x02\x2d\0\x14\0\0\0\x0c", 9), 1),
           {"method 12 is not supported"});
  rejected(altered("a.npy", "\xff.npy", 2), {"is not UTF-8"});
  std::string flipped = before;
  flipped[before.find("NUMPY") + 130] ^= 1;  // an element
  rejected(flipped, {"a.npy has another checksum"});
  // A deflated entry cannot be more than 1,032 times as large as its data.
  std::string bomb = numpy_archive;
  const std::size_t size = bomb.find("PK\x01\x02") + 24;
  bomb.replace(size, 4, std::string("\0\0\0\x70", 4));
  rejected(bomb, {"cannot be so large"});
}

// Any change is an error of the file or has no effect, and no read is outside the file (address sanitizer).
TEST(Npz, ChangedFilesAreErrors) {
  const test::Folder folder;
  const std::string path = folder / "a.npz";
  save_npz(path, {{"a", Array::arange(3)}, {"b", Array::ones({2, 2})}});
  const std::string stored = text_of(path);
  std::mt19937_64 random(testing::seed());
  int errors = 0, loaded = 0;
  for (const std::string& whole : {stored, numpy_archive})
    for (int i = 0; i < 600; ++i) {
      std::string text = whole;
      if (i % 3 == 0)
        text.resize(random() % text.size());
      else
        for (int k = 0; k < i % 3; ++k) text[random() % text.size()] = static_cast<char>(random());
      write(path, text);
      try {
        load_npz(path);
        ++loaded;
      } catch (const FormatError&) {
        ++errors;
      }
    }
  EXPECT_GT(errors, 800);
  EXPECT_GT(loaded, 20);
}

TEST_P(OnEveryDevice, LoadsPartsOfFiles) {
  const test::Folder folder;
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (const bool fortran : {false, true})
    for (int i = 0; i < 12; ++i) {
      Shape shape(static_cast<std::size_t>(1 + i % 4));
      for (auto& d : shape) d = 1 + below(6);
      const Array a = Array::arange(element_count(shape)).reshape(shape);
      const std::string path = folder / "a.npy";
      save_npy(fortran ? a.transpose() : a, path);
      if (fortran) {  // the elements are those of the transposed array; the header gets the other order and shape
        std::string text = text_of(path);
        const auto replace = [&](const std::string& from, const std::string& to) {
          text.replace(text.find(from), from.size(), to);
        };
        const std::string before = to_string(a.transpose().shape());
        replace("False, ", "True,  ");
        replace(before, to_string(shape));
        write(path, text);
      }
      const NpyFile file = NpyFile::open(path);
      ASSERT_EQ(file.shape(), shape);
      EXPECT_EQ(file.dtype(), a.dtype());
      EXPECT_TRUE(same(file.load(), a));
      EXPECT_TRUE(same(file.map(), a.to(cpu)));
      Shape begin = shape, extents = shape;
      Array part = a;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        begin[d] = below(shape[d] + 1);
        extents[d] = below(shape[d] - begin[d] + 1);
        part = part.slice(static_cast<int>(d), begin[d], begin[d] + extents[d]);
      }
      EXPECT_TRUE(same(file.load(begin, extents), part)) << to_string(shape) << to_string(begin) << to_string(extents);
      EXPECT_EQ(file.load(begin, extents).device(), GetParam());
      extents[0] = shape[0] - begin[0] + 1;
      expect_throw<ShapeError>([&] { file.load(begin, extents); }, {path, "not inside"});
      expect_throw<ShapeError>([&] { file.load({}, {}); }, {path, "not inside"});
    }
}

TEST(NpyFile, MappedArraysDoNotChangeTheFile) {
  const test::Folder folder;
  const std::string path = folder / "a.npy", bools = folder / "b.npy";
  const DeviceScope here(cpu);
  save_npy(Array::arange(100'000), path);
  const std::string before = text_of(path);
  Array a = NpyFile::open(path).map();
  EXPECT_EQ(a.device(), cpu);
  a += 1;
  EXPECT_TRUE(same(a, Array::arange(100'000) + 1));
  EXPECT_EQ(text_of(path), before);
  EXPECT_TRUE(same(NpyFile::open(path).map(), Array::arange(100'000)));
  save_npy(Array::arange(5), path);  // replaces the file; the array still has the old one's elements
  EXPECT_TRUE(same(a, Array::arange(100'000) + 1));
  std::string text = before;
  text[8] = static_cast<char>(text[8] + 1);  // the header is one byte longer
  text.insert(text.find('\n'), 1, ' ');
  write(path, text);
  EXPECT_TRUE(same(load_npy(path), Array::arange(100'000)));
  expect_throw<ArgumentError>([&] { NpyFile::open(path).map(); }, {path, "not aligned", "Load"});
  save_npy(Array::from({true, false}), bools);
  text = text_of(bools);
  text[text.size() - 2] = 2;
  write(bools, text);
  EXPECT_EQ(NpyFile::open(bools).map().to_vector<bool>(), (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace tessera
