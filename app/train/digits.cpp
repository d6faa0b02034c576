// SPDX-License-Identifier: Apache-2.0
#include "train/digits.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <vector>

#include "image.h"
#include "tessera/array/generator.h"
#include "tessera/base/os/library.h"
#include "tessera/kernel/kernel.h"

namespace tessera::app {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t digits = 10;

/// Reads the column "split" of the table. Returns for each row whether it is used for training.
std::vector<bool> splits(const fs::path& path) {
  std::ifstream file(path);
  if (!file)
    fail<ArgumentError>(
        {.operation = "load digits", .with = {{"file", path.string()}}, .wrong = "the file cannot be opened"});
  const auto bad = [&](std::size_t line, const std::string& wrong) {
    fail<FormatError>({.operation = "load digits",
                       .with = {{"file", path.string()}, {"line", std::to_string(line)}},
                       .wrong = wrong});
  };
  std::string line;
  if (!std::getline(file, line) || line != "family,style,class,split,licence,package,version")
    bad(1, "the table's columns are not family, style, class, split, licence, package and version");
  std::vector<bool> out;
  while (std::getline(file, line)) {
    std::size_t begin = 0;
    for (int column = 0; column < 3 && begin != std::string::npos; ++column) {
      begin = line.find(',', begin);
      if (begin != std::string::npos) ++begin;
    }
    const std::string split = begin == std::string::npos ? "" : line.substr(begin, line.find(',', begin) - begin);
    if (split != "train" && split != "held out")
      bad(out.size() + 2, "the split is \"" + split + "\"; it must be \"train\" or \"held out\"");
    out.push_back(split == "train");
  }
  return out;
}

// Philox, the same as in base/philox.h, but as kernel code.
struct Words {
  Val<std::uint32_t> a, b, c, d;
};
Words philox(const Words& w, const Val<std::uint32_t>& low, const Val<std::uint32_t>& high, int rounds = 10) {
  if (rounds == 0) return w;
  const Words next{mul_hi(w.c, 0xCD9E8D57u) ^ w.b ^ low, w.c * 0xCD9E8D57u, mul_hi(w.a, 0xD2511F53u) ^ w.d ^ high,
                   w.a * 0xD2511F53u};
  return philox(next, low + 0x9E3779B9u, high + 0xBB67AE85u, rounds - 1);
}

/// Map random bits to uniform numbers: `unit` to [0, 1), and `both_ways` to [-1, 1).
Val<float> unit(const Val<std::uint32_t>& word) { return cast<float>(word >> 8) * 0x1p-24f; }
Val<float> both_ways(const Val<std::uint32_t>& word) { return fma(unit(word), 2.0f, -1.0f); }

constexpr int side = static_cast<int>(glyph_side), out_side = static_cast<int>(digit_side);
// A thread computes as many pixels of a row as one Philox call returns numbers.
constexpr int per_thread = 4, groups = out_side / per_thread;
constexpr float drawn = 20.0f / 24.0f;  // size of a digit in a sample, relative to its size in the atlas
constexpr float middle = (side - 1) / 2.0f, out_middle = (out_side - 1) / 2.0f;

/// Each thread computes four pixels of a sample. The random numbers are Philox blocks with the counter (sample, k).
/// Blocks 0 and 1 determine the transformation of the sample, and the other blocks are the noise.
const auto& augment_kernel() {
  using U32 = std::uint32_t;
  static const auto traced =
      kernel("augment_digits",
             [](Buffer<const std::uint8_t> glyphs, Buffer<const std::int32_t> indices, Buffer<float> out,
                Val<Index> count, Val<U32> key_low, Val<U32> key_high, Val<std::uint64_t> first, Val<float> shift,
                Val<float> turn, Val<float> scale, Val<float> slant, Val<float> contrast, Val<float> noise) {
               auto part = global_id(0), sample = global_id(1);
               auto row = part / groups, column = part % groups * per_thread;
               auto number = first + cast<std::uint64_t>(sample);
               auto block = [&](const Val<U32>& k) {
                 return philox({cast<U32>(number), cast<U32>(number >> 32), k, 0u}, key_low, key_high);
               };
               const Words one = block(0u), two = block(1u), grain = block(cast<U32>(part) + 2u);
               auto right = shift * both_ways(one.a), down = shift * both_ways(one.b), angle = turn * both_ways(one.c);
               auto size = drawn * fma(scale, both_ways(one.d), 1.0f), lean = slant * both_ways(two.a);
               auto white = (1.0f - contrast * unit(two.b)) * (1.0f / 255), amplitude = noise * unit(two.c);
               auto c = cos(angle) / size, s = sin(angle) / size;
               auto glyph = cast<Index>(indices[sample]);
               auto known = glyph >= 0 && glyph < count;
               auto at = glyph * (side * side);
               auto y = cast<float>(row) - out_middle - down;
               const Val<U32> grains[] = {grain.a, grain.b, grain.c, grain.d};
               for (int i = 0; i < per_thread; ++i) {
                 auto x = cast<float>(column + i) - out_middle - right;
                 // Map the pixel to coordinates of the glyph: undo the rotation, then the slant.
                 auto v = c * y - s * x;
                 auto u = c * x + s * y - lean * v;
                 auto left = floor(u + middle), top = floor(v + middle);
                 auto fx = u + middle - left, fy = v + middle - top;
                 auto x0 = cast<Index>(left), y0 = cast<Index>(top);
                 auto pixel = [&](int dx, int dy) {
                   auto px = x0 + dx, py = y0 + dy;
                   auto inside = known && px >= 0 && px < side && py >= 0 && py < side;
                   return cast<float>(glyphs.load_if(inside, at + py * side + px, std::uint8_t{0}));
                 };
                 auto a = pixel(0, 0), b = pixel(1, 0), d = pixel(0, 1), e = pixel(1, 1);
                 auto upper = fma(fx, b - a, a), lower = fma(fx, e - d, d);
                 auto ink = white * fma(fy, lower - upper, upper);
                 out[(sample * out_side + row) * out_side + column + i] =
                     min(max(fma(amplitude, both_ways(grains[i]), ink), 0.0f), 1.0f);
               }
             });
  return traced;
}

}  // namespace

