// SPDX-License-Identifier: Apache-2.0
// What filters and methods of texts have in common.
#pragma once

#include "tessera/base/unicode.h"
#include "tessera/jinja/interpreter.h"

namespace tessera::jinja {

FilterBody find_list_filter(std::string_view name);

/// A text; a Fault that names `who` for anything else.
const Text& text_of(const Value& v, std::string_view who);
/// Without the characters of `characters` (undefined: white space) at its ends.
Text trimmed(const Text& t, const Value& characters, bool left, bool right);
/// `most` below 0: all.
Text replaced(Interpreter& in, const Text& t, const Text& from, const Text& to, std::int64_t most);
Text capitalised(const Text& t);
Text centred(Interpreter& in, const Text& t, std::int64_t width, const std::string& fill);

}  // namespace tessera::jinja
