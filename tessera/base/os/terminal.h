// SPDX-License-Identifier: Apache-2.0
// Whether somebody watches a stream. Part of the operating system's seam.
#pragma once

#include <cstdio>

namespace tessera::os {

bool is_terminal(std::FILE* stream);

}  // namespace tessera::os
