// SPDX-License-Identifier: Apache-2.0
// Small products done again: of two matrices of the same shapes, strides and dtypes as before on this thread, which
// then need no choice of a kernel and no check of what is the same. Inside ops/ only.
#pragma once

#include "tessera/array/array.h"
#include "tessera/device/launch_arguments.h"

namespace tessera {
class Kernel;
class QueueCore;
namespace detail {
class Source;
}
}  // namespace tessera

namespace tessera::ops {

/// The product of two arrays, if this thread knows how it went before and nobody looks on: no history, no observer, no
/// recording, both operands computed. Both outlive it.
class RepeatedProduct {
 public:
  RepeatedProduct(const Array& left, const Array& right);
  explicit operator bool() const { return queue_ != nullptr; }
  Array operator()() const;  ///< if there is one

  /// That the kernel has just computed `out` from these, by this launch, in their dtypes' own way. Kept where nothing
  /// else was needed for it, and where it is small enough for that to count.
  static void keep(const Array& left, const Array& right, const Array& out, const Kernel& kernel, std::uint64_t blocks,
                   const LaunchArguments& arguments);

 private:
  struct Known;
  const Array &left_, &right_;
  const Known* known_ = nullptr;
  QueueCore* queue_ = nullptr;
};

}  // namespace tessera::ops
