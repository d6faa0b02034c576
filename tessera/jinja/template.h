// SPDX-License-Identifier: Apache-2.0
// Chat templates: the subset of Jinja that language models' templates use, rendered as in `transformers` (trim_blocks,
// lstrip_blocks, its `tojson`, raise_exception, strftime_now, break and continue, generation).
//
// Supported: if, for (with `if`, else, recursive), set, macro, call, filter, with, raw, comments and white-space
// control; all of Jinja's filters and tests except `pprint`, `random`, `wordwrap`, `xmlattr`, `filesizeformat` and
// `striptags`; Python's methods of strings, lists and dicts that do not modify them. Unsupported constructs (include,
// import, extends, block, do, ...) throw an error that names them.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/jinja/value.h"

namespace tessera::jinja {

/// Thrown when a template calls raise_exception; `what()` is its message.
class Refused : public ArgumentError {
  using ArgumentError::ArgumentError;
};

/// The origin of text: from the program or the model's file, where special tokens are recognised, or from a user, where
/// they are plain text (Text::given).
enum class Origin { ours, data };

/// Converts JSON to a value. Throws FormatError if it is invalid or nested more than 64 levels deep.
Value value_of_json(std::string_view json, Origin origin);

struct RenderOptions {
  std::optional<std::tm> now = {};  ///< the time for strftime_now; the local time if empty
  /// Limits of a rendering, increased by the size of the arguments.
  std::size_t steps = 400'000;
  std::size_t bytes = std::size_t{32} << 20;  ///< of generated text, including intermediate results
};

class Template {
 public:
  /// Parses a template. Throws FormatError with the line.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// Renders the template with these variables (`messages`, `tools`, `add_generation_prompt`, `bos_token`, ...).
  /// Thread-safe. Throws FormatError with the line if the template fails or exceeds the limits; Refused if it calls
  /// raise_exception.
  Text render(const Dict& names, const RenderOptions& options = {}) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace tessera::jinja
