// SPDX-License-Identifier: Apache-2.0
// Reports what a model file contains and which of its features are not supported. Only the metadata is read, not the
// data of the tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/embedding_model.h"

namespace tessera {

/// A feature of a model that is not supported.
struct MissingPart {
  std::string kind;  ///< "architecture", "key", "tensor", "type", "tokenizer", "chat template", "file"
  std::string name;  ///< the name of the key, tensor, ...
  std::string why;
  bool stops = true;  ///< true: the model cannot be loaded; false: it runs without this feature
};

struct ModelReport {
  /// Tensors of one type.
  struct Type {
    GgmlType type;
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::string file, name;
  std::string architecture;  ///< the value in the file; empty if missing
  std::string models;        ///< models that use this architecture; empty if the architecture is unknown
  std::uint32_t version = 0;
  std::uint64_t parameters = 0, bytes = 0;  ///< totals of all tensors
  std::vector<Type> types;                  ///< sorted by bytes, largest first
  std::optional<LlamaConfig> config;        ///< of a language model; empty if the metadata is invalid
  std::optional<EncoderConfig> encoder;     ///< of an encoder; empty if the metadata is invalid
  std::optional<Pooling> pooling;           ///< of an embedding model
  std::string tokenizer;                    ///< type and pre-tokenizer; empty if the file has none
  std::uint64_t tokens = 0;
  bool has_chat_template = false;
  std::vector<MissingPart> missing;

  bool runs() const;
};

/// Inspects a model file. Unsupported features do not throw; they are listed in the report.
ModelReport inspect_model(const GgufFile& file);

}  // namespace tessera
