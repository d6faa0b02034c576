// SPDX-License-Identifier: Apache-2.0
// Saves models as safetensors files, under the paths of their arrays: "layers.1.weight". Files contain a manifest:
// versions, and the dtype, shape and hash of each array.
#pragma once

#include "tessera/array/saved_arrays.h"
#include "tessera/nn/parameter.h"

namespace tessera {

/// Maps names of arrays in a file to paths in a model. The first pair whose first pattern matches the file's name is
/// used; `*` in both stands for the same characters. An empty path skips the array.
using NameMap = std::vector<std::pair<std::string, std::string>>;
/// For files of PyTorch's state_dict: `*.running_var` becomes `*.running_variance`, and `*.num_batches_tracked` is
/// skipped. Other names of our layers are PyTorch's; those of an nn.Sequential are those of a Sequential.
NameMap names_of_pytorch();

/// Options of load_model.
struct LoadModelOptions {
  bool partial = false;  ///< load the arrays that fit, and report the others, instead of loading nothing
  /// Convert floating-point arrays of another floating-point dtype, such as an f16 or bf16 checkpoint for an f32 model;
  /// narrowing rounds to nearest. The report lists them.
  bool convert = false;
  NameMap names = {};  ///< Maps the file's names to paths.
  /// Compare each array with its hash in the manifest, if there is one; reads the file a second time.
  bool check_hashes = true;
};

/// The manifest of a file.
struct ModelManifest {
  /// An array of the file.
  struct Entry {
    std::string dtype;   ///< "f32"
    Shape shape;         ///< Its extents.
    std::string sha256;  ///< of the elements in C order, little-endian
  };
  std::int64_t format = 0;              ///< The version of the manifest.
  std::string library;                  ///< the version that wrote the file
  std::map<std::string, Entry> arrays;  ///< By name.
};
/// The manifest of a file; empty if it has none. Throws FormatError if it cannot be parsed.
std::optional<ModelManifest> manifest_of(const SafetensorsFile& file);

namespace detail {
void save_parts(const ConstParts& parts, const std::string& path, const std::map<std::string, std::string>& metadata);
LoadReport load_parts(const Parts& parts, const std::string& path, const LoadModelOptions& options);
}  // namespace detail

/// Writes the parameters and state of a model, on any devices, with a manifest and the given metadata. The file is
/// replaced atomically: if the program is killed, the old file is intact. Throws the errors of save_safetensors.
template <class Model>
void save_model(const Model& model, const std::string& path, const std::map<std::string, std::string>& metadata = {}) {
  detail::save_parts(detail::parts_of(model), path, metadata);
}
/// Loads such a file, the model in a file of Trainer::save, or a safetensors file of another library, into a model that
/// was set up. Arrays are written in place, on their devices, so that copies of the model see them. Loads all arrays or
/// none: throws ArgumentError that lists everything that does not fit; with `.partial`, loads what fits and reports the
/// rest. Throws FormatError, with the names, if an array differs from the manifest because the file was changed or
/// damaged.
template <class Model>
LoadReport load_model(Model& model, const std::string& path, const LoadModelOptions& options = {}) {
  return detail::load_parts(detail::parts_of(model), path, options);
}

}  // namespace tessera