fs::path digits_folder() {
  const fs::path program = os::file_of(reinterpret_cast<const void*>(&digits_folder)).parent_path();
  const fs::path places[] = {program / TESSERA_DIGITS, "models/digits"};
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::exists(place / "digits.png", error)) return place.lexically_normal();
  }
  fail<ArgumentError>(
      {.operation = "find the digits",
       .with = {{"next to the program", places[0].lexically_normal().string()}, {"current folder", places[1].string()}},
       .wrong = "digits.png is in neither folder",
       .remedy = "Install Tessera completely, or run the program in its source folder"});
}

Digits load_digits(const fs::path& folder, std::optional<Device> device) {
  const std::vector<bool> train = splits(folder / "digits.csv");
  const Image atlas = read_png((folder / "digits.png").string());
  const std::size_t cell = glyph_side;
  if (atlas.width != digits * cell || atlas.height != train.size() * cell || train.empty())
    fail<FormatError>(
        {.operation = "load digits",
         .with = {{"folder", folder.string()},
                  {"picture", fmt::format("{} x {} pixels", atlas.width, atlas.height)},
                  {"table", fmt::format("{} rows", train.size())}},
         .wrong = "the image must have ten columns of 32 pixels, and a row of 32 pixels for each row of the table"});
  std::vector<std::uint8_t> glyphs[2];
  std::vector<std::int32_t> labels[2];
  for (std::size_t row = 0; row < train.size(); ++row)
    for (std::size_t digit = 0; digit < digits; ++digit) {
      labels[train[row]].push_back(static_cast<std::int32_t>(digit));
      for (std::size_t y = 0; y < cell; ++y)
        for (std::size_t x = 0; x < cell; ++x)
          glyphs[train[row]].push_back(static_cast<std::uint8_t>(
              std::lrint(255 * atlas.grey[(row * cell + y) * atlas.width + digit * cell + x])));
    }
  const auto array = [&](bool half) {
    return Array::from(glyphs[half], Shape{static_cast<std::int64_t>(labels[half].size()), glyph_side, glyph_side},
                       device);
  };
  return {array(true), Array::from(labels[true], {}, device), array(false), Array::from(labels[false], {}, device)};
}

Array augment(const Array& glyphs, const Array& indices, std::uint64_t seed, std::uint64_t first,
              const Augmentation& by) {
  const auto refuse = [&]<class E>(const char* wrong) {
    fail<E>({.operation = "augment",
             .with = {{"glyphs", to_string(glyphs.shape()) + " " + std::string(dtype_name(glyphs.dtype()))},
                      {"indices", to_string(indices.shape()) + " " + std::string(dtype_name(indices.dtype()))}},
             .wrong = wrong});
  };
  if (glyphs.rank() != 3 || glyphs.shape(1) != glyph_side || glyphs.shape(2) != glyph_side)
    refuse.operator()<ShapeError>("glyphs must have shape (n, 32, 32)");
  if (indices.rank() != 1) refuse.operator()<ShapeError>("indices must have one dimension");
  if (glyphs.dtype() != DType::u8 || indices.dtype() != DType::i32)
    refuse.operator()<DtypeError>("glyphs must be u8, and indices i32");
  Array out = Array::empty({indices.size(), 1, digit_side, digit_side}, DType::f32, glyphs.device());
  constexpr float degree = 3.14159265358979f / 180;
  augment_kernel().launch({groups * out_side, indices.size()}, glyphs, indices, out, glyphs.shape(0),
                          static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), first, by.shift,
                          by.turn * degree, by.scale, by.slant, by.contrast, by.noise);
  return out;
}

std::pair<Array, Array> digit_samples(const Array& glyphs, const Array& labels, std::uint64_t seed, std::uint64_t first,
                                      std::int64_t count) {
  const auto pictures = static_cast<std::uint32_t>(glyphs.shape(0));
  const Array which = (random_bits({count}, seed, Counter(first)) % pictures).astype(DType::i32).eval();
  return {augment(glyphs, which, seed, first), take(labels, which)};
}

}  // namespace tessera::app
