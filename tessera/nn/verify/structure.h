// SPDX-License-Identifier: Apache-2.0
// The layers of a model as a list that does not depend on the model's type. It is used for proofs, certificates and
// descriptions in files. Internal except for describe().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tessera/array/safetensors.h"
#include "tessera/nn/images.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/sequential.h"

namespace tessera {
namespace verification {

struct Layer;
using Layers = std::vector<Layer>;
/// A residual connection: x + inside(x).
struct ResidualLayer {
  std::shared_ptr<Layers> inside;
};
/// A layer for which bounds are not supported.
struct UnsupportedLayer {
  std::string kind, why;
};
struct Layer {
  std::string path;  ///< path such as "1.layer.0"; empty if the model is a single layer
  std::variant<Dense, Conv2d, BatchNorm, LayerNorm, RmsNorm, MaxPool2d, AveragePool2d, Softmax, Dropout, Flatten, Relu,
               Gelu, Silu, Tanh, Sigmoid, LeakyRelu, ResidualLayer, UnsupportedLayer>
      what;
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
/// Creates the entry for a layer of an unsupported type.
UnsupportedLayer unsupported_layer(std::string type);
/// Converts the functions relu, silu, gelu, tanh and sigmoid to layers.
Layer of_function(std::string path, const Elementwise& layer);

template <class L>
void collect(const L& layer, const std::string& path, Layers& to) {
  if constexpr (is_sequential<L>) {
    detail::for_each_layer(layer.layers(), [&](const auto& inside, std::size_t i) {
      collect(inside, under(path, std::to_string(i)), to);
    });
  } else if constexpr (is_residual<L>) {
    auto inside = std::make_shared<Layers>();
    collect(layer.layer, under(path, "layer"), *inside);
    to.push_back({path, ResidualLayer{std::move(inside)}});
  } else if constexpr (std::same_as<L, Elementwise>) {
    to.push_back(of_function(path, layer));
  } else if constexpr (requires { Layer{path, layer}; }) {
    to.push_back({path, layer});
  } else {
    to.push_back({path, unsupported_layer(std::string(detail::type_name<L>()))});
  }
}
template <class Model>
Layers layers_of(const Model& model) {
  Layers out;
  collect(model, "", out);
  return out;
}

std::string kind_of(const Layer& layer);  ///< Returns the name of the layer's type: "Dense".
/// Calls `use(path, array)` for each array, including arrays inside residual connections.
void for_each_array_of(Layers& layers, const std::function<void(const std::string&, ModelArray&)>& use);
/// Identifies the contents of an array: dtype, shape, and the SHA-256 of its elements.
struct ArrayDigest {
  std::string dtype;
  Shape shape;
  std::string sha256;
};
std::map<std::string, ArrayDigest> digests_of(const Layers& layers);

/// Formats the layers as JSON: kinds, paths, sizes and settings, without arrays.
std::string text_of(const Layers& layers);
/// Loads layers from a safetensors file, with arrays on `device`. The file may have been written by save_model, by a
/// trainer, or by another library that uses the same names. `text` lists the layers: either the result of describe(),
/// or kinds separated by commas ("dense,relu,dense"). If it is empty, the description in the file is used. Arrays are
/// checked as in load_model. Throws ArgumentError if the file contains arrays that are not used. Throws FormatError if
/// arrays do not match the manifest, are missing or have a different rank, or if the description cannot be parsed.
Layers load_layers(const std::string& path, std::string text, Device device);
Array run_layers(const Layers& layers, const Array& x);

}  // namespace verification

/// Returns a JSON description of a model's layers. If it is saved with the model, save_model(model, file,
/// {{"tessera.layers", describe(model)}}), `tessera verify-model` can load the file.
template <class Model>
std::string describe(const Model& model) {
  return verification::text_of(verification::layers_of(model));
}

}  // namespace tessera
