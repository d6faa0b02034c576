// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/norms.h"

#include <algorithm>

#include "tessera/nn/initialise.h"
#include "tessera/nn/mode.h"
#include "tessera/ops/transformer.h"

namespace tessera {

using detail::check_initialized;
using detail::layer_name;

namespace {

/// Converts x to the dtype in which norms are computed.
Array wide(const Array& x) { return x.dtype() == DType::f64 ? x : x.astype(DType::f32); }

}  // namespace

void BatchNorm::set_up(const LayerSetup& at) {
  channels = at.inputs("BatchNorm", channels, 0);
  if (affine) weight.declare({channels}, init::ones()), bias.declare({channels}, init::zeros());
  weight.keep_precision(), bias.keep_precision();
  running_mean.declare({channels}, init::zeros());
  running_variance.declare({channels}, init::ones());
}
Array BatchNorm::operator()(const Array& x) const {
  check_initialized("BatchNorm", running_mean);
  const std::int64_t c = running_mean.shape(0);
  if (x.rank() < 2 || x.shape(1) != c)
    fail<ShapeError>({.operation = layer_name("BatchNorm", running_mean.path()),
                      .with = {{"x", to_string(x.shape())}, {"running mean", to_string(running_mean.shape())}},
                      .wrong = "the second extent of x differs from the layer's number of channels"});
  if (folded != 0) {
    if (x.rank() != folded || training() != nullptr)
      fail<ShapeError>(
          {.operation = layer_name("BatchNorm", running_mean.path()),
           .with = {{"x", to_string(x.shape())}, {"folded for dimensions", std::to_string(folded)}},
           .wrong = "this norm was folded into the previous layer for inputs with a different number of dimensions",
           .remedy = "Compile with CompileLevel::standard, which does not fold norms"});
    return x;
  }
  Shape row(x.shape().size(), 1);
  row[1] = c;
  const Array wide_x = wide(x);
  Array mean_ = running_mean, variance = running_variance;
  if (training() != nullptr) {
    const std::int64_t count = x.size() / std::max<std::int64_t>(1, c);
    if (count < 2)
      fail<ShapeError>({.operation = layer_name("BatchNorm", running_mean.path()),
                        .with = {{"x", to_string(x.shape())}},
                        .wrong = "training needs more than one value per channel to compute a variance",
                        .remedy = "Use larger batches, or leave the Training scope"});
    std::vector<int> axes = {0};
    for (int d = 2; d < x.rank(); ++d) axes.push_back(d);
    mean_ = mean(wide_x, axes);
    const Array away = wide_x - mean_.reshape(row);
    variance = mean(away * away, axes);
    const auto note = [&](const StateArray& state, const Array& batch) {
      const Array before = pending_state(state);
      set_pending_state(state, before + momentum * (batch.astype(before.dtype()) - before));
    };
    note(running_mean, mean_);
    note(running_variance, variance * (static_cast<double>(count) / static_cast<double>(count - 1)));
  }
  Array scale = rsqrt(variance + epsilon);
  if (!weight.empty()) scale = scale * weight;
  Array y = (wide_x - mean_.reshape(row)) * scale.reshape(row);
  if (!bias.empty()) y = y + bias.reshape(row);
  return y.astype(x.dtype());
}

void LayerNorm::set_up(const LayerSetup& at) {
  if (shape.empty()) shape = {at.inputs("LayerNorm", 0, -1)};
  const Shape& input = at.input();
  const bool fits = input.empty() || (input.size() >= shape.size() &&
                                      std::equal(shape.begin(), shape.end(), input.end() - shape.size()));
  if (!fits)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"path", at.path()},
                               {"layer", "LayerNorm"},
                               {"takes", to_string(shape)},
                               {"input", to_string(input)}},
                      .wrong = "the input's last extents differ from those that the layer normalises"});
  if (affine) weight.declare(shape, init::ones());
  if (affine && with_bias) bias.declare(shape, init::zeros());
  weight.keep_precision(), bias.keep_precision();
}
Array LayerNorm::operator()(const Array& x) const {
  if (shape.empty() || (affine && weight.empty())) check_initialized("LayerNorm", weight);
  const std::size_t axes = shape.size(), rank = x.shape().size();
  if (rank < axes || !std::equal(shape.begin(), shape.end(), x.shape().end() - axes))
    fail<ShapeError>({.operation = layer_name("LayerNorm", weight.path()),
                      .with = {{"x", to_string(x.shape())}, {"normalised", to_string(shape)}},
                      .wrong = "the last extents of x differ from those that the layer normalises"});
  std::vector<int> over;
  for (std::size_t d = rank - axes; d < rank; ++d) over.push_back(static_cast<int>(d));
  const Array wide_x = wide(x);
  const Array away = wide_x - mean(wide_x, over, true);
  Array y = away * rsqrt(mean(away * away, over, true) + epsilon);
  if (!weight.empty()) y = y * weight;
  if (!bias.empty()) y = y + bias;
  return y.astype(x.dtype());
}

void RmsNorm::set_up(const LayerSetup& at) {
  size = at.inputs("RmsNorm", size, -1);
  weight.declare({size}, init::ones());
  weight.keep_precision();
}
Array RmsNorm::operator()(const Array& x) const {
  check_initialized("RmsNorm", weight);
  if (x.rank() < 1 || x.shape(-1) != weight.shape(0))
    fail<ShapeError>({.operation = layer_name("RmsNorm", weight.path()),
                      .with = {{"x", to_string(x.shape())}, {"weight", to_string(weight.shape())}},
                      .wrong = "the last extent of x differs from the layer's size"});
  return rms_norm(x, weight, static_cast<float>(epsilon));
}

}  // namespace tessera
