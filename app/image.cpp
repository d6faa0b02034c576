// SPDX-License-Identifier: Apache-2.0
#include "image.h"

#include <fmt/format.h>
#include <png.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "tessera/base/error.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/base/os/input_file.h"

namespace tessera::app {
namespace {

/// RAII wrapper of a png_image.
struct Png {
  png_image image{};
  Png() { image.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&image); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
};

}  // namespace

Image read_png(const std::string& path) {
  const auto bad = [&](const std::string& wrong, const char* remedy) {
    fail<FormatError>({.operation = "read PNG", .with = {{"file", path}}, .wrong = wrong, .remedy = remedy});
  };
  const InputFile file(path);
  if (file.size() > std::size_t{1} << 30)
    bad(fmt::format("the file has {} bytes, too many for an image", file.size()), "Choose another file");
  std::vector<png_byte> bytes(file.size());
  file.read(0, std::as_writable_bytes(std::span(bytes)));

  Png png;
  constexpr const char* not_png = "Use a PNG file, or convert the image to PNG first";
  if (!png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()))
    bad(std::string("the file is not a readable PNG: ") + png.image.message, not_png);
  const std::size_t width = png.image.width, height = png.image.height;
  if (width > most_pixels / height)
    bad(fmt::format("{} x {} pixels exceed the limit of {}", width, height, most_pixels), "Scale the image down");
  png.image.format = PNG_FORMAT_GRAY;
  std::vector<png_byte> grey(width * height);
  const png_color paper{255, 255, 255};
  if (!png_image_finish_read(&png.image, &paper, grey.data(), 0, nullptr))
    bad(std::string("the image is damaged: ") + png.image.message, "Copy or create the file again");
  Image out{width, height, std::vector<float>(grey.size())};
  for (std::size_t i = 0; i < grey.size(); ++i) out.grey[i] = static_cast<float>(grey[i]) / 255.0f;
  return out;
}

void write_png(const std::string& path, const Image& image) {
  const auto refuse = [&](const std::string& wrong) {
    fail<ArgumentError>({.operation = "write PNG",
                         .with = {{"file", path}, {"pixels", fmt::format("{} x {}", image.width, image.height)}},
                         .wrong = wrong});
  };
  if (image.width == 0 || image.height == 0) refuse("the image has no pixels");
  if (image.width > most_pixels / image.height) refuse(fmt::format("the limit is {} pixels", most_pixels));
  if (image.grey.size() != image.width * image.height) refuse(fmt::format("there are {} values", image.grey.size()));
  std::vector<png_byte> grey(image.grey.size());
  for (std::size_t i = 0; i < grey.size(); ++i)
    grey[i] = static_cast<png_byte>(std::lrint(255 * std::fmin(std::fmax(image.grey[i], 0.0f), 1.0f)));
  Png png;
  png.image.width = static_cast<png_uint_32>(image.width);
  png.image.height = static_cast<png_uint_32>(image.height);
  png.image.format = PNG_FORMAT_GRAY;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(png.image), '\0');
  png_alloc_size_t size = bytes.size();
  if (!png_image_write_to_memory(&png.image, bytes.data(), &size, 0, grey.data(), 0, nullptr))
    refuse(png.image.message);
  bytes.resize(size);
  os::write_text(path, bytes);
}

}  // namespace tessera::app
