// SPDX-License-Identifier: Apache-2.0
// Chat templates: the subset of Jinja that the templates of language models use. They are rendered as in
// `transformers`: trim_blocks and lstrip_blocks are set, `tojson` does not escape HTML, and templates can call
// raise_exception and strftime_now.
//
// Supported statements: if, for (with `if`, else and recursive), break, continue, set, macro, call, filter, with, raw
// and generation. Comments and white-space control are also supported. All filters and tests of Jinja are supported
// except `pprint`, `random`, `wordwrap`, `xmlattr`, `filesizeformat` and `striptags`. Python's methods of strings,
// lists and dicts are supported if they do not modify the object. Unsupported constructs (include, import, extends,
// block, do, ...) throw an error that names them.
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

/// Thrown when a template calls raise_exception. `what()` returns the template's message.
class Refused : public ArgumentError {
  using ArgumentError::ArgumentError;
};

/// Where a text comes from. Special tokens are recognised in text from the program or the model's file (`ours`). In
/// text from a user (`data`) they are plain text. See Text::given.
enum class Origin { ours, data };

/// Converts JSON to a value. Throws FormatError if the JSON is invalid or nested more than 64 levels deep.
Value value_of_json(std::string_view json, Origin origin);

struct RenderOptions {
  std::optional<std::tm> now = {};  ///< the time for strftime_now; if empty, the local time is used
  /// Limits for one call of render(). They are raised in proportion to the size of the variables.
  std::size_t steps = 400'000;
  std::size_t bytes = std::size_t{32} << 20;  ///< bytes of generated text, including intermediate results
};

class Template {
 public:
  /// Parses a template. Throws FormatError with the line if it is invalid.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// Renders the template with these variables (`messages`, `tools`, `add_generation_prompt`, `bos_token`, ...). Throws
  /// FormatError with the line if the template fails or exceeds the limits. Throws Refused if it calls raise_exception.
  /// Thread-safe.
  Text render(const Dict& names, const RenderOptions& options = {}) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace tessera::jinja
