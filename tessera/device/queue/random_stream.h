// SPDX-License-Identifier: Apache-2.0
// The state of a random number generator, shared with the sequences that record its draws. Internal.
#pragma once

#include <cstdint>

namespace tessera {

struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< blocks of four numbers drawn
  friend bool operator==(const RandomStream&, const RandomStream&) = default;
};

/// The scalars of a kernel that draws from a stream, by their places among its arguments.
struct RandomArguments {
  std::uint32_t seed_low, seed_high;  ///< u32
  std::uint32_t offset;               ///< u64
};

}  // namespace tessera
