// SPDX-License-Identifier: Apache-2.0
// Data-parallel training in one process: each device has a replica of the model and a part of each batch. Internal.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera::detail {

/// Throws ArgumentError if a device is named twice; DeviceError if one does not exist.
void check_devices(const std::vector<Device>& devices);

/// One device's samples.
struct BatchPart {
  std::vector<Array> arrays;  ///< on the device
  double weight = 1;          ///< its fraction of the samples
};
/// Splits arrays along axis 0. If the devices do not divide the extent, the first ones get one sample more; the last
/// ones get none if there are fewer samples than devices. Arrays without dimensions are given to all devices. Throws
/// ShapeError if extents differ, or if nothing can be split.
std::vector<BatchPart> split_batch(std::span<const Array> batch, const std::vector<Device>& devices);

/// Keeps a replica's arrays equal to the model's.
class ReplicaCopies {
 public:
  /// Both models are packed alike. Arrays that were not written since the last call are not copied.
  void copy(const ConstParts& from, const Parts& to);

 private:
  std::vector<std::uint64_t> writes_;
};

/// Sums the devices' arrays in a fixed tree: 0 + 1, 2 + 3, then 0 + 2, and so on, each sum on the first operand's
/// device. The sums are written to the memory of row 0 and replace its arrays.
void tree_reduce(std::vector<std::vector<Array>>& rows);

}  // namespace tessera::detail
