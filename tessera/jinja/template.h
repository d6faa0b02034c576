// SPDX-License-Identifier: Apache-2.0
// Chat templates: Jinja as far as the templates of language models use it, rendered as `transformers` renders them
// (trim_blocks, lstrip_blocks, its `tojson`, raise_exception, strftime_now, break and continue, generation).
//
// There are: if, for (with `if`, else, recursive), set, macro, call, filter, with, raw, comments, white-space control;
// all of Jinja's filters and tests but `pprint`, `random`, `wordwrap`, `xmlattr`, `filesizeformat` and `striptags`;
// Python's methods of texts, lists and dicts that change nothing. What is not there (include, import, extends, block,
// do, ...) is an error that names it.
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

/// A template called raise_exception; `what()` is what it says of its arguments.
class Refused : public ArgumentError {
  using ArgumentError::ArgumentError;
};

/// Whose words these are: of the program or the model's file, where special tokens count, or of a user, where they are
/// plain text (Text::given).
enum class Origin { ours, data };

/// JSON as a value; throws FormatError for what is no JSON or nests more than 64 deep.
Value value_of_json(std::string_view json, Origin origin);

struct RenderOptions {
  std::optional<std::tm> now = {};  ///< what strftime_now shows; the local time without
  /// Limits on what a template may do; what the arguments hold is added to them.
  std::size_t steps = 400'000;
  std::size_t bytes = std::size_t{32} << 20;  ///< of text, made on the way or as output
};

class Template {
 public:
  /// Throws FormatError with the line.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// The text for these names (`messages`, `tools`, `add_generation_prompt`, `bos_token`, ...). Throws FormatError for
  /// what the template does wrong, with the line, and where it takes more steps or text than allowed; Refused where it
  /// calls raise_exception. May be called from several threads.
  Text render(const Dict& names, const RenderOptions& options = {}) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace tessera::jinja
