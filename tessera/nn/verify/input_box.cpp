// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/input_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/nn/verify/box_tree.h"

namespace tessera {

InputBox InputBox::of(const Shape& shape, float low, float high) {
  const auto n = static_cast<std::size_t>(element_count(shape));
  InputBox box{shape, std::vector<float>(n, low), std::vector<float>(n, high)};
  box.check();
  return box;
}
InputBox InputBox::of(const Array& low, const Array& high) {
  if (low.shape() != high.shape())
    fail<ShapeError>({.operation = "InputBox",
                      .with = {{"low", to_string(low.shape())}, {"high", to_string(high.shape())}},
                      .wrong = "the two bounds have different shapes"});
  InputBox box{low.shape(), low.astype(DType::f32).to_vector<float>(), high.astype(DType::f32).to_vector<float>()};
  box.check();
  return box;
}
InputBox InputBox::around(const Array& sample, double radius) {
  if (!(radius >= 0 && radius < 1e30))
    fail<ArgumentError>({.operation = "InputBox::around",
                         .with = {{"radius", fmt::format("{}", radius)}},
                         .wrong = "a radius must be a number of at least 0"});
  using verification::round_outward;
  InputBox box{sample.shape(), sample.astype(DType::f32).to_vector<float>(), {}};
  box.high = box.low;
  for (std::size_t i = 0; i < box.low.size(); ++i) {
    const double x = box.low[i];
    box.low[i] = round_outward(x - radius, true), box.high[i] = round_outward(x + radius, false);
  }
  box.check();
  return box;
}

void InputBox::check() const {
  const auto n = static_cast<std::size_t>(element_count(shape));
  if (low.size() != n || high.size() != n || n == 0)
    fail<ShapeError>({.operation = "InputBox",
                      .with = {{"shape", to_string(shape)},
                               {"low", std::to_string(low.size())},
                               {"high", std::to_string(high.size())}},
                      .wrong = "the number of lower or upper bounds differs from the number of elements of an input"});
  for (std::size_t i = 0; i < n; ++i)
    if (!std::isfinite(low[i]) || !std::isfinite(high[i]) || low[i] > high[i])
      fail<ArgumentError>({.operation = "InputBox",
                           .with = {{"input", std::to_string(i)},
                                    {"low", fmt::format("{}", low[i])},
                                    {"high", fmt::format("{}", high[i])}},
                           .wrong = "bounds must be finite, and the lower ones must not exceed the upper ones"});
}
bool InputBox::holds(const float* input) const {
  for (std::size_t i = 0; i < low.size(); ++i)
    if (!(low[i] <= input[i] && input[i] <= high[i])) return false;
  return true;
}
std::string to_string(const InputBox& box) {
  const auto [low, low_most] = std::ranges::minmax(box.low);
  const auto [high_least, high] = std::ranges::minmax(box.high);
  if (low == low_most && high_least == high) return fmt::format("{} from {} to {}", to_string(box.shape), low, high);
  return fmt::format("{} within {} to {}, with separate bounds for each element", to_string(box.shape), low, high);
}

}  // namespace tessera
