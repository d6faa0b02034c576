// SPDX-License-Identifier: Apache-2.0
// Filling the parameters of a model, and how layers take part in it.
//
// A layer that does not know its shapes has `void set_up(const LayerSetup& at)`: it declares its arrays there. One that
// can say what it gives has `Shape output_shape(const Shape& input) const`. Shapes are those of one sample: without the
// batch.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera {

/// Options of setup().
struct SetupOptions {
  std::uint64_t seed = 0;  ///< Seed of the parameters' first values.
  /// The shape of one sample, without the batch, for the first layer; a Sequential knows the others. A layer elsewhere
  /// must be given its sizes. (Empty: not known.)
  Shape input = {};
  DType dtype = DType::f32;  ///< The dtype of the parameters.
};

/// Where a layer without arrays stands in its model; setup writes it.
class LayerPath {
 public:
  const std::string& text() const;  ///< The path; empty if the layer was not set up.
  /// True after setup().
  bool known() const { return text_ != nullptr; }
  /// Sets the path; called by setup().
  void set(std::string text) { text_ = std::make_shared<const std::string>(std::move(text)); }

 private:
  std::shared_ptr<const std::string> text_;
};
template <>
inline constexpr bool holds_no_arrays<LayerPath> = true;

class LayerSetup;

namespace detail {

template <class T>
concept HasSetUp = requires(T& layer, const LayerSetup& at) { layer.set_up(at); };
template <class T>
concept HasOutputShape = requires(const T& layer, const Shape& input) {
  { layer.output_shape(input) } -> std::convertible_to<Shape>;
};

struct SetupLeaves {
  template <class T>
  static constexpr bool is_leaf = HasSetUp<T>;
};

template <class T>
void set_up_part(T& part, const Path& at, const Shape& input);

}  // namespace detail

/// A layer's turn in setup.
class LayerSetup {
 public:
  /// Made by setup().
  LayerSetup(const Path& path, const Shape& input) : path_(path), input_(input) {}

  /// The layer's path: "layers.0".
  std::string path() const { return path_.text(); }
  const Shape& input() const { return input_; }  ///< of one sample; empty: not known
  /// How much the layer takes in: `given` unless that is 0, else the input's extent along `axis`. ShapeError, with the
  /// path, if neither is known or the two differ.
  std::int64_t inputs(const char* layer, std::int64_t given, int axis) const;
  /// For layers made of layers: sets one of them up. `name` is that of the member, or its index.
  template <class T, class Name>
  void part(T& layer, const Name& name, const Shape& input) const {
    detail::set_up_part(layer, Path(path_, name), input);
  }

 private:
  const Path& path_;
  const Shape& input_;
};

namespace detail {

/// Layers of a structure in their order; the first is given the input.
struct SetupVisitor {
  using leaves = SetupLeaves;
  Shape input;
  template <HasSetUp T>
  void operator()(T& layer, const Path& at) {
    const Shape mine = std::exchange(input, {});
    layer.set_up(LayerSetup(at, mine));
  }
  void operator()(Array&, const Path&) {}
};
template <class T>
void set_up_part(T& part, const Path& at, const Shape& input) {
  SetupVisitor visit{input};
  Traversal("setup").visit(part, visit, at);
}

struct FillVisitor {
  struct leaves : ModelLeaves {
    template <class T>
    static constexpr bool is_leaf = std::same_as<T, LayerPath>;
  };
  const SetupOptions& options;
  void operator()(ModelArray& part, const Path& at) const { part.fill_in(at.text(), options.seed, options.dtype); }
  void operator()(LayerPath& path, const Path& at) const;
};

/// What errors call a layer: its kind, and its path if one of its arrays knows it.
std::string layer_name(const char* kind, const std::string& array_path);
/// ArgumentError: the layer that holds `array` was not set up.
void check_initialized(const char* kind, const ModelArray& array);

}  // namespace detail

/// The model with its parameters and state filled, on current_device(): of each path from the seed and the path alone,
/// so that neither the device nor what else is in the model shows. What has values keeps them, so parts may be given
/// trained ones. Every array and Dropout learns its path, which errors name. ShapeError, with the path, where a layer
/// does not know its input, or takes another than comes.
template <class Model>
Model setup(Model model, const SetupOptions& options = {}) {
  if constexpr (!detail::traversable<Model, detail::ModelLeaves>) {
    detail::refuse_model<Model>();
  } else {
    detail::set_up_part(model, Path(), options.input);
    detail::FillVisitor fill{options};
    detail::Traversal("setup").visit(model, fill, Path());
  }
  return model;
}

}  // namespace tessera
