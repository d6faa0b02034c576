// SPDX-License-Identifier: Apache-2.0
// What a trainer keeps for each shape of batches. Internal.
#pragma once

#include <array>

#include "tessera/device/queue/checked_sequence.h"
#include "tessera/nn/trainer_base.h"

namespace tessera {

struct TrainerBase::Slot {
  /// Steps that make an update, and those that only add their gradient.
  struct Kind {
    bool seen = false;  ///< run once: what is made on first need is there
    CheckedSequence sequence;
  };
  std::size_t index = 0;
  std::vector<Array> arrays;  ///< each batch is copied here
  bool filled = false;
  Array loss;                       ///< of the last step of this shape, in its own dtype; of one element
  std::string not_recorded_reason;  ///< why steps of this shape are not recorded; or empty
  std::uint64_t retry_at = 0,
                wait = 8;  ///< the use from which on that is forgotten, or 0; and how many after the next
  std::uint64_t last_use = 0;
  std::array<Kind, 2> kinds;
};

struct TrainerBase::Recordings {
  SequencePool pool;
  const QueueCore* core = nullptr;  ///< of the queue that it is in
};

}  // namespace tessera
