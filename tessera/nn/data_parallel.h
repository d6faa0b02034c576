// SPDX-License-Identifier: Apache-2.0
// Data-parallel training in one process: each device has a replica of the model and processes part of each batch.
// Internal.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera::detail {

/// Throws ArgumentError if a device is listed twice, and DeviceError if a device does not exist.
void check_devices(const std::vector<Device>& devices);

/// A range of samples: [begin, begin + size).
struct SampleRange {
  std::int64_t begin = 0, size = 0;
};
/// Returns part `k` of `parts` nearly equal parts. If the number of samples is not a multiple of `parts`, the first
/// parts get one sample more.
SampleRange part_of_samples(std::int64_t samples, std::int64_t parts, std::int64_t k);
/// Returns the number of samples of a batch: the extent of axis 0 of its arrays, except those without dimensions.
/// Throws ShapeError if the extents differ or if no array has a dimension to split.
std::int64_t samples_of(std::span<const Array> batch);

/// The samples that one device processes.
struct BatchPart {
  std::vector<Array> arrays;  ///< arrays on this device
  double weight = 1;          ///< fraction of the batch's samples
};
/// Splits arrays along axis 0 into one part per device (part_of_samples). If there are fewer samples than devices, the
/// last devices get none. Arrays without dimensions are copied to all devices. Throws the errors of samples_of.
std::vector<BatchPart> split_batch(std::span<const Array> batch, const std::vector<Device>& devices);

/// Returns 0 as a function of all trained arrays, for a process without samples: all its gradients are 0.
Array zero_loss(const ConstParts& parts);

/// Copies the model's arrays to a replica.
class ReplicaCopies {
 public:
  /// Both models must have the same packed layout. Skips arrays that were not written since the last call.
  void copy(const ConstParts& from, const Parts& to);

 private:
  std::vector<std::uint64_t> writes_;
};

/// Sums the devices' arrays in a fixed tree: 0 + 1, 2 + 3, then 0 + 2, and so on. Each sum is computed on the device of
/// its first operand. The final sums are written to the memory of row 0.
void tree_reduce(std::vector<std::vector<Array>>& rows);

}  // namespace tessera::detail
