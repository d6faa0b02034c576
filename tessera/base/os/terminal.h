// SPDX-License-Identifier: Apache-2.0
// Detection of terminals. Operating system layer.
#pragma once

#include <cstdio>

namespace tessera::os {

bool is_terminal(std::FILE* stream);

}  // namespace tessera::os
