// SPDX-License-Identifier: Apache-2.0
// Every kernel of ops/ with sizes that exercise it: what `tessera verify`, the compile gate and the race tests walk
// over.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/ir/node.h"

namespace tessera {

/// A kernel of ops/ in one of its forms.
struct CatalogueKernel {
  std::string name;  ///< unique: "linear_q8_0_vector"
  ir::Function function;
};
/// All of them, as this device would use them.
std::vector<CatalogueKernel> kernel_catalogue(Device device);

/// An operation with a check against plain double-precision C++.
struct CatalogueCheck {
  std::string operation, shape;  ///< "softmax", "(65537, 3)"
  /// Runs on the device with data from the seed; the largest error relative to `tolerance` (1 is the limit). A check of
  /// f64 on a device without it: 0 if that is refused.
  std::function<double(Device, std::uint64_t seed)> run;
};
std::vector<CatalogueCheck> check_catalogue();

}  // namespace tessera
