// SPDX-License-Identifier: Apache-2.0
// The arrays of a model: trained parameters, and state that is not trained. Each has a path. A model is any value that
// array/traversal.h can visit and that contains arrays only as Parameter or StateArray.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/array/array_map.h"
#include "tessera/array/traversal.h"
#include "tessera/base/callback.h"

namespace tessera {

/// A function that creates the initial values of an array from its shape and seed, on current_device()
/// (nn/initialise.h).
using Initialiser = Callback<Array(const Shape& shape, std::uint64_t seed)>;

/// An array of a model. It can be used like an Array. Assigning an Array replaces the values only; the path and the
/// frozen flag are unchanged. Assigning a ModelArray copies the path and the flag as well. As with an Array, copies
/// share memory.
class ModelArray : public Array {
 public:
  /// The path in the model, such as "layers.1.weight". Empty before setup().
  const std::string& path() const;
  /// True before setup(), and if the array is absent, for example the bias of a layer without bias.
  bool empty() const { return size() == 0; }
  /// True for a Parameter that is not frozen.
  bool trained() const { return kind_ == Kind::parameter && !frozen_; }
  /// True for a StateArray.
  bool state() const { return kind_ == Kind::state; }
  /// True for a Parameter that is not trained because of freeze(model, pattern).
  bool frozen() const { return frozen_; }

  /// Sets the shape and the initialiser that setup() uses. An array that already has values keeps them. Throws
  /// ShapeError if those values have a different shape.
  void declare(Shape shape, Initialiser initialise);
  /// Called by setup(). Stores `path`. If the array was declared and has no values, creates them from the seed and the
  /// path.
  void fill_in(std::string path, std::uint64_t seed, DType dtype);
  /// Freezes or unfreezes the parameter.
  void set_frozen(bool frozen) { frozen_ = frozen; }

  /// True if mixed precision (nn/precision.h) does not convert the array. Norms set this for their parameters.
  bool keeps_precision() const { return keeps_precision_; }
  /// Sets what keeps_precision() returns.
  void keep_precision(bool keep = true) { keeps_precision_ = keep; }
  /// True for the 16-bit copy of an f32 parameter in mixed precision. The gradient of such a copy is f32.
  bool narrowed() const { return narrowed_; }
  /// Replaces the values by a 16-bit copy.
  void narrow(Array copy) {
    assign_values(std::move(copy));
    narrowed_ = true;
  }

 protected:
  enum class Kind : std::uint8_t { parameter, state };
  explicit ModelArray(Kind kind) : kind_(kind) {}
  ModelArray(Kind kind, Array values) : Array(std::move(values)), kind_(kind) {}
  void assign_values(Array values) { static_cast<Array&>(*this) = std::move(values); }

