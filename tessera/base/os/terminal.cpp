// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/terminal.h"

#include <unistd.h>

namespace tessera::os {

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

}  // namespace tessera::os
