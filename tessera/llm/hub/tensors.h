// SPDX-License-Identifier: Apache-2.0
// The tensors of a model folder in the form of GGUF tensors. Internal.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/gguf_contents.h"
#include "tessera/llm/hub/rope.h"
#include "tessera/llm/hub/shards.h"
#include "tessera/llm/hub/tensor_names.h"

namespace tessera::hub {

/// Finds the tensors of a model in its files, and converts them while they are read: rows of queries and keys are
/// reordered so that elements that are rotated together are adjacent, 1 is added to Gemma's norms, vectors become f32,
/// the matrices of experts are concatenated, matrices that are stored as one are divided, and matrices are converted to
/// another type if requested. Matrices in MXFP4 keep their type.
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
  /// A stored tensor that contains rows of a GGUF tensor.
  struct Source {
    TensorName name;
    const StoredTensor* tensor;
  };
  /// The next `rows` rows of a tensor.
  struct Piece {
    const StoredTensor* tensor;
    std::uint64_t offset;  ///< the first of these rows: a byte of the tensor
  };
  struct Converted {
    GgufTensor description;
    std::string origin;  ///< the file and the first stored tensor
    std::vector<Piece> pieces;
    std::uint64_t rows = 0, columns = 0;
    std::uint64_t row_stride = 0;                 ///< in bytes
    std::uint64_t column_stride = 0;              ///< in bytes; 0: the elements of a row follow each other
    GgmlType stored = GgmlType::f32;              ///< the type of the pieces
    std::uint64_t head_size = 0;                  ///< if not 0, the rows of each head are reordered
    const StoredTensor* factors = nullptr;        ///< MXFP4: the factors of the blocks
    bool plus_one = false, negative_exp = false;  ///< each value v becomes v + 1, or -exp(v)
    /// If `key_heads` is not 0, rows or columns from `begin` on are those of heads. In the folder, the heads of a key
    /// head follow each other; in GGUF files, their key heads are 0, 1, 2, ..., 0, 1, 2, ...
    struct Regroup {
      std::uint64_t begin = 0, key_heads = 0, heads = 0, size = 0;
      std::uint64_t source(std::uint64_t i) const;
    } rows_of_heads, columns_of_heads;
    /// If not empty, the rows are those of the first part of each key head, then those of the second part, and so on.
    /// In the folder, the parts of a key head follow each other.
    struct HeadPart {
      std::uint64_t size, offset;  ///< rows of a head
    };
    std::vector<HeadPart> head_parts;
    std::uint64_t head_stride = 0, key_heads = 0;  ///< rows of the parts of a head
    std::vector<float> values;                     ///< computed values, if there are no pieces

    bool is_plain() const;
    std::uint64_t source_row(std::uint64_t row) const;
  };
  using Sources = std::map<std::string, std::vector<Source>>;
  Sources find_sources(const Family& family, const ModelShape& shape) const;
  Converted convert(const std::string& name, const std::vector<Source>& sources, const Family& family,
                    const ModelShape& shape, std::optional<GgmlType> weights) const;
  Shape shape_of(Converted& t, const StoredTensor& first) const;
  static void set_heads(Converted& t, std::string_view part, const ModelShape& shape);
  void set_head_parts(Converted& t, const Source& first, std::uint64_t rows, const ModelShape& shape) const;
  void set_rows(Converted& t, const Source& first, std::uint64_t rows, const ModelShape& shape) const;
  bool is_equal(const StoredTensor& a, const StoredTensor& b) const;
  static void describe(Converted& t, const std::string& name, std::vector<std::uint64_t> dims, GgmlType type);
  [[noreturn]] void bad(const StoredTensor& tensor, const std::string& wrong, const std::string& remedy = {}) const;
  void read_plain(const Converted& t, std::uint64_t offset, std::span<std::byte> to) const;
  std::vector<std::byte> stored_rows(const Converted& t, const Piece& piece, std::uint64_t begin,
                                     std::uint64_t count) const;
  std::vector<std::byte> mxfp4_rows(const Converted& t, const Piece& piece, std::uint64_t begin,
                                    std::uint64_t count) const;
  std::vector<std::byte> rows(const Converted& t, const Piece& piece, std::uint64_t begin, std::uint64_t count) const;

  Shards shards_;
  std::vector<Converted> tensors_;
};

}  // namespace tessera::hub
