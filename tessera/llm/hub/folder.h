// SPDX-License-Identifier: Apache-2.0
// Opens a model folder as downloaded from the Hugging Face hub: config.json, safetensors files, tokenizer.json, and
// optionally generation_config.json, tokenizer_config.json and chat_template.jinja. Internal.
#pragma once

#include <optional>
#include <string>

#include "tessera/llm/gguf.h"

namespace tessera::hub {

/// Makes GgufFiles of folders.
class Folder {
 public:
  /// Returns a file with the metadata and tensors that llama.cpp's converter would write for this folder. Tensors are
  /// read and converted on demand. Matrices whose rows consist of whole blocks become `weights`. Throws FormatError
  /// with the file and the key if the model is not supported or a file is missing or invalid.
  static GgufFile open(const std::string& path, std::optional<GgmlType> weights);
};

}  // namespace tessera::hub
