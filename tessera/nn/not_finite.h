// SPDX-License-Identifier: Apache-2.0
// Where numbers cease to be finite. Internal.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tessera/nn/parameter.h"

namespace tessera::detail {

/// Computes a loss, and if that is finite its gradient, with a look at each operation's result, and says in words which
/// is the first that is not finite.
std::string find_not_finite(
    const Parts& parts, std::span<const Array> batch, const std::function<Array()>& loss,
    const std::function<void(const std::function<void(const Parts& gradient)>&)>& with_gradient);

}  // namespace tessera::detail
