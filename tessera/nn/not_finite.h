// SPDX-License-Identifier: Apache-2.0
// Finds the operation that first produces a non-finite number. Internal.
#pragma once

#include <span>
#include <string>

#include "tessera/base/callback.h"
#include "tessera/nn/parameter.h"

namespace tessera::detail {

struct NotFiniteCause {
  std::string text;
  bool in_batch = false;  ///< the batch is invalid, independent of the model
};
/// Computes a loss and, if it is finite, its gradient, checking each operation's result. Returns the first that is not
/// finite, or the invalid input of a loss.
NotFiniteCause find_not_finite(const Parts& parts, std::span<const Array> batch, const Callback<Array()>& loss,
                               const Callback<void(const Callback<void(const Parts& gradient)>&)>& with_gradient);

/// For operations whose result is NaN for invalid input, such as a target that is no class: within find_not_finite,
/// records the text that `why` returns, unless it is empty. Otherwise `why` is not called.
void note_invalid_input(const Callback<std::string()>& why);

}  // namespace tessera::detail
