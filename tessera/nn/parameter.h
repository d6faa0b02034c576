// SPDX-License-Identifier: Apache-2.0
// What a model is made of: arrays that are trained and arrays that are kept, each with the path that names it. A model
// is any value that array/traversal.h walks and whose arrays say which of the two they are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/array/array_map.h"
#include "tessera/array/traversal.h"

namespace tessera {

/// Makes the first values of an array from its shape and a seed of its own, on current_device() (nn/initialise.h).
using Initialiser = std::function<Array(const Shape& shape, std::uint64_t seed)>;

/// An array of a model. It is an Array wherever one is taken. Assigning an Array gives it other values and keeps what
/// it is (path, frozen); assigning another of its kind copies that too. Copies share memory, as those of an Array do.
class ModelArray : public Array {
 public:
  /// Where it stands in the model that was set up, "layers.1.weight"; before that empty.
  const std::string& path() const;
  bool empty() const { return size() == 0; }  ///< not set up, or left out (a bias that a layer has not)
  /// True for a Parameter that is not frozen.
  bool trained() const { return kind_ == Kind::parameter && !frozen_; }
  /// True for a StateArray.
  bool state() const { return kind_ == Kind::state; }
  bool frozen() const { return frozen_; }  ///< not trained, although it is a Parameter: freeze(model, pattern)

  /// What setup is to fill it with. One that has values keeps them: then ShapeError if their shape is another.
  void declare(Shape shape, Initialiser initialise);
  /// What setup does: takes `path` as its own and, where it has no values and one is declared, makes them from the seed
  /// and the path.
  void fill_in(std::string path, std::uint64_t seed, DType dtype);
  /// Freezes the parameter, or trains it again.
  void set_frozen(bool frozen) { frozen_ = frozen; }

  /// In mixed precision (nn/precision.h) it stays as it is: the parameters of norms.
  bool keeps_precision() const { return keeps_precision_; }
  /// Sets what keeps_precision() returns.
  void keep_precision(bool keep = true) { keeps_precision_ = keep; }
  /// It is a copy of 16 bits, in mixed precision, of an f32 parameter: gradients by it are f32.
  bool narrowed() const { return narrowed_; }
  /// Replaces the values by a copy of 16 bits.
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

/// An array of a model that is trained.
class Parameter : public ModelArray {
 public:
  Parameter() : ModelArray(Kind::parameter) {}
  Parameter(Array values) : ModelArray(Kind::parameter, std::move(values)) {}
  /// Values that setup makes: `Parameter factor{{64}, init::ones()};`.
  Parameter(Shape shape, Initialiser initialise) : Parameter() { declare(std::move(shape), std::move(initialise)); }
  /// Replaces the values.
  Parameter& operator=(Array values) {
    assign_values(std::move(values));
    return *this;
  }
};

/// An array of a model that is kept and saved with it, but not trained: running figures, tables.
class StateArray : public ModelArray {
 public:
  /// An array that setup() does not fill.
  StateArray() : ModelArray(Kind::state) {}
  /// An array with these values.
  StateArray(Array values) : ModelArray(Kind::state, std::move(values)) {}
  /// Values that setup() makes.
  StateArray(Shape shape, Initialiser initialise) : StateArray() { declare(std::move(shape), std::move(initialise)); }
  /// Replaces the values.
  StateArray& operator=(Array values) {
    assign_values(std::move(values));
    return *this;
  }
};

/// Gradients are by what is trained (grad/grad.h asks): of the rest they hold empty arrays.
inline bool differentiable(const ModelArray& a) { return a.trained() && !a.empty() && is_float(a.dtype()); }
/// A parameter that stands in several places of a model is one: its gradient is the sum over them.
inline bool shares_gradient(const ModelArray&) { return true; }

/// The dtype of the array's gradient: its own, but f32 for a copy of 16 bits.
inline DType gradient_dtype(const ModelArray& a) { return a.narrowed() ? DType::f32 : a.dtype(); }

/// What a layer that multiplies by `weight` computes with: in mixed precision f32 that comes is rounded to the weight's
/// 16 bits, so that the product has them too. Else x.
inline Array in_precision_of(const ModelArray& weight, const Array& x) {
  return weight.narrowed() && x.dtype() == DType::f32 ? x.astype(weight.dtype()) : x;
}

/// One array of a model, as a list of them holds it. `array` shares the model's memory.
struct NamedArray {
  std::string path;  ///< The path of the array in the model.
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
                "a plain Array in a model says neither that it is trained nor that it is kept: say Parameter or "
                "StateArray. Its path in the model is the second argument of PlainArrayInModel");
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
  const std::function<void(A&, const Path&)>& use;
  void operator()(A& part, const Path& at) const { use(part, at); }
};
/// ModelArray, const where the model is.
template <class Model>
using PartOf = std::conditional_t<std::is_const_v<Model>, const ModelArray, ModelArray>;
/// `use(part, path)` for each array of a model.
template <class Model>
void for_each_part(Model& model, const std::function<void(PartOf<Model>&, const Path&)>& use) {
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

/// Makes copies of arrays; one that was given before, seen alike, gets the copy it got then.
class Cloner {
 public:
  Array operator()(const Array& a);

 private:
  ArrayMap<Array> known_;
};

}  // namespace detail

/// Does a path match a pattern in which `*` is any number of letters (dots too) and `?` one letter?
bool path_matches(std::string_view path, std::string_view pattern);

/// The parameters of a model, frozen ones too, in the order of its members; empty ones are left out. Paths are those of
/// the model that is given: "layers.1.weight". A model with a plain Array does not compile, here and wherever models
/// are trained.
template <class Model>
std::vector<NamedArray> parameters(const Model& model) {
  std::vector<NamedArray> out;
  detail::for_each_part(model, [&](const ModelArray& part, const Path& at) {
    if (!part.state() && !part.empty()) out.push_back({at.text(), part});
  });
  return out;
}
/// The same of its state.
template <class Model>
std::vector<NamedArray> states(const Model& model) {
  std::vector<NamedArray> out;
  detail::for_each_part(model, [&](const ModelArray& part, const Path& at) {
    if (part.state() && !part.empty()) out.push_back({at.text(), part});
  });
  return out;
}

/// Parameters whose path matches the pattern (`freeze(model, "layers.0.*")`) are not trained: they have no gradient,
/// and optimisers pass them by. Of this value of the model; copies made before are as they were. ArgumentError if none
/// matches.
template <class Model>
void freeze(Model& model, std::string_view pattern = "*") {
  detail::set_frozen("freeze", detail::parts_of(model), pattern, true);
}
/// Trains what freeze() has frozen: parameters whose path matches the pattern.
template <class Model>
void unfreeze(Model& model, std::string_view pattern = "*") {
  detail::set_frozen("unfreeze", detail::parts_of(model), pattern, false);
}

/// A table for people: path, what it is, dtype, shape and number of elements of every array; at the end their sums. An
/// array that stands in several places is counted at the first; the others say "as " and its path.
template <class Model>
std::string summary(const Model& model) {
  return detail::summary_of(detail::parts_of(model));
}

/// A copy with memory of its own, where copying a model shares it. One array that stands in two places stays one.
template <class Model>
Model clone(const Model& model) {
  detail::Cloner copy;
  return map_arrays(model, [&](const Array& a) { return copy(a); });
}

}  // namespace tessera
