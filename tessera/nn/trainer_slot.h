// SPDX-License-Identifier: Apache-2.0
// A trainer's data for each batch shape. Internal.
#pragma once

#include <array>

#include "tessera/device/queue/checked_sequence.h"
#include "tessera/nn/trainer_base.h"

namespace tessera {

struct TrainerBase::Slot {
  /// There are two kinds of steps: those that end with an update, and those that only accumulate their gradient.
  struct Kind {
    bool seen = false;  ///< has run at least once, so that lazily created objects exist
    CheckedSequence sequence;
  };
  std::size_t index = 0;
  std::vector<Array> arrays;  ///< each batch is copied here
  double weight = 1;          ///< fraction of the batch's samples that this rank processes
  bool filled = false;
  Array loss;                       ///< loss of the last step of this shape: one element, in its own dtype
  std::string not_recorded_reason;  ///< why steps of this shape are not recorded; empty if they are
  std::uint64_t retry_at = 0,
                /// Value of uses_ at which recording is retried, or 0. `wait` is the delay after the next failure.
      wait = 8;
  std::uint64_t last_use = 0;
  std::array<Kind, 2> kinds;
};

struct TrainerBase::Recordings {
  SequencePool pool;
  const QueueCore* core = nullptr;  ///< core of the queue
};

}  // namespace tessera
