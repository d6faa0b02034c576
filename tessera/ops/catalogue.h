// SPDX-License-Identifier: Apache-2.0
// Lists the kernels of ops/ in sizes that cover all code paths. Used by `tessera verify`, by the test that compiles
// every kernel, and by the race tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/ir/node.h"

namespace tessera {

/// One variant of a kernel of ops/.
struct CatalogueKernel {
  std::string name;  ///< a unique name, such as "linear_q8_0_vector"
  ir::Function function;
};
/// Returns all kernels, specialised as they would be for this device.
std::vector<CatalogueKernel> kernel_catalogue(Device device);

/// An operation that is checked against plain C++ code in double precision.
struct CatalogueCheck {
  std::string operation, shape;  ///< such as "softmax" and "(65537, 3)"
  /// Runs the check on the device, with data from the seed. Returns the largest error relative to the tolerance, so
  /// results up to 1 pass. An f64 check on a device without f64 returns 0 if the operation is rejected.
  std::function<double(Device, std::uint64_t seed)> run;
};
std::vector<CatalogueCheck> check_catalogue();

}  // namespace tessera
