// SPDX-License-Identifier: Apache-2.0
// A batch over several devices of a process: each has a replica of the model and a part of the samples. Internal.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera::detail {

/// ArgumentError if one is named twice; DeviceError if one does not exist.
void check_devices(const std::vector<Device>& devices);

/// One device's samples.
struct BatchPart {
  std::vector<Array> arrays;  ///< on the device
  double weight = 1;          ///< its share of the samples
};
/// Splits along the first extent, which all arrays with dimensions have in common: the first devices get one more where
/// they do not divide it, and the last none where there are fewer samples than devices. Arrays without dimensions go to
/// all. ShapeError if extents differ, or nothing can be split.
std::vector<BatchPart> split_batch(std::span<const Array> batch, const std::vector<Device>& devices);

/// Keeps the arrays of a replica as those of the model are.
class ReplicaCopies {
 public:
  /// Both are packed alike. What was not written since the last time is not copied.
  void copy(const ConstParts& from, const Parts& to);

 private:
  std::vector<std::uint64_t> writes_;
};

/// Adds up what each device has, in a fixed tree: 0 + 1, 2 + 3, then 0 + 2, and so on, each sum on the first's device.
/// The sums are in place of the first's arrays, whose memory they are written to.
void tree_reduce(std::vector<std::vector<Array>>& rows);

}  // namespace tessera::detail
