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

std::string kind_of(const Layer& layer);  ///< "Dense"
/// Calls `use(path, array)` for each array, including those within residuals.
void for_each_array_of(Layers& layers, const Callback<void(const std::string&, ModelArray&)>& use);
/// The digest of each array, by path.
std::map<std::string, ArrayDigest> digests_of(const Layers& layers);

/// Loads layers from a safetensors file written by save_model, by a trainer, or by another library with the same names,
/// with arrays on `device`. `text`, or if empty the file's description (describe), lists the layers: such a
/// description, or kinds separated by commas ("dense,relu,dense"). Checked as by load_model: throws ArgumentError if
/// arrays are left over, FormatError if arrays do not match the file's manifest, are missing or have another rank, or
/// if the description cannot be parsed.
Layers load_layers(const std::string& path, std::string text, Device device);
Array run_layers(const Layers& layers, const Array& x);

}  // namespace tessera::verification
