// SPDX-License-Identifier: Apache-2.0
// Functions that filters and string methods share.
#pragma once

#include "tessera/base/unicode.h"
#include "tessera/jinja/interpreter.h"

namespace tessera::jinja {

FilterBody find_list_filter(std::string_view name);

/// Returns the text. Throws a Fault that names `who` if the value is not a text.
const Text& text_of(const Value& v, std::string_view who);
/// Removes the given characters from the ends. If `characters` is undefined, removes white space.
Text trimmed(const Text& t, const Value& characters, bool left, bool right);
/// Replaces at most `most` occurrences of `from` by `to`, or all if `most` is negative.
Text replaced(Interpreter& in, const Text& t, const Text& from, const Text& to, std::int64_t most);
Text capitalised(const Text& t);
Text centred(Interpreter& in, const Text& t, std::int64_t width, const std::string& fill);

}  // namespace tessera::jinja
