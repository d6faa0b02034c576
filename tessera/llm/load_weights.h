// SPDX-License-Identifier: Apache-2.0
// Internal. Loads the tensors of a model file to devices.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/llama.h"
#include "tessera/ops/weight.h"

namespace tessera {

/// Loads tensors one by one and checks their shapes against the model's configuration. Tensors are read and packed in
/// pieces, so that the file and the packed weights are never in memory at the same time.
class TensorLoader {
 public:
  /// Reserves memory for all tensors. `layers` contains the device of each layer, and a tensor called "blk.N. ..."
  /// belongs to layer N. `file` and `progress` must outlive the loader.
  TensorLoader(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress);

  /// Sets the device of the tensors that are loaded next.
  void to(Device device) { device_ = device; }
  /// Loads a matrix. Throws FormatError if the tensor is missing or has the wrong shape or an unsupported type.
  Weight matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
  /// Loads several matrices, given by name and number of rows. Consecutive matrices of the same type become one weight,
  /// so that they are multiplied by one kernel.
  std::vector<Weight> matrices(std::span<const std::pair<std::string, std::int64_t>> parts, std::int64_t columns);
  /// Loads the matrices of several experts as one weight with the rows of all. Throws FormatError as `matrix` does, and
  /// if the rows of an expert are not whole groups of rows.
  Weight experts(const std::string& name, std::int64_t count, std::int64_t rows, std::int64_t columns);
  /// Loads a vector of type f32, f16 or bf16 and converts it to f32. Throws the same errors as `matrix`.
  Array vector(const std::string& name, std::int64_t size) { return array(name, {size}); }
  /// Loads such a vector for each of several experts, as f32 (count, size).
  Array vectors(const std::string& name, std::int64_t count, std::int64_t size);
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  std::optional<Array> optional_vector(const std::string& name, std::int64_t size);
  /// Loads several vectors, given by name and size, and concatenates them. Missing ones are zeros. Returns std::nullopt
  /// if all are missing.
  std::optional<Array> optional_vectors(std::span<const std::pair<std::string, std::int64_t>> parts);

 private:
  [[noreturn]] void wrong(const GgufTensor& tensor, const std::string& what, const std::string& remedy) const;
  const GgufTensor& checked(const std::string& name, const Shape& dims);
  Array array(const std::string& name, const Shape& dims);
  Weight pack(std::span<const GgufTensor* const> tensors, std::int64_t rows, std::int64_t columns);
  WeightMemory& memory_of(Device device, const std::string& label);

  const GgufFile& file_;
  const LoadProgress& progress_;
  Device device_;
  std::vector<WeightMemory> memory_;  ///< one element for each device
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace tessera
