// SPDX-License-Identifier: Apache-2.0
// Basic layers. A layer is a plain value with one const operator(); sizes that are 0 are inferred by setup. Names,
// arguments and defaults are PyTorch's.
#pragma once

#include "tessera/nn/setup.h"
#include "tessera/ops/product.h"
#include "tessera/ops/weight.h"

namespace tessera {

namespace ops {
class SparseRowWeight;
}

/// A weight matrix in a device-specific blocked layout, used instead of a Parameter; made by compile. Copies share it.
class PackedWeight {
 public:
  PackedWeight() = default;
  /// Wraps a weight that compile() has packed.
  explicit PackedWeight(Weight weight);
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
inline constexpr bool holds_no_arrays<PackedWeight> = true;  // none that can move: the layout is device-specific

/// A second copy of a weight matrix, stored by input, for single samples with many zeros; made by compile. Copies share
/// it.
class SparseRow {
 public:
  SparseRow() = default;
  /// Wraps a weight that compile() has stored by input.
  explicit SparseRow(std::shared_ptr<const ops::SparseRowWeight> weight) : weight_(std::move(weight)) {}
  /// True if there is no weight.
  bool empty() const { return weight_ == nullptr; }
  /// The weight.
  const ops::SparseRowWeight& operator*() const { return *weight_; }

 private:
  std::shared_ptr<const ops::SparseRowWeight> weight_;
};
template <>
inline constexpr bool holds_no_arrays<SparseRow> = true;  // see PackedWeight

/// Computes x weight^T + bias: x (..., inputs) gives (..., outputs). weight (outputs, inputs) and bias (outputs,) are
/// initialised uniformly within 1 / sqrt(inputs) (init::kaiming_uniform with a = sqrt(5), as PyTorch's Linear).
struct Dense {
  std::int64_t inputs = 0;               ///< 0: inferred
  std::int64_t outputs = 0;              ///< Elements of the result.
  bool with_bias = true;                 ///< Adds a bias to the result.
  Parameter weight = {}, bias = {};      ///< (outputs, inputs), and (outputs).
  Activation folded = Activation::none;  ///< activation of the next layer, fused by compile
  PackedWeight packed = {};              ///< if set, multiplied by instead of `weight`; gives f32
  SparseRow sparse = {};                 ///< if set, a copy of `weight` that single samples are multiplied by

  Array operator()(const Array& x) const;        ///< throws ShapeError with the layer's path and both shapes
  void set_up(const LayerSetup& at);             ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// Looks up rows of a table: ids (...) of any integer dtype give (..., size). The table (count, size) is initialised
/// normally. An id out of range gives a row of zeros.
struct Embedding {
  std::int64_t count = 0, size = 0;  ///< Rows and columns of the table.
  Parameter weight = {};             ///< The table, (count, size).

  Array operator()(const Array& ids) const;      ///< Looks up each id; the result has one more axis.
  void set_up(const LayerSetup& at);             ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// In training, sets each element to 0 with probability `p` and multiplies the others by 1 / (1 - p); in inference
/// returns x (Srivastava et al. 2014). The mask is a function of the mode's seed and counter and the layer's path, so a
/// layer that is called twice in a step drops the same elements.
struct Dropout {
  double p = 0.5;       ///< Probability of 0, in [0, 1].
  LayerPath path = {};  ///< The layer's path; layers with different paths draw different numbers.

  Array operator()(
      const Array& x) const;  ///< throws ArgumentError in training if not set up, or if p is outside [0, 1]
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// (batch, a, b, ...) gives (batch, a * b * ...).
struct Flatten {
  Array operator()(const Array& x) const;  ///< x (batch, ...) gives (batch, product of the other extents).
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return {element_count(input)}; }
};

/// Activations as layers. A function of arrays (`relu`, `gelu`) is a layer, too: see sequential. If `folded`, compile
/// has fused it into the previous layer and it returns x.
#define TESSERA_ACTIVATION(Name, function)                                     \
  struct Name {                                                                \
    bool folded = false;                                                       \
    Array operator()(const Array& x) const { return folded ? x : (function); } \
    Shape output_shape(const Shape& input) const { return input; }             \
  };
/// max(x, 0) as a layer.
TESSERA_ACTIVATION(Relu, relu(x))
/// x times the normal distribution function (Hendrycks and Gimpel 2016) as a layer.
TESSERA_ACTIVATION(Gelu, gelu(x))
/// x * sigmoid(x) as a layer.
TESSERA_ACTIVATION(Silu, silu(x))
/// The hyperbolic tangent as a layer.
TESSERA_ACTIVATION(Tanh, tanh(x))
/// 1 / (1 + exp(-x)) as a layer.
TESSERA_ACTIVATION(Sigmoid, sigmoid(x))
#undef TESSERA_ACTIVATION
/// x where x > 0, otherwise slope times x.
struct LeakyRelu {
  double slope = 0.01;  ///< The slope below 0.
  /// Element by element; the same shape.
  Array operator()(const Array& x) const { return where(x > 0, x, x * slope); }
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};
/// Softmax along an axis.
struct Softmax {
  int axis = -1;                           ///< The axis whose elements sum to 1; negative ones count from the last.
  Array operator()(const Array& x) const;  ///< The same shape.
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};
namespace detail {
/// Replaces a function that compile has fused into the previous layer.
inline Array pass_on(Array x) { return x; }
}  // namespace detail
/// An elementwise function of arrays as a layer.
struct Elementwise {
  Array (*function)(Array) = nullptr;  ///< The function.
  /// Calls the function.
  Array operator()(const Array& x) const { return function(x); }
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
