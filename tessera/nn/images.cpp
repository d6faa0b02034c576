// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/images.h"

#include <cmath>

#include "tessera/nn/initialise.h"

namespace tessera {

namespace {

void check_image(const char* layer, const Shape& input) {
  if (input.size() != 3)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"layer", layer}, {"input of one sample", to_string(input)}},
                      .wrong = "images must be (channels, rows, columns)"});
}
/// Computes the shape of one sample's result for a layer with sliding windows.
Shape windows(const char* layer, const Shape& input, std::int64_t channels, Extents2d kernel, Extents2d stride,
              Extents2d padding, Extents2d dilation = 1) {
  check_image(layer, input);
  const auto count = [&](std::int64_t extent, std::int64_t k, std::int64_t s, std::int64_t p, std::int64_t d) {
    const std::int64_t room = extent + 2 * p - d * (k - 1) - 1;
    if (room < 0 || s <= 0)
      fail<ShapeError>({.operation = "setup",
                        .with = {{"layer", layer},
                                 {"input of one sample", to_string(input)},
                                 {"kernel", std::to_string(k)},
                                 {"padding", std::to_string(p)}},
                        .wrong = "the kernel is larger than the image"});
    return room / s + 1;
  };
  return {channels, count(input[1], kernel.rows, stride.rows, padding.rows, dilation.rows),
          count(input[2], kernel.columns, stride.columns, padding.columns, dilation.columns)};
}

}  // namespace

void Conv2d::set_up(const LayerSetup& at) {
  if (!at.input().empty()) check_image("Conv2d", at.input());
  in = at.inputs("Conv2d", in, 0);
  if (out <= 0 || groups <= 0 || in % groups != 0 || out % groups != 0)
    fail<ShapeError>(
        {.operation = "setup",
         .with = {{"path", at.path()},
                  {"in", std::to_string(in)},
                  {"out", std::to_string(out)},
                  {"groups", std::to_string(groups)}},
         .wrong = "a Conv2d needs at least one output channel, and groups must divide the input and output channels"});
  weight.declare({out, in / groups, kernel.rows, kernel.columns}, init::kaiming_uniform({.a = std::sqrt(5.0)}));
  const double bound = 1 / std::sqrt(static_cast<double>(in / groups * kernel.rows * kernel.columns));
  if (with_bias) bias.declare({out}, init::uniform(-bound, bound));
}
Shape Conv2d::output_shape(const Shape& input) const {
  return windows("Conv2d", input, out, kernel, stride, padding, dilation);
}
Array Conv2d::operator()(const Array& x) const {
  detail::check_initialized("Conv2d", weight);
  if (x.rank() != 4 || x.shape(1) != weight.shape(1) * groups)
    fail<ShapeError>({.operation = detail::layer_name("Conv2d", weight.path()),
                      .with = {{"x", to_string(x.shape())}, {"weight", to_string(weight.shape())}},
                      .wrong = "x must be (batch, channels, rows, columns) with the layer's channels"});
  return conv2d(in_precision_of(weight, x), weight, bias.empty() ? std::nullopt : std::optional<Array>(bias),
                {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups});
}

Array MaxPool2d::operator()(const Array& x) const { return max_pool2d(x, {kernel, stride, padding}); }
Shape MaxPool2d::output_shape(const Shape& input) const {
  check_image("MaxPool2d", input);
  return windows("MaxPool2d", input, input[0], kernel, stride.value_or(kernel), padding);
}
Array AveragePool2d::operator()(const Array& x) const { return average_pool2d(x, {kernel, stride, padding}); }
Shape AveragePool2d::output_shape(const Shape& input) const {
  check_image("AveragePool2d", input);
  return windows("AveragePool2d", input, input[0], kernel, stride.value_or(kernel), padding);
}

}  // namespace tessera
