// SPDX-License-Identifier: Apache-2.0
// The backward pass from a result to the arguments. The public interface is in grad.h.
#pragma once

#include <span>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"

namespace tessera::detail {

/// Called during the backward pass with the number of an argument, in the order of Leaves::add, and its complete
/// adjoint. Returns the array that takes the adjoint's place, for example a copy in another buffer.
using AdjointReady = Callback<Array(std::size_t argument, Array adjoint)>;

/// The arguments of a differentiation. Each gets its own step, at which the backward pass ends.
class Leaves {
 public:
  Leaves();
  /// Returns the array as a leaf: its step is the identity applied to its previous history. Its adjoint has the dtype
  /// `adjoint`.
  Array add(const Array& argument, DType adjoint);
  std::size_t size() const { return steps_.size(); }

  /// Returns the adjoints of the arguments in the order of add(), given the adjoint of `result`. If the result does not
  /// depend on an argument, its adjoint is zero. If `last` is true, the history is not used again, and each step is
  /// freed as soon as it has been processed. `ready` is called for each argument as soon as no later part of the
  /// backward pass adds to its adjoint; may be null.
  std::vector<Array> adjoints(const Array& result, Array adjoint, bool last, const AdjointReady& ready = nullptr) const;
  /// Returns `a` without its history, unless the history belongs to an outer differentiation.
  Array detach(Array a) const;

 private:
  struct Leaf {
    std::shared_ptr<Step> step;
    Shape shape;
    DType dtype;
    Device device;
  };
  std::uint64_t number_;
  std::vector<Leaf> steps_;
};

/// Returns 1, the initial adjoint of a function's value. Throws ShapeError if the value does not have exactly one
/// element, and DtypeError if it is not a float.
Array unit_adjoint(const char* operation, const Array& value);
/// Throws ShapeError, DtypeError or DeviceError if `adjoint` does not match `value`.
void check_adjoint(const Array& value, const Array& adjoint);

}  // namespace tessera::detail
