// SPDX-License-Identifier: Apache-2.0
// The walk from a result back to arguments. What programs call is in grad.h.
#pragma once

#include <span>
#include <vector>

#include "tessera/array/array.h"

namespace tessera::detail {

/// The arguments of one differentiation: arrays with a step of their own each, which a walk leads to.
class Leaves {
 public:
  Leaves();
  /// The array as an argument: with a step that is the identity on its own history. Its adjoint is of dtype `adjoint`.
  Array add(const Array& argument, DType adjoint);
  std::size_t size() const { return steps_.size(); }

  /// The adjoints of the arguments in the order of add(), from that of `result`; an argument that the result does not
  /// depend on gets zeros. `last`: nobody walks through this again, so that each step is freed as the walk passes it.
  std::vector<Array> adjoints(const Array& result, Array adjoint, bool last) const;
  /// `a` without its history, unless that is part of an outer differentiation.
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

/// The adjoint of a function's value with which a gradient begins: 1. ShapeError if it is not one element, DtypeError
/// if it is no float.
Array unit_adjoint(const char* operation, const Array& value);
/// ShapeError, DtypeError, DeviceError if this is no adjoint of such a value.
void check_adjoint(const Array& value, const Array& adjoint);

}  // namespace tessera::detail
