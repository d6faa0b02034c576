// SPDX-License-Identifier: Apache-2.0
// setup(), which creates the parameters of a model, and the functions that layers implement for it.
//
// A layer that infers shapes implements `void set_up(const LayerSetup& at)` and declares its arrays there. A layer that
// knows the shape of its result implements `Shape output_shape(const Shape& input) const`. All shapes are for one
// sample, without the batch.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera {

/// Options of setup().
struct SetupOptions {
  std::uint64_t seed = 0;  ///< Seed of the parameters' initial values.
  /// Shape of one sample of the model's input, without the batch; empty if unknown. A Sequential infers the shapes
  /// between its layers. Layers outside a Sequential need explicit sizes.
  Shape input = {};
  DType dtype = DType::f32;  ///< The dtype of the parameters.
};

/// The path of a layer that has no arrays. setup() sets it.
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
  const Shape& input() const { return input_; }  ///< shape of one sample; empty if unknown
  /// Returns the number of inputs: `given` if that is not 0, otherwise the input's extent along `axis`. Throws
  /// ShapeError with the path if neither is known or if they differ.
  std::int64_t inputs(const char* layer, std::int64_t given, int axis) const;
  /// Sets up a layer that is a part of this layer. `name` is the name of the member, or its index.
  template <class T, class Name>
  void part(T& layer, const Name& name, const Shape& input) const {
    detail::set_up_part(layer, Path(path_, name), input);
  }

 private:
  const Path& path_;
  const Shape& input_;
};

namespace detail {

/// Visits the layers of a structure in order. Only the first layer receives the input shape.
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

/// Returns a layer's name for errors: its kind, followed by its path if that is known from one of its arrays.
std::string layer_name(const char* kind, const std::string& array_path);
/// Throws ArgumentError if the layer that contains `array` was not set up.
void check_initialized(const char* kind, const ModelArray& array);

}  // namespace detail

/// Creates the parameters and state of a model on current_device(), and returns the model. The values of each array
/// depend only on the seed and the array's path, not on the device or on other parts of the model. Arrays that already
/// have values keep them, so parts of the model may be pretrained. Each array and each Dropout stores its path for
/// error messages. Throws ShapeError with the path if a layer's input size is unknown or differs from its declared
/// size.
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
