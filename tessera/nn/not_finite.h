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
  bool in_batch = false;  ///< the batch itself is invalid, regardless of the model
  bool found = true;      ///< false if this process computes only finite numbers
};
/// Computes the loss and checks the result of each operation. If the loss is finite, does the same for its gradient.
/// Returns the first operation with a non-finite result, or the invalid input of a loss.
NotFiniteCause find_not_finite(const Parts& parts, std::span<const Array> batch, const Callback<Array()>& loss,
                               const Callback<void(const Callback<void(const Parts& gradient)>&)>& with_gradient);

/// Called by operations that return NaN for invalid input, such as a target that is not a class. Within
/// find_not_finite, calls `why` and records the returned text unless it is empty. Otherwise does nothing.
void note_invalid_input(const Callback<std::string()>& why);

}  // namespace tessera::detail
