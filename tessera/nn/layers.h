// SPDX-License-Identifier: Apache-2.0
// Basic layers. A layer is a copyable value with a const operator(). setup() infers sizes that are 0. Names, arguments
// and defaults match PyTorch.
#pragma once

#include "tessera/nn/setup.h"
#include "tessera/ops/product.h"
#include "tessera/ops/weight.h"

namespace tessera {

namespace ops {
class SparseRowWeight;
}

/// A weight matrix in a device-specific blocked layout, created by compile() and used instead of a Parameter. Copies
/// share it.
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
// Its arrays cannot be moved, because the layout is device-specific.
inline constexpr bool holds_no_arrays<PackedWeight> = true;

/// A second copy of a weight matrix, created by compile(). Each input's weights are contiguous, so that the product
/// with a single sample can skip zeros. Copies share it.
class SparseRow {
 public:
  SparseRow() = default;
  /// Wraps a weight that compile() has created.
  explicit SparseRow(std::shared_ptr<const ops::SparseRowWeight> weight) : weight_(std::move(weight)) {}
  /// True if there is no weight.
  bool empty() const { return weight_ == nullptr; }
  /// The weight.
  const ops::SparseRowWeight& operator*() const { return *weight_; }

 private:
  std::shared_ptr<const ops::SparseRowWeight> weight_;
};
template <>
inline constexpr bool holds_no_arrays<SparseRow> = true;  // for the same reason as PackedWeight

/// A fully connected layer: returns x weight^T + bias. x is (..., inputs) and the result (..., outputs). weight
/// (outputs, inputs) and bias (outputs,) are initialised uniformly in [-b, b] with b = 1 / sqrt(inputs). This is
/// init::kaiming_uniform with a = sqrt(5), the default of PyTorch's Linear.
struct Dense {
  std::int64_t inputs = 0;               ///< Elements of the input; 0: inferred.
  std::int64_t outputs = 0;              ///< Elements of the result.
  bool with_bias = true;                 ///< Adds a bias to the result.
  Parameter weight = {}, bias = {};      ///< Shapes (outputs, inputs) and (outputs).
  Activation folded = Activation::none;  ///< the next layer's activation, if compile() has fused it
  PackedWeight packed = {};              ///< if set, used instead of `weight`; the result is f32
  SparseRow sparse = {};                 ///< if set, a copy of `weight` that is used for single samples

  Array operator()(const Array& x) const;        ///< throws ShapeError with the layer's path and both shapes
  void set_up(const LayerSetup& at);             ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// Looks up rows of a table. ids (...) may have any integer dtype; the result is (..., size). The table (count, size)
/// is initialised with normally distributed values. An id that is out of range returns a row of zeros.
struct Embedding {
  std::int64_t count = 0, size = 0;  ///< The table, of shape (count, size).
  Parameter weight = {};             ///< The table, (count, size).

  Array operator()(const Array& ids) const;      ///< Looks up each id; the result has an additional last axis.
  void set_up(const LayerSetup& at);             ///< Declares the parameters; called by setup().
  Shape output_shape(const Shape& input) const;  ///< The shape of one sample's result.
};

/// Dropout (Srivastava et al. 2014). In training, sets each element to 0 with probability `p` and multiplies the others
/// by 1 / (1 - p). In inference, returns x. The mask depends on the seed and counter of the Training scope and on the
/// layer's path. A layer that is called twice in a step therefore drops the same elements in both calls.
struct Dropout {
  double p = 0.5;       ///< Probability that an element becomes 0, in [0, 1].
  LayerPath path = {};  ///< The layer's path; layers with different paths draw different random numbers.

  Array operator()(
      const Array& x) const;  ///< throws ArgumentError in training if not set up, or if p is outside [0, 1]
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// Flattens all axes except the batch: (batch, a, b, ...) becomes (batch, a * b * ...).
struct Flatten {
  Array operator()(const Array& x) const;  ///< x (batch, ...); returns (batch, product of the other extents).
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return {element_count(input)}; }
};

/// Activations as layers. A function of arrays (`relu`, `gelu`) can also be used as a layer; see sequential(). If
/// compile() has fused a layer into the previous one, it sets `folded`, and the layer returns x.
#define TESSERA_ACTIVATION(Name, function)                                     \
  struct Name {                                                                \
    bool folded = false;                                                       \
    Array operator()(const Array& x) const { return folded ? x : (function); } \
    Shape output_shape(const Shape& input) const { return input; }             \
  };
/// max(x, 0) as a layer.
TESSERA_ACTIVATION(Relu, relu(x))
/// GELU as a layer: x times the cumulative distribution function of the standard normal distribution (Hendrycks and
/// Gimpel 2016).
TESSERA_ACTIVATION(Gelu, gelu(x))
/// SiLU as a layer: x * sigmoid(x).
TESSERA_ACTIVATION(Silu, silu(x))
/// The hyperbolic tangent as a layer.
TESSERA_ACTIVATION(Tanh, tanh(x))
/// The logistic function as a layer: 1 / (1 + exp(-x)).
TESSERA_ACTIVATION(Sigmoid, sigmoid(x))
#undef TESSERA_ACTIVATION
/// Leaky ReLU as a layer: x where x > 0, otherwise slope times x.
struct LeakyRelu {
  double slope = 0.01;  ///< The slope below 0.
  /// Applies the activation to each element; the shape is unchanged.
  Array operator()(const Array& x) const { return where(x > 0, x, x * slope); }
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};
/// Softmax along one axis, as a layer.
struct Softmax {
  int axis = -1;  ///< The axis along which the results sum to 1; negative values count from the last axis.
  Array operator()(const Array& x) const;  ///< Applies softmax; the shape is unchanged.
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};
namespace detail {
/// The identity function. compile() replaces a function that is fused into the previous layer by this one.
inline Array pass_on(Array x) { return x; }
}  // namespace detail
/// Turns an elementwise function of arrays into a layer.
struct Elementwise {
  Array (*function)(Array) = nullptr;  ///< The function.
  /// Calls the function.
  Array operator()(const Array& x) const { return function(x); }
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
