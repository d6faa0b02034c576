// SPDX-License-Identifier: Apache-2.0
// The elements of a list of layers (layer_list.h), and its descriptions in files. Internal.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/nn/verify/layer_list.h"

namespace tessera::verification {

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

std::string kind_of(const Layer& layer);  ///< Returns the name of the layer's type: "Dense".
/// Calls `use(path, array)` for each array, including arrays inside residual connections.
void for_each_array_of(Layers& layers, const Callback<void(const std::string&, ModelArray&)>& use);
/// The digest of each array, by path.
std::map<std::string, ArrayDigest> digests_of(const Layers& layers);

/// Loads layers from a safetensors file, with arrays on `device`. The file may have been written by save_model, by a
/// trainer, or by another library that uses the same names. `text` lists the layers: either the result of describe(),
/// or kinds separated by commas ("dense,relu,dense"). If it is empty, the description in the file is used. Arrays are
/// checked as in load_model. Throws ArgumentError if the file contains arrays that are not used. Throws FormatError if
/// arrays do not match the manifest, are missing or have a different rank, or if the description cannot be parsed.
Layers load_layers(const std::string& path, std::string text, Device device);
Array run_layers(const Layers& layers, const Array& x);

}  // namespace tessera::verification
