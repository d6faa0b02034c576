// SPDX-License-Identifier: Apache-2.0
// Sequential, which calls layers one after another, and Residual, which adds a layer's result to its input.
#pragma once

#include "tessera/nn/layer_observer.h"
#include "tessera/nn/layers.h"

namespace tessera {

namespace detail {

template <class Layer, class Use>
decltype(auto) with_layer(Layer& layer, Use&& use) {
  if constexpr (is_one_of<std::remove_const_t<Layer>, std::variant>)
    return std::visit(use, layer);
  else
    return use(layer);
}

/// Calls `use(layer, index)` for each layer of a Sequential. For a variant, passes the layer that it contains.
template <class Store, class Use>
void for_each_layer(Store& layers, Use&& use) {
  std::size_t i = 0;
  const auto one = [&](auto& layer) {
    with_layer(layer, [&](auto& held) { use(held, i); });
    ++i;
  };
  if constexpr (is_one_of<std::remove_const_t<Store>, std::tuple>)
    std::apply([&](auto&... layer) { (one(layer), ...); }, layers);
  else
    for (auto& layer : layers) one(layer);
}

/// Implements Sequential for layers in a std::tuple or a std::vector.
template <class Store>
class LayerSequence {
 public:
  Array operator()(const Array& x) const {
    Array y = x;
    for_each_layer(layers_, [&](const auto& layer, std::size_t i) { call(layer, i, y); });
    return y;
  }
  /// Moves the arrays of each layer to its device, and marks the Sequential as placed. `devices` has one entry for each
  /// layer. Models that shared the arrays keep the old arrays. Throws ArgumentError if layers on different devices
  /// share an array.
  void place(const std::vector<Device>& devices) {
    place_layers(devices, count(), [&](std::size_t at, const PartFunction& use) {
      for_each_layer(layers_, [&](auto& layer, std::size_t i) {
        if (i == at) for_each_part(layer, use);
      });
    });
    placed_ = true;
  }
  /// Marks the Sequential as placed without moving arrays. Its layers run on the devices where they were set up.
  void place() { placed_ = true; }
  bool placed() const { return placed_; }

  void set_up(const LayerSetup& at) {
    path_.set(at.path());
    Shape shape = at.input();
    for_each_layer(layers_, [&](auto& layer, std::size_t i) {
      at.part(layer, i, shape);
      shape = after(layer, shape);
    });
  }
  /// Returns an empty shape if a layer has no output_shape, because the result's shape is then unknown.
  Shape output_shape(const Shape& input) const {
    Shape shape = input;
    for_each_layer(layers_, [&](const auto& layer, std::size_t) { shape = after(layer, shape); });
    return shape;
  }
  auto fields() {
    if constexpr (is_one_of<Store, std::tuple>)
      return std::apply([](auto&... layer) { return std::tie(layer...); }, layers_);
    else
      return std::tuple(field(".", layers_));
  }
  Store& layers() { return layers_; }
  const Store& layers() const { return layers_; }

 protected:
  LayerSequence() = default;
  explicit LayerSequence(Store layers) : layers_(std::move(layers)) {}
  Store layers_;

 private:
  std::size_t count() const {
    if constexpr (is_one_of<Store, std::tuple>)
      return std::tuple_size_v<Store>;
    else
      return layers_.size();
  }
  /// Replaces y by the layer's result. y is passed by reference because an argument passed by value would be alive
  /// until the end of the expression, and pending arrays that are alive are computed.
  template <class Layer>
  void call(const Layer& layer, std::size_t i, Array& y) const {
    if (placed_) {
      const std::optional<Device> there = device_of_layer(layer);
      if (there && y.device() != *there) y = y.to(*there);
    }
    if (layer_observer == nullptr) [[likely]]
      y = layer(y);
    else
      y = call_observed(layer, i, path_.text(), y);
  }
  template <class Layer>
  static Shape after(const Layer& layer, const Shape& shape) {
    if constexpr (HasOutputShape<Layer>)
      return shape.empty() ? Shape{} : Shape(layer.output_shape(shape));
    else
      return {};
  }
  LayerPath path_;  ///< set by setup()
  bool placed_ = false;
};

}  // namespace detail

/// Calls layers one after another. The path of a layer is its index: "0.weight", "2.bias". setup() computes the input
/// shape of each layer from the output_shape of the layers before it, if they define one.
///
/// A placed Sequential can span several devices. Each layer runs on the device of its arrays. Inputs are copied to that
/// device, and gradients are copied back. Without place(), nothing is copied, and operands on different devices are an
/// error.
template <class... Layers>
class Sequential : public detail::LayerSequence<std::tuple<Layers...>> {
 public:
  Sequential() = default;
  /// Creates a Sequential from layers in call order.
  Sequential(Layers... layers)
    requires(sizeof...(Layers) > 0)
      : detail::LayerSequence<std::tuple<Layers...>>(std::tuple<Layers...>(std::move(layers)...)) {}

