// SPDX-License-Identifier: Apache-2.0
// Layers one after the other, and around.
#pragma once

#include "tessera/nn/layer_watch.h"
#include "tessera/nn/layers.h"

namespace tessera {

/// Layers in their order, each given what the one before gives. Their paths are their places: "0.weight", "2.bias".
/// At setup each is told the shape that reaches it, as far as layers can say (output_shape).
///
/// Placed, it is on several devices: each layer where its arrays are, and what it is given is copied there (gradients
/// go back the same way). Without that nothing is moved, and operands on different devices are an error.
template <class... Layers>
class Sequential {
 public:
  Sequential() = default;
  Sequential(Layers... layers)
    requires(sizeof...(Layers) > 0)
      : layers_(std::move(layers)...) {}

  Array operator()(const Array& x) const {
    Array y = x;
    std::apply(
        [&](const Layers&... layer) {
          std::size_t i = 0;
          (call(layer, i++, y), ...);
        },
        layers_);
    return y;
  }
  /// Moves the arrays of each layer to its device, of as many as there are layers, and is placed from then on. Those
  /// who share the arrays keep theirs. ArgumentError if an array stands in layers of different devices.
  void place(const std::vector<Device>& devices) {
    detail::place_layers(devices, sizeof...(Layers), [&](std::size_t at, const detail::UsePart& use) {
      each([&](auto& layer, std::size_t i) {
        if (i == at) detail::for_each_part(layer, use);
      });
    });
    placed_ = true;
  }
  /// Placed, as the layers are now: each may have been set up on a device of its own.
  void place() { placed_ = true; }
  bool placed() const { return placed_; }
  template <std::size_t I>
  auto& get() {
    return std::get<I>(layers_);
  }
  template <std::size_t I>
  const auto& get() const {
    return std::get<I>(layers_);
  }
  static constexpr std::size_t size() { return sizeof...(Layers); }

  void set_up(const LayerSetup& at) {
    path_.set(at.path());
    Shape shape = at.input();
    each([&](auto& layer, std::size_t i) {
      at.part(layer, i, shape);
      shape = after(layer, shape);
    });
  }
  /// Empty: not known, since a layer cannot say it.
  Shape output_shape(const Shape& input) const {
    Shape shape = input;
    std::apply([&](const Layers&... layer) { ((shape = after(layer, shape)), ...); }, layers_);
    return shape;
  }
  auto fields() {
    return std::apply([](Layers&... layer) { return std::tie(layer...); }, layers_);
  }
  std::tuple<Layers...>& layers() { return layers_; }

 private:
  /// y becomes what the layer gives for it. (By reference: arguments live to the end of the expression, and what is
  /// alive is computed.)
  template <class Layer>
  void call(const Layer& layer, std::size_t i, Array& y) const {
    if (placed_) {
      const std::optional<Device> there = detail::device_of_layer(layer);
      if (there && y.device() != *there) y = y.to(*there);
    }
    if (detail::layer_watch == nullptr) [[likely]]
      y = layer(y);
    else
      y = detail::watched(layer, i, path_.text(), y);
  }
  template <class Layer>
  static Shape after(const Layer& layer, const Shape& shape) {
    if constexpr (detail::HasOutputShape<Layer>)
      return shape.empty() ? Shape{} : Shape(layer.output_shape(shape));
    else
      return {};
  }
  template <class Use>
  void each(Use&& use) {
    std::apply(
        [&](Layers&... layer) {
          std::size_t i = 0;
          (use(layer, i++), ...);
        },
        layers_);
  }
  std::tuple<Layers...> layers_;
  LayerPath path_;  ///< as it was set up
  bool placed_ = false;
};

/// x + layer(x) (He et al., "Deep residual learning", 2015).
template <class Layer>
struct Residual {
  Layer layer = {};

  Array operator()(const Array& x) const {
    const Array y = layer(x);
    if (y.shape() != x.shape())
      fail<ShapeError>({.asked = "Residual",
                        .with = {{"x", to_string(x.shape())}, {"layer(x)", to_string(y.shape())}},
                        .wrong = "the layer inside gives another shape than it is given"});
    return x + y;
  }
  void set_up(const LayerSetup& at) { at.part(layer, "layer", at.input()); }
  Shape output_shape(const Shape& input) const { return input; }
};
template <class Layer>
Residual(Layer) -> Residual<Layer>;

namespace detail {

/// A Dense whose sizes the compiler knows.
template <std::int64_t in, std::int64_t out>
struct SizedDense {};

// What the compiler knows of a layer's last extent: 0 nothing, -1 that it passes its input's on.
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
  std::size_t layer = 0;  ///< 0: none
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
                "a layer takes another number of inputs than the layers before it give: the arguments of "
                "LayersDoNotFit are its place (from 0), how many come, and how many it takes");
};

template <std::int64_t in, std::int64_t out>
Dense layer_of(SizedDense<in, out>) {
  return Dense{.inputs = in, .outputs = out};
}
inline Elementwise layer_of(Array (*function)(Array)) { return {function}; }
template <class Layer>
Layer layer_of(Layer layer) {
  return layer;
}

}  // namespace detail

/// A Dense for sequential: dense<784, 128> takes 784 and gives 128.
template <std::int64_t in, std::int64_t out>
inline constexpr detail::SizedDense<in, out> dense{};

/// A Sequential of layers, of functions such as `relu`, and of dense<in, out>, whose sizes are compared when this is
/// compiled: `sequential(dense<784, 128>, relu, dense<128, 10>)` is a Sequential<Dense, Elementwise, Dense>.
template <class... Parts>
auto sequential(Parts... parts) {
  constexpr detail::Misfit wrong = detail::misfit<Parts...>();
  static_cast<void>(sizeof(detail::LayersDoNotFit<wrong.layer, wrong.comes, wrong.takes>));
  return Sequential<decltype(detail::layer_of(parts))...>(detail::layer_of(std::move(parts))...);
}

}  // namespace tessera
