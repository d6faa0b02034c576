// SPDX-License-Identifier: Apache-2.0
// The backward pass from a result to arguments. The public interface is in grad.h.
#pragma once

#include <span>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::detail {

/// The arguments of a differentiation: arrays with a step of their own each, at which the backward pass ends.
class Leaves {
 public:
  Leaves();
  /// Returns the array as a leaf: its step is the identity on its previous history. Its adjoint has dtype `adjoint`.
  Array add(const Array& argument, DType adjoint);
  std::size_t size() const { return steps_.size(); }

  /// The adjoints of the arguments in the order of add(), from the adjoint of `result`; zeros for an argument that the
  /// result does not depend on. `last`: the history is not used again, so that each step is freed as soon as it has
  /// been processed.
  std::vector<Array> adjoints(const Array& result, Array adjoint, bool last) const;
  /// `a` without its history, unless that belongs to an outer differentiation.
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

/// The initial adjoint of a function's value: 1. Throws ShapeError if the value is not one element, DtypeError if it is
/// not a float.
Array unit_adjoint(const char* operation, const Array& value);
/// Throws ShapeError, DtypeError or DeviceError if `adjoint` does not match `value`.
void check_adjoint(const Array& value, const Array& adjoint);

}  // namespace tessera::detail
