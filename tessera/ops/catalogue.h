// SPDX-License-Identifier: Apache-2.0
// All kernels of ops/ in sizes that cover their code paths, for `tessera verify`, the test that compiles every kernel,
// and the race tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/ir/node.h"

namespace tessera {

/// One variant of a kernel of ops/.
struct CatalogueKernel {
  std::string name;  ///< unique: "linear_q8_0_vector"
  ir::Function function;
};
/// All kernels, specialised as this device would use them.
std::vector<CatalogueKernel> kernel_catalogue(Device device);

/// An operation with a check against plain double-precision C++.
struct CatalogueCheck {
  std::string operation, shape;  ///< "softmax", "(65537, 3)"
  /// Runs the check on the device with data from the seed. Returns the largest error relative to the tolerance (1 is
  /// the limit). An f64 check returns 0 on a device without f64 if the operation is rejected.
  std::function<double(Device, std::uint64_t seed)> run;
};
std::vector<CatalogueCheck> check_catalogue();

}  // namespace tessera
