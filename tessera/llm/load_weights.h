// SPDX-License-Identifier: Apache-2.0
// A model's tensors, from its file to its devices.
// Internal.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/llm/gguf.h"
#include "tessera/ops/weight.h"

namespace tessera {

/// Called while weights are loaded: the tensor that is next, bytes done, bytes in all.
using LoadProgress = std::function<void(const std::string& tensor, std::uint64_t done, std::uint64_t total)>;

/// Takes tensors out of a file, one after the other, each checked against the shape that the model's configuration
/// demands. A tensor is read in pieces that are packed as they come: never is the file in memory beside the weights.
class TensorLoader {
 public:
  /// `layers`: the device of each layer, whose tensors are named "blk.N. ...", by which the memory for all is
  /// allocated. `file` and `progress` outlive the loader.
  TensorLoader(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress);

  /// Where what comes next goes to.
  void to(Device device) { device_ = device; }
  /// FormatError names the tensor that is missing, of another shape, or of a type that is not supported, and its file.
  Weight matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
  /// A vector of f32, f16 or bf16 as f32. Errors as for matrices.
  Array vector(const std::string& name, std::int64_t size);
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  std::optional<Array> optional_vector(const std::string& name, std::int64_t size);

 private:
  [[noreturn]] void wrong(const GgufTensor& tensor, const std::string& what, const std::string& remedy) const;
  const GgufTensor& checked(const std::string& name, const Shape& dims);
  WeightMemory& memory_of(Device device, const std::string& label);

  const GgufFile& file_;
  const LoadProgress& progress_;
  Device device_;
  std::vector<WeightMemory> memory_;  ///< of each device
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace tessera
