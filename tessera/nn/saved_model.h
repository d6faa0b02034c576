// SPDX-License-Identifier: Apache-2.0
// Models in safetensors files, under the paths of their arrays: "layers.1.weight".
#pragma once

#include "tessera/array/saved_arrays.h"
#include "tessera/nn/parameter.h"

namespace tessera {

namespace detail {
void save_parts(const ConstParts& parts, const std::string& path, const std::map<std::string, std::string>& metadata);
LoadReport load_parts(const Parts& parts, const std::string& path, const LoadArraysOptions& options);
}  // namespace detail

/// Writes the parameters and the state of a model. Errors of save_safetensors.
template <class Model>
void save_model(const Model& model, const std::string& path, const std::map<std::string, std::string>& metadata = {}) {
  detail::save_parts(detail::parts_of(model), path, metadata);
}
/// Reads such a file, or the model in one of Trainer::save, into a model that was set up: in place, so that copies of
/// the model see it. All or nothing, as load_arrays: ArgumentError lists everything that does not fit; with `.partial`
/// what fits is loaded, and the report says what did not.
template <class Model>
LoadReport load_model(Model& model, const std::string& path, const LoadArraysOptions& options = {}) {
  return detail::load_parts(detail::parts_of(model), path, options);
}

}  // namespace tessera