  /// Layer `I`.
  template <std::size_t I>
  auto& get() {
    return std::get<I>(this->layers_);
  }
  template <std::size_t I>
  const auto& get() const {
    return std::get<I>(this->layers_);
  }
  /// The number of layers.
  static constexpr std::size_t size() { return sizeof...(Layers); }
};

/// A Sequential with a number of layers that can be chosen at run time: `Sequential{std::vector<Block>(depth)}`. To
/// store layers of different types, use a std::variant: `std::vector<std::variant<Dense, Relu, Dropout>>`.
template <class Layer>
class Sequential<std::vector<Layer>> : public detail::LayerSequence<std::vector<Layer>> {
 public:
  Sequential() = default;
  /// Creates a Sequential from layers in call order.
  Sequential(std::vector<Layer> layers) : detail::LayerSequence<std::vector<Layer>>(std::move(layers)) {}

  /// Layer `i`.
  Layer& operator[](std::size_t i) { return this->layers_[i]; }
  const Layer& operator[](std::size_t i) const { return this->layers_[i]; }
  /// The number of layers.
  std::size_t size() const { return this->layers_.size(); }
};

/// Residual connection: returns x + layer(x) (He et al., "Deep residual learning", 2015).
template <class Layer>
struct Residual {
  Layer layer = {};  ///< The inner layer.

