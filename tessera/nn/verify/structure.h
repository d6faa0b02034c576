// SPDX-License-Identifier: Apache-2.0
// The layers of a model as a list, whatever its type: what proofs go through, what certificates describe, and what a
// file's description is made into. Internal but for describe.
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
/// x + what these give for x.
struct ResidualLayer {
  std::shared_ptr<Layers> inside;
};
/// One that nothing is known of.
struct UnsupportedLayer {
  std::string kind, why;
};
struct Layer {
  std::string path;  ///< "1.layer.0"; of a model that is one layer ""
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
/// One of a type that is not known here.
UnsupportedLayer unsupported_layer(std::string type);
/// relu, silu, gelu, tanh or sigmoid as their layers.
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
/// `use(path, array)` for each array, also those within residuals.
void for_each_array_of(Layers& layers, const std::function<void(const std::string&, ModelArray&)>& use);
/// What each array is: "f32 (16, 4)" and the SHA-256 of its elements, by path.
struct ArrayDigest {
  std::string dtype;
  Shape shape;
  std::string sha256;
};
std::map<std::string, ArrayDigest> digests_of(const Layers& layers);

/// In JSON: kinds, paths, sizes and settings, without arrays.
std::string text_of(const Layers& layers);
/// The layers of a safetensors file, with its arrays on `device`: of what save_model writes, of a trainer's, or of
/// another library's with the same names. Which layers they are says `text`, else the file (describe): such a
/// description, or kinds with commas between ("dense,relu,dense"). All is checked as load_model does: ArgumentError if
/// arrays are left over, FormatError if they are not those of the file's manifest, this is no description, or an array
/// is missing or of another rank.
Layers load_layers(const std::string& path, std::string text, Device device);
Array run_layers(const Layers& layers, const Array& x);

}  // namespace verification

/// A description of a model's layers in JSON, for save_model(model, file, {{"tessera.layers", describe(model)}}), so
/// that `tessera verify-model` knows what the file's arrays are.
template <class Model>
std::string describe(const Model& model) {
  return verification::text_of(verification::layers_of(model));
}

}  // namespace tessera
