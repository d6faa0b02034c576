// SPDX-License-Identifier: Apache-2.0
// Reads kernels in the text form of to_text.
#pragma once

#include <string_view>

#include "tessera/ir/node.h"

namespace tessera::ir {

/// Parses a kernel in the form that to_text() prints, with the same rules as traced kernels: operations are checked,
/// constants are folded, and the result is canonical and verified. Names of values (`%NAME`), variables, shared memory
/// and counters are free. Lines that begin with `#` are comments. `parse(to_text(f))` has the hash of `f`, unless `f`
/// was lowered.
///
/// Throws KernelError with the line if the text is not valid, or if the kernel violates a rule of the language.
Function parse(std::string_view text);

}  // namespace tessera::ir