  /// Returns x + layer(x).
  Array operator()(const Array& x) const {
    const Array y = layer(x);
    if (y.shape() != x.shape())
      fail<ShapeError>({.operation = "Residual",
                        .with = {{"x", to_string(x.shape())}, {"layer(x)", to_string(y.shape())}},
                        .wrong = "the inner layer's result and its input have different shapes"});
    return x + y;
  }
  /// Sets up the inner layer; called by setup().
  void set_up(const LayerSetup& at) { at.part(layer, "layer", at.input()); }
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};
template <class Layer>
Residual(Layer) -> Residual<Layer>;

namespace detail {

/// A Dense whose sizes are known at compile time.
template <std::int64_t in, std::int64_t out>
struct SizedDense {};

// The number of inputs and outputs of a layer type, if it is known at compile time, otherwise 0. An output of -1 means
// that the layer has as many outputs as inputs.
template <class T>
inline constexpr std::int64_t input_of = 0;
template <class T>
inline constexpr std::int64_t output_of = 0;
template <std::int64_t in, std::int64_t out>
inline constexpr std::int64_t input_of<SizedDense<in, out>> = in;
template <std::int64_t in, std::int64_t out>
inline constexpr std::int64_t output_of<SizedDense<in, out>> = out;
template <>
inline constexpr std::int64_t output_of<Array (*)(Array)> = -1;
template <class T>
  requires std::same_as<T, Relu> || std::same_as<T, Gelu> || std::same_as<T, Silu> || std::same_as<T, Tanh> ||
               std::same_as<T, Sigmoid> || std::same_as<T, LeakyRelu> || std::same_as<T, Softmax> ||
               std::same_as<T, Elementwise> || std::same_as<T, Dropout>
inline constexpr std::int64_t output_of<T> = -1;

struct Misfit {
  std::size_t layer = 0;  ///< index of the layer that does not match; 0 if all match or sizes are unknown
  std::int64_t comes = 0, takes = 0;
};
template <class... Parts>
consteval Misfit misfit() {
  const std::int64_t in[] = {input_of<Parts>...}, out[] = {output_of<Parts>...};
  std::int64_t comes = 0;
  for (std::size_t i = 0; i < sizeof...(Parts); ++i) {
    if (comes != 0 && in[i] != 0 && comes != in[i]) return {i, comes, in[i]};
    if (out[i] != -1) comes = out[i];
  }
  return {};
}
template <std::size_t layer, std::int64_t comes, std::int64_t takes>
struct LayersDoNotFit {
  static_assert(layer == 0,
                "a layer takes a different number of inputs than the previous layers produce: the arguments of "
                "LayersDoNotFit are its index (from 0), the number produced, and the number taken");
};

template <std::int64_t in, std::int64_t out>
Dense layer_of(SizedDense<in, out>) {
  return Dense{.inputs = in, .outputs = out};
}
inline Elementwise layer_of(Array (*function)(Array)) { return {function}; }
template <class Layer>
Sequential<std::vector<Layer>> layer_of(std::vector<Layer> layers) {
  return {std::move(layers)};
}
template <class Layer>
Layer layer_of(Layer layer) {
  return layer;
}

template <class... Parts>
auto sequential_of(Parts... parts) {
  constexpr Misfit wrong = misfit<Parts...>();
  static_cast<void>(sizeof(LayersDoNotFit<wrong.layer, wrong.comes, wrong.takes>));
  return Sequential<decltype(layer_of(parts))...>(layer_of(std::move(parts))...);
}

/// Default type of an argument. It is used for the name of an overloaded function such as `tanh`, which is also
/// declared by the C library and the kernel language, because the compiler cannot deduce its type.
using LayerFunction = Array (*)(Array);

}  // namespace detail

/// A Dense with compile-time sizes, for sequential(): dense<784, 128> has 784 inputs and 128 outputs.
template <std::int64_t in, std::int64_t out>
inline constexpr detail::SizedDense<in, out> dense{};

/// Creates a Sequential from layers, functions such as `relu`, vectors of layers, and dense<in, out>:
/// `sequential(dense<784, 128>, relu, dense<128, 10>)` returns a Sequential<Dense, Elementwise, Dense>. The sizes of
/// dense<in, out> are checked at compile time. Only the first 16 arguments may be functions with overloaded names, such
/// as `tanh`.
inline Sequential<> sequential() { return {}; }
#define TESSERA_1(F) F(1)
#define TESSERA_2(F) TESSERA_1(F), F(2)
#define TESSERA_3(F) TESSERA_2(F), F(3)
#define TESSERA_4(F) TESSERA_3(F), F(4)
#define TESSERA_5(F) TESSERA_4(F), F(5)
#define TESSERA_6(F) TESSERA_5(F), F(6)
#define TESSERA_7(F) TESSERA_6(F), F(7)
#define TESSERA_8(F) TESSERA_7(F), F(8)
#define TESSERA_9(F) TESSERA_8(F), F(9)
#define TESSERA_10(F) TESSERA_9(F), F(10)
#define TESSERA_11(F) TESSERA_10(F), F(11)
#define TESSERA_12(F) TESSERA_11(F), F(12)
#define TESSERA_13(F) TESSERA_12(F), F(13)
#define TESSERA_14(F) TESSERA_13(F), F(14)
#define TESSERA_15(F) TESSERA_14(F), F(15)
#define TESSERA_16(F) TESSERA_15(F), F(16)
#define TESSERA_TYPE(i) class L##i = detail::LayerFunction
#define TESSERA_PARAMETER(i) L##i l##i
#define TESSERA_ARGUMENT(i) std::move(l##i)
#define TESSERA_SEQUENTIAL(n)                                    \
  template <TESSERA_##n(TESSERA_TYPE)>                           \
  auto sequential(TESSERA_##n(TESSERA_PARAMETER)) {              \
    return detail::sequential_of(TESSERA_##n(TESSERA_ARGUMENT)); \
  }
TESSERA_SEQUENTIAL(1)
TESSERA_SEQUENTIAL(2)
TESSERA_SEQUENTIAL(3)
TESSERA_SEQUENTIAL(4)
TESSERA_SEQUENTIAL(5)
TESSERA_SEQUENTIAL(6)
TESSERA_SEQUENTIAL(7)
TESSERA_SEQUENTIAL(8)
TESSERA_SEQUENTIAL(9)
TESSERA_SEQUENTIAL(10)
TESSERA_SEQUENTIAL(11)
TESSERA_SEQUENTIAL(12)
TESSERA_SEQUENTIAL(13)
TESSERA_SEQUENTIAL(14)
TESSERA_SEQUENTIAL(15)
template <TESSERA_16(TESSERA_TYPE), class... More>
auto sequential(TESSERA_16(TESSERA_PARAMETER), More... more) {
  return detail::sequential_of(TESSERA_16(TESSERA_ARGUMENT), std::move(more)...);
}
#undef TESSERA_SEQUENTIAL
#undef TESSERA_ARGUMENT
#undef TESSERA_PARAMETER
#undef TESSERA_TYPE
#undef TESSERA_16
#undef TESSERA_15
#undef TESSERA_14
#undef TESSERA_13
#undef TESSERA_12
#undef TESSERA_11
#undef TESSERA_10
#undef TESSERA_9
#undef TESSERA_8
#undef TESSERA_7
#undef TESSERA_6
#undef TESSERA_5
#undef TESSERA_4
#undef TESSERA_3
#undef TESSERA_2
#undef TESSERA_1

}  // namespace tessera
