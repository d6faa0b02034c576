// SPDX-License-Identifier: Apache-2.0
// The state of a random number generator. It is shared with the sequences that record its draws. Internal.
#pragma once

#include <cstdint>

namespace tessera {

struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< number of blocks of four numbers drawn
  friend bool operator==(const RandomStream&, const RandomStream&) = default;
};

/// Indices of the scalar arguments that pass a stream's state to a kernel.
struct RandomArguments {
  std::uint32_t seed_low, seed_high;  ///< u32
  std::uint32_t offset;               ///< u64
};

}  // namespace tessera
