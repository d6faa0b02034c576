// SPDX-License-Identifier: Apache-2.0
// Shared by filters and methods of strings.
#pragma once

#include "tessera/base/unicode.h"
#include "tessera/jinja/interpreter.h"

namespace tessera::jinja {

FilterBody find_list_filter(std::string_view name);

/// Returns the text; throws a Fault that names `who` for any other value.
const Text& text_of(const Value& v, std::string_view who);
/// Strips the characters of `characters` (undefined: white space) from the ends.
Text trimmed(const Text& t, const Value& characters, bool left, bool right);
/// Replaces `from` by `to`, at most `most` times; negative: all.
Text replaced(Interpreter& in, const Text& t, const Text& from, const Text& to, std::int64_t most);
Text capitalised(const Text& t);
Text centred(Interpreter& in, const Text& t, std::int64_t width, const std::string& fill);

}  // namespace tessera::jinja
