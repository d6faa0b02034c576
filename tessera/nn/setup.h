// SPDX-License-Identifier: Apache-2.0
// setup: creates the parameters of a model, and the interface that layers implement for it.
//
// A layer that infers its shapes has `void set_up(const LayerSetup& at)`, which declares its arrays. A layer that knows
// its result's shape has `Shape output_shape(const Shape& input) const`. Shapes are those of one sample, without the
// batch.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera {

/// Options of setup().
struct SetupOptions {
  std::uint64_t seed = 0;  ///< Seed of the parameters' initial values.
  /// Shape of one sample, without the batch, for the first layer; a Sequential infers the others. Layers elsewhere need
  /// explicit sizes. (Empty: unknown.)
  Shape input = {};
  DType dtype = DType::f32;  ///< The dtype of the parameters.
};

/// The path of a layer without arrays; set by setup.
class LayerPath {
 public:
  const std::string& text() const;  ///< The path; empty if the layer was not set up.
  /// True after setup().
  bool known() const { return text_ != nullptr; }
  /// Sets the path; called by setup().
  void set(std::string text);

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

/// Passed to a layer's set_up().
class LayerSetup {
 public:
  /// Created by setup().
  LayerSetup(const Path& path, const Shape& input) : path_(path), input_(input) {}

  /// The layer's path: "layers.0".
  std::string path() const { return path_.text(); }
  const Shape& input() const { return input_; }  ///< of one sample; empty: unknown
  /// The number of inputs: `given` unless that is 0, otherwise the input's extent along `axis`. Throws ShapeError, with
  /// the path, if neither is known or the two differ.
  std::int64_t inputs(const char* layer, std::int64_t given, int axis) const;
  /// For layers that contain layers: sets up one of them. `name` is the member's name, or its index.
  template <class T, class Name>
  void part(T& layer, const Name& name, const Shape& input) const {
    detail::set_up_part(layer, Path(path_, name), input);
  }

 private:
  const Path& path_;
  const Shape& input_;
};

namespace detail {

/// Visits the layers of a structure in order; the first gets the input.
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

/// A layer's name in errors: its kind, and its path if one of its arrays has one.
std::string layer_name(const char* kind, const std::string& array_path);
/// Throws ArgumentError if the layer that contains `array` was not set up.
void check_initialized(const char* kind, const ModelArray& array);

}  // namespace detail

/// Returns the model with its parameters and state created on current_device(). Each array's values depend on the seed
/// and its path only, not on the device or the rest of the model. Arrays that have values keep them, so parts of the
/// model may be pretrained. Every array and Dropout stores its path, which errors name. Throws ShapeError, with the
/// path, if a layer's input is unknown or differs from its declared size.
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
