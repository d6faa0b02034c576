// SPDX-License-Identifier: Apache-2.0
// Models in safetensors files, under the paths of their arrays: "layers.1.weight". What a file was written with stands
// in it as a manifest: versions, and of each array its dtype, shape and hash.
#pragma once

#include "tessera/array/saved_arrays.h"
#include "tessera/nn/parameter.h"

namespace tessera {

/// What arrays of a file are called in a model: the first pair whose first text matches the file's name says what it
/// is there, `*` in both standing for the same letters. Nothing in its place: the array is passed by.
using NameMap = std::vector<std::pair<std::string, std::string>>;
/// For files of PyTorch's state_dict: `*.running_var` is our `*.running_variance`, and `*.num_batches_tracked` is
/// passed by. Other layers of ours have PyTorch's names, an nn.Sequential that of a Sequential.
NameMap names_of_pytorch();

/// Options of load_model.
struct LoadModelOptions {
  bool partial = false;  ///< load what fits instead of nothing; the report says what did not
  /// Convert floating-point arrays that have another floating-point dtype in the file, such as a checkpoint of f16 or
  /// bf16 for a model of f32; those that are wider are rounded to nearest. The report lists them.
  bool convert = false;
  NameMap names = {};  ///< Translates the file's names into paths.
  /// Compare each array with its hash in the manifest, where there is one: reads the file once more.
  bool check_hashes = true;
};

/// What the manifest of a file says.
struct ModelManifest {
  /// An array of the file.
  struct Entry {
    std::string dtype;   ///< "f32"
    Shape shape;         ///< Its extents.
    std::string sha256;  ///< of its elements in C order, little-endian
  };
  std::int64_t format = 0;              ///< The version of the manifest.
  std::string library;                  ///< the version that wrote it
  std::map<std::string, Entry> arrays;  ///< By name.
};
/// That of a file; nothing if it has none. FormatError if it cannot be read.
std::optional<ModelManifest> manifest_of(const SafetensorsFile& file);

namespace detail {
void save_parts(const ConstParts& parts, const std::string& path, const std::map<std::string, std::string>& metadata);
LoadReport load_parts(const Parts& parts, const std::string& path, const LoadModelOptions& options);
}  // namespace detail

/// Writes the parameters and the state of a model, of whatever devices, with a manifest and the texts given. The file
/// takes an old one's place in one step: whatever ends the program meanwhile leaves that whole. Errors of
/// save_safetensors.
template <class Model>
void save_model(const Model& model, const std::string& path, const std::map<std::string, std::string>& metadata = {}) {
  detail::save_parts(detail::parts_of(model), path, metadata);
}
/// Reads such a file, the model in one of Trainer::save, or a safetensors file of another library, into a model that
/// was set up: in place, so that copies of the model see it, each array on the device it is on. All or nothing:
/// ArgumentError lists everything that does not fit; with `.partial` what fits is loaded, and the report says what did
/// not. FormatError, with the names, if an array is not what the manifest says: the file was changed or damaged.
template <class Model>
LoadReport load_model(Model& model, const std::string& path, const LoadModelOptions& options = {}) {
  return detail::load_parts(detail::parts_of(model), path, options);
}

}  // namespace tessera
