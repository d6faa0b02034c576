// SPDX-License-Identifier: Apache-2.0
// The states of recurrent layers, which have a fixed size for each text. Internal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

struct LlamaConfig;

/// States of several texts, or of one text at several times. Each of them has a slot.
class RecurrentStates {
 public:
  /// The states of a layer; see ops/recurrent.h. Both are empty for attention layers, and `matrices` also for layers
  /// with only a convolution.
  struct Layer {
    Array convolution;  ///< (slots, taps - 1, channels)
    Array matrices;     ///< (slots, heads, key size, value size)
  };

  /// Has no slots.
  RecurrentStates() = default;
  /// Allocates `slots` slots on the devices of the layers.
  RecurrentStates(const LlamaConfig& config, std::int64_t slots, std::span<const Device> devices);
  /// The states of a layer. Its arrays share memory with the result.
  Layer& layer(std::size_t i) { return layers_[i]; }
  std::int64_t slots() const { return slots_; }
  /// Increases the number of slots; contents are kept. Old and new slots exist together until all are copied. Throws
  /// OutOfMemory; nothing changes in that case.
  void grow(std::int64_t slots);
  /// Copies all states of a slot to another one.
  void copy(std::int64_t from, std::int64_t to);
  std::uint64_t bytes() const;
  std::uint64_t bytes(Device device) const;  ///< size of the part on this device, in bytes
  /// Size of one slot in all layers together, in bytes.
  static std::uint64_t slot_bytes(const LlamaConfig& config);

 private:
  template <class Use>
  void for_each_array(const Use& use);

  std::vector<Layer> layers_;
  std::int64_t slots_ = 0;
};

}  // namespace tessera
