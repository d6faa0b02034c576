// SPDX-License-Identifier: Apache-2.0
// A trainer's data for each batch shape. Internal.
#pragma once

#include <array>

#include "tessera/device/queue/checked_sequence.h"
#include "tessera/nn/trainer_base.h"

namespace tessera {

struct TrainerBase::Slot {
  /// Steps that make an update, and steps that only accumulate their gradient.
  struct Kind {
    bool seen = false;  ///< run once: lazily created objects exist
    CheckedSequence sequence;
  };
  std::size_t index = 0;
  std::vector<Array> arrays;  ///< each batch is copied here
  bool filled = false;
  Array loss;                       ///< of the last step of this shape, in its own dtype; one element
  std::string not_recorded_reason;  ///< why steps of this shape are not recorded; or empty
  std::uint64_t retry_at = 0,
                /// use count at which recording is retried, or 0; and how long to wait after the next failure
      wait = 8;
  std::uint64_t last_use = 0;
  std::array<Kind, 2> kinds;
};

struct TrainerBase::Recordings {
  SequencePool pool;
  const QueueCore* core = nullptr;  ///< of its queue
};

}  // namespace tessera
