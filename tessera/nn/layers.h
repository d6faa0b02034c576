// SPDX-License-Identifier: Apache-2.0
// Layers that every network has. A layer is a plain value with one const operator(); sizes that it is not given come
// from its neighbours at setup. Names, arguments and defaults are PyTorch's.
#pragma once

#include "tessera/nn/setup.h"
#include "tessera/ops/product.h"
#include "tessera/ops/weight.h"

namespace tessera {

namespace ops {
class SparseRowWeight;
}

/// A weight matrix in blocks for one device, in the place of a Parameter; compile makes it. Copies share it.
class PackedWeight {
 public:
  PackedWeight() = default;
  /// A weight that compile() has packed.
  explicit PackedWeight(Weight weight) : weight_(std::make_shared<const Weight>(std::move(weight))) {}
  /// True if there is no packed weight.
  bool empty() const { return weight_ == nullptr; }
  /// The packed weight.
  const Weight& operator*() const { return *weight_; }
  /// The packed weight.
  const Weight* operator->() const { return weight_.get(); }

 private:
  std::shared_ptr<const Weight> weight_;
};
template <>
inline constexpr bool holds_no_arrays<PackedWeight> = true;  // none that move: its bytes are laid out for its device

/// A weight matrix once more, by input, for single inputs of which many elements are 0; compile makes it. Copies share
/// it.
class SparseRow {
 public:
  SparseRow() = default;
  /// A weight that compile() has laid out by input.
  explicit SparseRow(std::shared_ptr<const ops::SparseRowWeight> weight) : weight_(std::move(weight)) {}
  /// True if there is no weight.
  bool empty() const { return weight_ == nullptr; }
  /// The weight.
  const ops::SparseRowWeight& operator*() const { return *weight_; }

 private:
  std::shared_ptr<const ops::SparseRowWeight> weight_;
};
template <>
inline constexpr bool holds_no_arrays<SparseRow> = true;  // as PackedWeight

/// x (..., inputs) weight^T + bias gives (..., outputs). weight (outputs, inputs) and bias (outputs,) begin uniform
/// within 1 / sqrt(inputs) (init::kaiming_uniform with a = sqrt(5), as PyTorch's Linear).
struct Dense {
  std::int64_t inputs = 0;               ///< 0: as many as come
  std::int64_t outputs = 0;              ///< Elements of the result.
  bool with_bias = true;                 ///< Adds a bias to the result.
  Parameter weight = {}, bias = {};      ///< (outputs, inputs), and (outputs).
  Activation folded = Activation::none;  ///< that of the layer behind, which compile has put in here
  PackedWeight packed = {};              ///< unless empty it is multiplied by in place of `weight`, and gives f32
  SparseRow sparse = {};                 ///< unless empty, what a single input is multiplied by: of `weight`

  Array operator()(const Array& x) const;        ///< ShapeError names the layer's path and both shapes
  void set_up(const LayerSetup& at);             ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// Rows of a table by number: ids (...) of any integer dtype give (..., size). The table (count, size) begins normal.
/// An id out of range gives a row of zeros.
struct Embedding {
  std::int64_t count = 0, size = 0;  ///< Rows and columns of the table.
  Parameter weight = {};             ///< The table, (count, size).

  Array operator()(const Array& ids) const;      ///< Looks up each id; the result has one more axis.
  void set_up(const LayerSetup& at);             ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// In training, each element is 0 with probability `p` and else 1 / (1 - p) times itself; in inference x (Srivastava et
/// al. 2014). Which are 0 is a function of the mode's seed and counter and of the layer's path, so a layer that is
/// called twice in a step drops the same places.
struct Dropout {
  double p = 0.5;       ///< The probability of 0, in [0, 1].
  LayerPath path = {};  ///< The layer's path, by which its draws differ from other layers'.

  Array operator()(
      const Array& x) const;  ///< ArgumentError in training if the layer was not set up, or p is not in [0, 1]
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// (batch, a, b, ...) gives (batch, a * b * ...).
struct Flatten {
  Array operator()(const Array& x) const;  ///< x (batch, ...) gives (batch, product of the other extents).
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return {element_count(input)}; }
};

/// Activations as layers. A function of arrays (`relu`, `gelu`) is a layer, too: see sequential. `folded`: compile has
/// put it into the layer before, and it gives x.
#define TESSERA_ACTIVATION(Name, function)                                     \
  struct Name {                                                                \
    bool folded = false;                                                       \
    Array operator()(const Array& x) const { return folded ? x : (function); } \
    Shape output_shape(const Shape& input) const { return input; }             \
  };
/// max(x, 0) as a layer.
TESSERA_ACTIVATION(Relu, relu(x))
/// x times the distribution function of the normal distribution (Hendrycks and Gimpel 2016) as a layer.
TESSERA_ACTIVATION(Gelu, gelu(x))
/// x * sigmoid(x) as a layer.
TESSERA_ACTIVATION(Silu, silu(x))
/// The hyperbolic tangent as a layer.
TESSERA_ACTIVATION(Tanh, tanh(x))
/// 1 / (1 + exp(-x)) as a layer.
TESSERA_ACTIVATION(Sigmoid, sigmoid(x))
#undef TESSERA_ACTIVATION
/// x where it is above 0, else slope times x.
struct LeakyRelu {
  double slope = 0.01;  ///< The slope below 0.
  /// Element by element; the same shape.
  Array operator()(const Array& x) const { return where(x > 0, x, x * slope); }
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};
/// Exponentials over an axis, made to sum to 1.
struct Softmax {
  int axis = -1;                           ///< The axis whose elements sum to 1; negative ones count from the last.
  Array operator()(const Array& x) const;  ///< The same shape.
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};
namespace detail {
/// In the place of a function that compile has put into the layer before.
inline Array pass_on(Array x) { return x; }
}  // namespace detail
/// A function of arrays, element by element, as a layer.
struct Elementwise {
  Array (*function)(Array) = nullptr;  ///< The function.
  /// Calls the function.
  Array operator()(const Array& x) const { return function(x); }
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
