// SPDX-License-Identifier: Apache-2.0
// Saves the arrays of a nested structure to a safetensors file and loads them again. An array's name in the file is its
// path in the traversal (array/traversal.h): "layers.0.weight".
#pragma once

#include "tessera/array/safetensors.h"
#include "tessera/array/traversal.h"
#include "tessera/base/owner.h"

namespace tessera {

/// Options of load_arrays.
struct LoadArraysOptions {
  bool partial = false;  ///< Load only the arrays that match instead of failing.
  /// Convert floating-point arrays whose dtype in the file differs, for example f16 or bf16 to f32. Narrowing
  /// conversions round to nearest.
  bool convert = false;
};

/// The result of load_arrays, by array names.
struct LoadReport {
  std::vector<std::string> loaded;      ///< Paths that were loaded.
  std::vector<std::string> missing;     ///< In the structure, but not in the file.
  std::vector<std::string> unexpected;  ///< In the file, but not in the structure.
  std::vector<std::string> mismatched;  ///< One sentence each: "weight is (2, 3) F32 in the file and (3, 2) F32 here".
  std::vector<std::string> converted;   ///< The loaded arrays whose dtype was converted.
};
std::string to_string(const LoadReport& report);  ///< A summary: "2 loaded; missing: 0.bias; weight is (2, 3) ...".

namespace detail {

class ArrayLoader {
 public:
  /// Uses only arrays of the file whose names begin with `prefix`; the prefix is removed. `names` maps a path to its
  /// name in the file if the two differ.
  explicit ArrayLoader(const SafetensorsFile& file, std::string_view prefix = {},
                       std::map<std::string, std::string> names = {});
  ~ArrayLoader();
  ArrayLoader(const ArrayLoader&) = delete;
  ArrayLoader& operator=(const ArrayLoader&) = delete;
  /// Finds the array in the file. If `optional` is true and the file lacks it, the array is left unchanged.
  void look(const Array& a, const Path& at, bool optional = false);
  /// Stops reporting arrays of the file whose names begin with this prefix as unexpected.
  void ignore_prefix(std::string_view names);
  void refuse(std::string mismatch);
  LoadReport load(LoadArraysOptions options);

 private:
  struct State;
  detail::Owner<State> state_;
};

/// Collects the arrays of a structure, and writes them to a file.
class ArraySaver {
 public:
  ArraySaver();
  ~ArraySaver();
  ArraySaver(const ArraySaver&) = delete;
  ArraySaver& operator=(const ArraySaver&) = delete;
  void add(const Array& a, const Path& at);
  void save(const std::string& path, const std::map<std::string, std::string>& metadata) const;

 private:
  std::vector<std::pair<std::string, Array>> all_;
};

}  // namespace detail

/// Writes every array that for_each_array visits to a safetensors file, with optional metadata. Throws what
/// save_safetensors throws.
template <class T>
void save_arrays(const T& structure, const std::string& path, const std::map<std::string, std::string>& metadata = {}) {
  detail::ArraySaver all;
  for_each_array(structure, [&](const Array& a, const Path& at) { all.add(a, at); });
  all.save(path, metadata);
}

/// Loads a file into the arrays of a structure. Arrays are written in place on their devices, so copies, views and
/// packed memory see the new values.
///
/// A structure with a static `optional_array(name)` declares which arrays a file may lack; these are left unchanged.
///
/// Throws ArgumentError with a list of all arrays that are missing, unexpected, or of a different shape or dtype, and
/// the errors of SafetensorsFile. In all these cases, no array has been written.
template <class T>
LoadReport load_arrays(T& structure, const SafetensorsFile& file, LoadArraysOptions options = {}) {
  if constexpr (requires { structure.prepare_to_load(std::vector<std::string>()); }) {
    std::vector<std::string> names;
    for (const SafetensorsTensor& tensor : file.tensors()) names.push_back(tensor.name);
    structure.prepare_to_load(names);
  }
  detail::ArrayLoader loader(file);
  for_each_array(structure, [&](Array& a, const Path& at) {
    bool optional = false;
    if constexpr (requires { T::optional_array(at.text()); }) optional = T::optional_array(at.text());
    loader.look(a, at, optional);
  });
  return loader.load(options);
}
template <class T>
LoadReport load_arrays(T& structure, const std::string& path, LoadArraysOptions options = {}) {
  return load_arrays(structure, SafetensorsFile::open(path), options);
}

}  // namespace tessera
