// SPDX-License-Identifier: Apache-2.0
// The layers of a model as a list, independent of its type: for proofs, certificates and descriptions in files.
// Internal but for describe. The elements are defined in structure.h.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/images.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/sequential.h"

namespace tessera {
namespace verification {

struct Layer;
using Layers = std::vector<Layer>;

/// Layers, collected from a model. Copies share them.
class LayerList {
 public:
  LayerList();
  LayerList(Layers layers);
  operator const Layers&() const { return *layers_; }

  void add(const std::string& path, const Dense& layer);
  void add(const std::string& path, const Conv2d& layer);
  void add(const std::string& path, const BatchNorm& layer);
  void add(const std::string& path, const LayerNorm& layer);
  void add(const std::string& path, const RmsNorm& layer);
  void add(const std::string& path, const MaxPool2d& layer);
  void add(const std::string& path, const AveragePool2d& layer);
  void add(const std::string& path, const Softmax& layer);
  void add(const std::string& path, const Dropout& layer);
  void add(const std::string& path, const Flatten& layer);
  void add(const std::string& path, const Relu& layer);
  void add(const std::string& path, const Gelu& layer);
  void add(const std::string& path, const Silu& layer);
  void add(const std::string& path, const Tanh& layer);
  void add(const std::string& path, const Sigmoid& layer);
  void add(const std::string& path, const LeakyRelu& layer);
  /// Converts the functions relu, silu, gelu, tanh and sigmoid to layers.
  void add_function(const std::string& path, const Elementwise& layer);
  /// Adds x + inside(x).
  void add_residual(const std::string& path, const LayerList& inside);
  /// Adds a layer without supported bounds.
  void add_unsupported(const std::string& path, std::string_view type);

 private:
  std::shared_ptr<Layers> layers_;
};

template <class T>
inline constexpr bool is_sequential = false;
template <class... P>
inline constexpr bool is_sequential<Sequential<P...>> = true;
template <class T>
inline constexpr bool is_residual = false;
template <class P>
inline constexpr bool is_residual<Residual<P>> = true;

std::string under(const std::string& path, const std::string& name);

template <class L>
void collect(const L& layer, const std::string& path, LayerList& to) {
  if constexpr (is_sequential<L>) {
    detail::for_each_layer(layer.layers(), [&](const auto& inside, std::size_t i) {
      collect(inside, under(path, std::to_string(i)), to);
    });
  } else if constexpr (is_residual<L>) {
    LayerList inside;
    collect(layer.layer, under(path, "layer"), inside);
    to.add_residual(path, inside);
  } else if constexpr (std::same_as<L, Elementwise>) {
    to.add_function(path, layer);
  } else if constexpr (requires { to.add(path, layer); }) {
    to.add(path, layer);
  } else {
    to.add_unsupported(path, detail::type_name<L>());
  }
}
template <class Model>
LayerList layers_of(const Model& model) {
  LayerList out;
  collect(model, "", out);
  return out;
}

/// "f32 (16, 4)" and the SHA-256 of the elements of an array.
struct ArrayDigest {
  std::string dtype;
  Shape shape;
  std::string sha256;
};

/// Formats the layers as JSON: kinds, paths, sizes and settings, without arrays.
std::string text_of(const Layers& layers);

}  // namespace verification

/// Returns a JSON description of a model's layers. If it is saved with the model, save_model(model, file,
/// {{"tessera.layers", describe(model)}}), `tessera verify-model` can load the file.
template <class Model>
std::string describe(const Model& model) {
  return verification::text_of(verification::layers_of(model));
}

}  // namespace tessera
