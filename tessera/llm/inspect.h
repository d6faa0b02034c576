// SPDX-License-Identifier: Apache-2.0
// What a model file is and what of it does not run here, from its metadata alone: no tensor's data is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/llama.h"

namespace tessera {

/// Something that keeps a model from running, or from running as its author meant.
struct MissingPart {
  std::string kind;  ///< "architecture", "key", "tensor", "type", "tokenizer", "chat template", "file"
  std::string name;  ///< which
  std::string why;
  bool stops = true;  ///< the model does not load; else it does, with less
};

struct ModelReport {
  /// Tensors of one type.
  struct Type {
    GgmlType type;
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::string file, name;
  std::string architecture;  ///< as the file says; empty if it does not
  std::string models;        ///< which these are, if it is known
  std::uint32_t version = 0;
  std::uint64_t parameters = 0, bytes = 0;  ///< of all tensors
  std::vector<Type> types;                  ///< those with most bytes first
  std::optional<LlamaConfig> config;        ///< if the metadata make one
  std::string tokenizer;                    ///< kind, and what it splits by; empty if the file has none
  std::uint64_t tokens = 0;
  bool has_chat_template = false;
  std::vector<MissingPart> missing;

  bool runs() const;
};

/// Never throws for what a model lacks: that is in the report.
ModelReport inspect_model(const GgufFile& file);

}  // namespace tessera
