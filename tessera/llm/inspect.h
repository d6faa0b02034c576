// SPDX-License-Identifier: Apache-2.0
// Reports what a model file contains and which of its features are not supported, from its metadata alone: tensor data
// is not read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/llama.h"

namespace tessera {

/// A feature that keeps a model from running, or from running as intended.
struct MissingPart {
  std::string kind;  ///< "architecture", "key", "tensor", "type", "tokenizer", "chat template", "file"
  std::string name;  ///< the name of the key, tensor, ...
  std::string why;
  bool stops = true;  ///< true: the model cannot be loaded; false: it loads without this feature
};

struct ModelReport {
  /// Tensors of one type.
  struct Type {
    GgmlType type;
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::string file, name;
  std::string architecture;  ///< the value in the file; empty if missing
  std::string models;        ///< the models of this architecture, if it is known
  std::uint32_t version = 0;
  std::uint64_t parameters = 0, bytes = 0;  ///< of all tensors
  std::vector<Type> types;                  ///< sorted by bytes, largest first
  std::optional<LlamaConfig> config;        ///< if the metadata are valid
  std::string tokenizer;                    ///< type and pre-tokenizer; empty if the file has none
  std::uint64_t tokens = 0;
  bool has_chat_template = false;
  std::vector<MissingPart> missing;

  bool runs() const;
};

/// Inspects a model file. Unsupported features are in the report; they do not throw.
ModelReport inspect_model(const GgufFile& file);

}  // namespace tessera
