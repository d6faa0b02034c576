// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/stop_token.h"

#include <stop_token>

namespace tessera {

bool StopToken::stop_requested() const noexcept { return std::stop_token(*this).stop_requested(); }
bool StopToken::stop_possible() const noexcept { return std::stop_token(*this).stop_possible(); }

}  // namespace tessera
