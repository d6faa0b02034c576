// SPDX-License-Identifier: Apache-2.0
// The options that scale rotary position embeddings for long texts.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/llm/gguf.h"

namespace tessera::app {

struct RopeOptions {
  std::string type;              ///< empty: as in the file, or linear if there is a factor
  std::optional<double> factor;  ///< of --rope-scale
  std::int64_t original = 0;     ///< of --yarn-orig-ctx; 0: as in the file

  /// Declares the options on a command.
  void declare(CLI::App& sub);
  /// Applies the options to the metadata of the file. Throws ArgumentError if they do not belong together.
  void apply(GgufFile& file) const;
};

}  // namespace tessera::app
