// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/nn/initialise.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/seed.h"
#include "tessera/ops/product.h"
#include "tessera/ops/sparse_row.h"
#include "tessera/ops/transformer.h"

namespace tessera {

PackedWeight::PackedWeight(Weight weight) : weight_(std::make_shared<const Weight>(std::move(weight))) {}

using detail::check_initialized;
using detail::layer_name;

void Dense::set_up(const LayerSetup& at) {
  inputs = at.inputs("Dense", inputs, -1);
  if (outputs <= 0)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"path", at.path()}, {"outputs", std::to_string(outputs)}},
                      .wrong = "a Dense needs at least one output",
                      .remedy = "Dense{.outputs = ...}"});
  weight.declare({outputs, inputs}, init::kaiming_uniform({.a = std::sqrt(5.0)}));
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, inputs)));
  if (with_bias) bias.declare({outputs}, init::uniform(-bound, bound));
}
Shape Dense::output_shape(const Shape& input) const {
  Shape out = input;
  if (!out.empty()) out.back() = outputs;
  return out;
}
Array Dense::operator()(const Array& x) const {
  if (packed.empty()) check_initialized("Dense", weight);
  const Shape matrix = packed.empty() ? weight.shape() : Shape{packed->rows(), packed->columns()};
  if (x.rank() < 1 || x.shape(-1) != matrix[1])
    fail<ShapeError>({.operation = layer_name("Dense", weight.path()),
                      .with = {{"x", to_string(x.shape())}, {"weight", to_string(matrix)}},
                      .wrong = "the last extent of x differs from the layer's number of inputs",
                      .remedy = fmt::format("Pass x with {} elements in the last axis, or create a layer whose number "
                                            "of inputs is the last extent of x",
                                            matrix[1])});
  if (!packed.empty()) {
    Array y = linear(x, *packed);
    if (!bias.empty()) y = y + bias;
    switch (folded) {
      case Activation::relu: return relu(y);
      case Activation::silu: return silu(y);
      case Activation::gelu: return gelu(y);
      default: return y;
    }
  }
  if (!sparse.empty() && x.size() == matrix[1] && x.dtype() == DType::f32 && !x.has_history()) {
    Shape out = x.shape();
    out.back() = matrix[0];
    return ops::sparse_row_product(
               x, *sparse, {.bias = bias.empty() ? std::nullopt : std::optional<Array>(bias), .activation = folded})
        .reshape(out);
  }
  return matmul(in_precision_of(weight, x), weight.transpose(),
                {.bias = bias.empty() ? std::nullopt : std::optional<Array>(bias), .activation = folded});
}

void Embedding::set_up(const LayerSetup& at) {
  if (count <= 0 || size <= 0)
    fail<ShapeError>({.operation = "setup",
                      .with = {{"path", at.path()}, {"count", std::to_string(count)}, {"size", std::to_string(size)}},
                      .wrong = "an Embedding needs at least one row, and rows of at least one element",
                      .remedy = "Set both sizes: Embedding{.count = ..., .size = ...}"});
  weight.declare({count, size}, init::normal());
}
Shape Embedding::output_shape(const Shape& input) const {
  Shape out = input;
  out.push_back(size);
  return out;
}
Array Embedding::operator()(const Array& ids) const {
  check_initialized("Embedding", weight);
  if (!is_int(ids.dtype()))
    fail<DtypeError>({.operation = layer_name("Embedding", weight.path()),
                      .with = {{"ids", std::string(dtype_name(ids.dtype()))}},
                      .wrong = "an Embedding needs integer ids"});
  return take(weight, ids);
}

Array Dropout::operator()(const Array& x) const {
  if (!(p >= 0 && p <= 1))
    fail<ArgumentError>({.operation = layer_name("Dropout", path.text() + "."),
                         .with = {{"p", std::to_string(p)}},
                         .wrong = "a probability must be in [0, 1]"});
  const TrainingOptions* mode = training();
  if (mode == nullptr || p == 0) return x;
  if (!path.known())
    fail<ArgumentError>({.operation = "Dropout",
                         .wrong = "the layer derives random numbers from its path, but its path is not set",
                         .remedy = "Call setup(model, ...) on the model that contains it"});
  if (p == 1) return x * 0.0;
  // The random numbers are multiples of 2^-24 in [0, 1). An element is kept if its number is at least p.
  const Array drawn =
      random_uniform(x.shape(), detail::seed_of(mode->seed, path.text()), mode->counter, 0, 1, x.device());
  return where(drawn >= p, x * (1 / (1 - p)), 0.0);
}

Array Flatten::operator()(const Array& x) const {
  if (x.rank() < 2)
    fail<ShapeError>({.operation = "Flatten",
                      .with = {{"x", to_string(x.shape())}},
                      .wrong = "x has no axis after the batch to flatten"});
  return x.reshape({x.shape(0), x.size() == 0 ? element_count(Shape(x.shape().begin() + 1, x.shape().end())) : -1});
}

Array Softmax::operator()(const Array& x) const { return softmax(x, axis); }

}  // namespace tessera
