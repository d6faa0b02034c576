// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/callback.h"

#include <functional>

namespace tessera::detail {

void call_empty_callback() { throw std::bad_function_call(); }

}  // namespace tessera::detail
