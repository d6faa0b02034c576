// SPDX-License-Identifier: Apache-2.0
// Where numbers cease to be finite. Internal.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tessera/nn/parameter.h"

namespace tessera::detail {

struct NotFiniteCause {
  std::string text;
  bool in_batch = false;  ///< the batch is at fault, whatever the model computes
};
/// Computes a loss, and if that is finite its gradient, with a look at each operation's result, and finds the first
/// that is not finite, or the input of a loss that is not valid.
NotFiniteCause find_not_finite(
    const Parts& parts, std::span<const Array> batch, const std::function<Array()>& loss,
    const std::function<void(const std::function<void(const Parts& gradient)>&)>& with_gradient);

/// For operations whose result is NaN for input that is not valid, such as a target that is no class: in the loss that
/// find_not_finite computes, notes the text that `why` gives, unless it is empty. Elsewhere `why` is not called.
void note_invalid_input(const std::function<std::string()>& why);

}  // namespace tessera::detail
