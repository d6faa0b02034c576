// SPDX-License-Identifier: Apache-2.0
// The layers of a model as a list, independent of its type: for proofs, certificates and descriptions in files.
// Internal but for describe.
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
/// x + inside(x).
struct ResidualLayer {
  std::shared_ptr<Layers> inside;
};
/// A layer without supported bounds.
struct UnsupportedLayer {
  std::string kind, why;
};
struct Layer {
  std::string path;  ///< "1.layer.0"; "" for a model that is one layer
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
/// A layer of an unsupported type.
UnsupportedLayer unsupported_layer(std::string type);
/// Converts relu, silu, gelu, tanh or sigmoid to their layers.
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

std::string kind_of(const Layer& layer);  ///< "Dense"
/// Calls `use(path, array)` for each array, including those within residuals.
void for_each_array_of(Layers& layers, const std::function<void(const std::string&, ModelArray&)>& use);
/// "f32 (16, 4)" and the SHA-256 of the elements of each array, by path.
struct ArrayDigest {
  std::string dtype;
  Shape shape;
  std::string sha256;
};
std::map<std::string, ArrayDigest> digests_of(const Layers& layers);

/// As JSON: kinds, paths, sizes and settings, without arrays.
std::string text_of(const Layers& layers);
/// Loads layers from a safetensors file written by save_model, by a trainer, or by another library with the same names,
/// with arrays on `device`. `text`, or if empty the file's description (describe), lists the layers: such a
/// description, or kinds separated by commas ("dense,relu,dense"). Checked as by load_model: throws ArgumentError if
/// arrays are left over, FormatError if arrays do not match the file's manifest, are missing or have another rank, or
/// if the description cannot be parsed.
Layers load_layers(const std::string& path, std::string text, Device device);
Array run_layers(const Layers& layers, const Array& x);

}  // namespace verification

/// A JSON description of a model's layers, for save_model(model, file, {{"tessera.layers", describe(model)}}), with
/// which `tessera verify-model` can load the file.
template <class Model>
std::string describe(const Model& model) {
  return verification::text_of(verification::layers_of(model));
}

}  // namespace tessera
