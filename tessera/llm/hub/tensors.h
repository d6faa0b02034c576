// SPDX-License-Identifier: Apache-2.0
// The tensors of a model folder in the form of GGUF tensors. Internal.
#pragma once

#include <optional>
#include <vector>

#include "tessera/llm/gguf_contents.h"
#include "tessera/llm/hub/rope.h"
#include "tessera/llm/hub/shards.h"

namespace tessera::hub {

/// Finds the tensors of a model in its files, and converts them while they are read: rows of queries and keys are
/// reordered so that elements that are rotated together are adjacent, 1 is added to Gemma's norms, vectors become f32,
/// the matrices of experts are concatenated, and matrices are converted to another type if requested.
class FolderTensors final : public TensorSource {
 public:
  /// Throws FormatError if a tensor is unknown, has an unsupported dtype or shape, or if an expert is missing. Matrices
  /// are converted to `weights` if their rows consist of whole blocks.
  FolderTensors(Shards shards, const Family& family, const ModelShape& shape, const ComputedTensors& computed,
                std::optional<GgmlType> weights);

  /// The descriptions of the tensors. Their order is the order of the indices of read() and origin().
  std::vector<GgufTensor> descriptions() const;
  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) const override;
  const std::string& origin(std::size_t index) const override { return tensors_[index].origin; }

 private:
  struct Converted {
    GgufTensor description;
    std::string origin;                       ///< the file and the first stored tensor
    std::vector<const StoredTensor*> pieces;  ///< each has the next `rows` rows
    std::uint64_t rows = 0, columns = 0;
    GgmlType stored = GgmlType::f32;  ///< the type of the pieces
    std::uint64_t head_size = 0;      ///< if not 0, the rows of each head are reordered
    bool plus_one = false;
    std::vector<float> values;  ///< computed values, if there are no pieces
  };
  Converted convert(const std::string& name, std::vector<const StoredTensor*> pieces, const Family& family,
                    const ModelShape& shape, std::optional<GgmlType> weights) const;
  static void describe(Converted& t, const std::string& name, std::vector<std::uint64_t> dims, GgmlType type);
  [[noreturn]] void bad(const StoredTensor& tensor, const std::string& wrong, const std::string& remedy = {}) const;
  void read_plain(const Converted& t, std::uint64_t offset, std::span<std::byte> to) const;
  std::vector<std::byte> row(const Converted& t, std::uint64_t index) const;

  Shards shards_;
  std::vector<Converted> tensors_;
};

}  // namespace tessera::hub
