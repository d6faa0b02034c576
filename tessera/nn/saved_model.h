// SPDX-License-Identifier: Apache-2.0
// Saves models as safetensors files. Each array is stored under its path: "layers.1.weight". Files contain a manifest
// with the versions, and the dtype, shape and hash of each array.
#pragma once

#include "tessera/array/saved_arrays.h"
#include "tessera/nn/parameter.h"

namespace tessera {

/// Maps array names in a file to paths in a model. Each pair consists of a pattern for names and one for paths. The
/// first pair whose name pattern matches is used. `*` stands for the same characters in both patterns. An empty path
/// skips the array.
using NameMap = std::vector<std::pair<std::string, std::string>>;
/// Returns the names for files of a PyTorch state_dict. `*.running_var` becomes `*.running_variance`, and
/// `*.num_batches_tracked` is skipped. All other array names of Tessera's layers, and the indices of a Sequential,
/// match PyTorch.
NameMap names_of_pytorch();

/// Options of load_model.
struct LoadModelOptions {
  bool partial = false;  ///< load the arrays that match and report the others; by default, nothing is loaded if an
                         ///< array does not match
  /// Convert floating-point arrays to the model's dtype, for example an f16 or bf16 checkpoint to an f32 model. Values
  /// are rounded to nearest. The report lists the converted arrays.
  bool convert = false;
  NameMap names = {};  ///< Maps names in the file to paths in the model.
  /// Compare each array with its hash in the manifest, if the file has a manifest. This reads the file a second time.
  bool check_hashes = true;
};

/// The manifest of a file with a model.
struct ModelManifest {
  /// Describes an array of the file.
  struct Entry {
    std::string dtype;   ///< name of the dtype, such as "f32"
    Shape shape;         ///< The array's shape.
    std::string sha256;  ///< hash of the elements in C order, little-endian
  };
  std::int64_t format = 0;              ///< Version of the manifest format.
  std::string library;                  ///< version of Tessera that wrote the file
  std::map<std::string, Entry> arrays;  ///< Entries by array name.
};
/// Returns the manifest of a file, or std::nullopt if it has none. Throws FormatError if the manifest cannot be parsed.
std::optional<ModelManifest> manifest_of(const SafetensorsFile& file);

namespace detail {
void save_parts(const ConstParts& parts, const std::string& path, const std::map<std::string, std::string>& metadata);
LoadReport load_parts(const Parts& parts, const std::string& path, const LoadModelOptions& options);
}  // namespace detail

/// Saves the parameters and state of a model with a manifest and the given metadata. The arrays may be on any devices.
/// The file is replaced atomically: if the program is killed, the old file is intact. Throws the errors of
/// save_safetensors.
template <class Model>
void save_model(const Model& model, const std::string& path, const std::map<std::string, std::string>& metadata = {}) {
  detail::save_parts(detail::parts_of(model), path, metadata);
}
/// Loads a file into a model that was set up. The file may have been written by save_model, by Trainer::save (only its
/// model is loaded), or by another library in the safetensors format. Arrays are written in place on their devices, so
/// copies of the model change, too. By default, loads all arrays or none. Throws ArgumentError with a list of all
/// arrays that do not match; with `.partial`, loads the matching arrays and reports the others. Throws FormatError with
/// the names of arrays that differ from the manifest because the file was changed or damaged.
template <class Model>
LoadReport load_model(Model& model, const std::string& path, const LoadModelOptions& options = {}) {
  return detail::load_parts(detail::parts_of(model), path, options);
}

}  // namespace tessera
