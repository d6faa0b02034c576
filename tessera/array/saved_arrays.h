// SPDX-License-Identifier: Apache-2.0
// The arrays of a nested structure in a safetensors file, under the paths that the walk (array/traversal.h) gives them:
// "layers.0.weight".
#pragma once

#include "tessera/array/safetensors.h"
#include "tessera/array/traversal.h"

namespace tessera {

/// Options of load_arrays.
struct LoadArraysOptions {
  bool partial = false;  ///< load what fits instead of nothing; the report says what did not
  /// Convert floating-point arrays that have another floating-point dtype in the file (f16 or bf16 into f32), rounding
  /// to nearest where that is narrower.
  bool convert = false;
};

/// What became of a load, by names.
struct LoadReport {
  std::vector<std::string> loaded;      ///< Paths that were loaded.
  std::vector<std::string> missing;     ///< in the structure, not in the file
  std::vector<std::string> unexpected;  ///< in the file, not in the structure
  std::vector<std::string> mismatched;  ///< "weight is (2, 3) F32 in the file and (3, 2) F32 here"
  std::vector<std::string> converted;   ///< of those that were loaded
};
std::string to_string(const LoadReport& report);  ///< "2 loaded; missing: 0.bias; weight is (2, 3) ..."

namespace detail {

class ArrayLoader {
 public:
  /// Of the file's arrays those whose names begin with `prefix`, as if that were not there. `names`: what paths are
  /// called in the file, where that is something else.
  explicit ArrayLoader(const SafetensorsFile& file, std::string_view prefix = {},
                       std::map<std::string, std::string> names = {})
      : file_(file), prefix_(prefix), file_names_(std::move(names)) {}
  /// `optional`: an array that the file lacks stays as it is.
  void look(const Array& a, const Path& at, bool optional = false);
  void ignore_prefix(std::string_view names);  ///< arrays of the file whose names begin so are not asked for
  void refuse(std::string mismatch) { report_.mismatched.push_back(std::move(mismatch)); }
  LoadReport load(LoadArraysOptions options);

 private:
  struct Target {
    const SafetensorsTensor* tensor;
    Array array;
    std::string name;
    std::string other_dtype = {};  ///< not empty: the mismatch, unless it is converted
  };
  const SafetensorsFile& file_;
  const std::string prefix_;
  const std::map<std::string, std::string> file_names_;
  std::vector<Target> targets_;
  std::set<std::string, std::less<>> names_;
  LoadReport report_;
};

}  // namespace detail

/// Writes every array of a structure, which is whatever for_each_array walks, into one file, with texts about it.
/// Errors of save_safetensors.
template <class T>
void save_arrays(const T& structure, const std::string& path, const std::map<std::string, std::string>& metadata = {}) {
  std::vector<std::pair<std::string, Array>> all;
  for_each_array(structure, [&](const Array& a, const Path& at) { all.emplace_back(at.text(), a); });
  save_safetensors(path, all, metadata);
}

/// Writes what the file holds into the arrays of a structure: in place, so that copies, views and packed memory see it,
/// each on the device it is on. All or nothing: ArgumentError lists every array that is missing, unexpected, or of
/// another shape or dtype, and then, as if the file cannot be read (errors of SafetensorsFile), nothing has been
/// written. A structure with a static `optional_array(name)` says which arrays a file may lack; they stay as they are.
template <class T>
LoadReport load_arrays(T& structure, const SafetensorsFile& file, LoadArraysOptions options = {}) {
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