 private:
  struct Declared {
    Shape shape;
    Initialiser initialise;
  };
  std::shared_ptr<const Declared> declared_;
  std::shared_ptr<const std::string> path_;
  Kind kind_;
  bool frozen_ = false, keeps_precision_ = false, narrowed_ = false;
};

/// A trained array of a model.
class Parameter : public ModelArray {
 public:
  Parameter() : ModelArray(Kind::parameter) {}
  Parameter(Array values) : ModelArray(Kind::parameter, std::move(values)) {}
  /// Creates the values in setup(): `Parameter factor{{64}, init::ones()};`.
  Parameter(Shape shape, Initialiser initialise) : Parameter() { declare(std::move(shape), std::move(initialise)); }
  /// Replaces the values.
  Parameter& operator=(Array values) {
    assign_values(std::move(values));
    return *this;
  }
};

/// An array of a model that is saved with the model but not trained, such as running statistics or tables.
class StateArray : public ModelArray {
 public:
  /// Creates an array that setup() does not fill.
  StateArray() : ModelArray(Kind::state) {}
  /// Creates an array with these values.
  StateArray(Array values) : ModelArray(Kind::state, std::move(values)) {}
  /// Creates the values in setup().
  StateArray(Shape shape, Initialiser initialise) : StateArray() { declare(std::move(shape), std::move(initialise)); }
  /// Replaces the values.
  StateArray& operator=(Array values) {
    assign_values(std::move(values));
    return *this;
  }
};

/// True if gradients are computed with respect to this array, which must be a trained array of floats. The gradient of
/// any other array is empty. Called by grad/grad.h.
inline bool differentiable(const ModelArray& a) { return a.trained() && !a.empty() && is_float(a.dtype()); }
/// A parameter that occurs several times in a model has a single gradient, the sum over all occurrences.
inline bool shares_gradient(const ModelArray&) { return true; }

/// Returns the dtype of the array's gradient: f32 for a 16-bit copy, otherwise the array's own dtype.
inline DType gradient_dtype(const ModelArray& a) { return a.narrowed() ? DType::f32 : a.dtype(); }

/// Converts the input of a product with `weight`. In mixed precision, f32 x is rounded to the 16-bit dtype of the
/// weight, so that the product also has this dtype. Otherwise returns x.
inline Array in_precision_of(const ModelArray& weight, const Array& x) {
  return weight.narrowed() && x.dtype() == DType::f32 ? x.astype(weight.dtype()) : x;
}

/// An entry in a list of a model's arrays. `array` shares memory with the model.
struct NamedArray {
  std::string path;  ///< Path of the array in the model.
  Array array;       ///< The array.
};

namespace detail {

struct ModelLeaves {
  template <class T>
  static constexpr bool is_leaf = false;
  template <class T>
  static constexpr bool is_refused = std::derived_from<T, Array> && !std::derived_from<T, ModelArray>;
};

template <Text type, Text path>
struct PlainArrayInModel {
  static_assert(sizeof(path.letters) == 0,
                "an array of a model must be a Parameter (trained) or a StateArray (not trained), not a plain Array. "
                "Its path in the model is the second argument of PlainArrayInModel");
};
template <class T>
constexpr void refuse_model() {
  constexpr const UnknownPart& part = unknown_part<T, ModelLeaves>;
  if constexpr (part.type.text() == type_name<Array>())
    refuse<T, ModelLeaves, PlainArrayInModel>();
  else
    refuse<T, ModelLeaves, CannotTraverse>();
}

template <class A>
struct PartVisitor {
  using leaves = ModelLeaves;
  const Callback<void(A&, const Path&)>& use;
  void operator()(A& part, const Path& at) const { use(part, at); }
};
/// ModelArray, or const ModelArray for a const model.
template <class Model>
using PartOf = std::conditional_t<std::is_const_v<Model>, const ModelArray, ModelArray>;
/// Calls `use(part, path)` for each array of a model.
template <class Model>
void for_each_part(Model& model, const Callback<void(PartOf<Model>&, const Path&)>& use) {
  if constexpr (traversable<std::remove_const_t<Model>, ModelLeaves>) {
    PartVisitor<PartOf<Model>> visit{use};
    Traversal("parameters").visit(model, visit, Path());
  } else {
    refuse_model<std::remove_const_t<Model>>();
  }
}
template <class Model>
std::vector<std::pair<std::string, PartOf<Model>*>> parts_of(Model& model) {
  std::vector<std::pair<std::string, PartOf<Model>*>> parts;
  for_each_part(model, [&](PartOf<Model>& part, const Path& at) { parts.emplace_back(at.text(), &part); });
  return parts;
}
using Parts = std::vector<std::pair<std::string, ModelArray*>>;
using ConstParts = std::vector<std::pair<std::string, const ModelArray*>>;

void set_frozen(const char* operation, const Parts& parts, std::string_view pattern, bool frozen);
std::string summary_of(const ConstParts& parts);
/// The parameters, or the state arrays, that are not empty.
std::vector<NamedArray> named_arrays(const ConstParts& parts, bool states);

/// Copies arrays. If the same view of an array occurs several times, it is copied once.
class Cloner {
 public:
  Array operator()(const Array& a);

 private:
  ArrayMap<Array> known_;
};

}  // namespace detail

/// Returns true if the path matches the pattern. `*` matches any number of characters, including dots, and `?` matches
/// one character.
bool path_matches(std::string_view path, std::string_view pattern);

/// Returns the parameters of a model in the order of its members. Includes frozen parameters, but no empty ones. Paths
/// are relative to the given model: "layers.1.weight". Calls of this function, and of all functions that train models,
/// do not compile if the model contains a plain Array.
template <class Model>
std::vector<NamedArray> parameters(const Model& model) {
  return detail::named_arrays(detail::parts_of(model), false);
}
/// Like parameters(), but returns the state arrays of a model.
template <class Model>
std::vector<NamedArray> states(const Model& model) {
  return detail::named_arrays(detail::parts_of(model), true);
}

/// Freezes the parameters whose path matches the pattern: `freeze(model, "layers.0.*")`. Frozen parameters have no
/// gradient, and optimisers skip them. Only this model object changes; existing copies do not. Throws ArgumentError if
/// no path matches.
template <class Model>
void freeze(Model& model, std::string_view pattern = "*") {
  detail::set_frozen("freeze", detail::parts_of(model), pattern, true);
}
/// Unfreezes the parameters whose path matches the pattern.
template <class Model>
void unfreeze(Model& model, std::string_view pattern = "*") {
  detail::set_frozen("unfreeze", detail::parts_of(model), pattern, false);
}

/// Returns a table with the path, kind, dtype, shape and number of elements of each array, and totals. An array that
/// occurs several times is counted once; its other rows contain "as PATH".
template <class Model>
std::string summary(const Model& model) {
  return detail::summary_of(detail::parts_of(model));
}

/// Returns a deep copy of a model, while a plain copy shares the arrays. Arrays that are shared within the model remain
/// shared within the clone.
template <class Model>
Model clone(const Model& model) {
  detail::Cloner copy;
  return map_arrays(model, [&](const Array& a) { return copy(a); });
}

}  // namespace tessera
