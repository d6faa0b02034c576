// SPDX-License-Identifier: Apache-2.0
// A step of a model that is recorded and replayed. Internal.
#pragma once

#include <cstdint>

#include "tessera/base/callback.h"
#include "tessera/device/queue/checked_sequence.h"
#include "tessera/llm/llama.h"

namespace tessera {

/// Consecutive layers on one device. The first call runs them, because initialisation is lazy; the second one is
/// recorded, the third one verifies the recording, and later ones replay it.
class RecordedStep {
 public:
  /// Runs the work. It must be the same in all calls, and read what differs from arrays whose memory stays. `memory`
  /// identifies the memory of the cache that it writes to. If it cannot be recorded, `enabled` becomes false, with a
  /// warning.
  void run(Queue& queue, std::uint64_t memory, bool& enabled, const Callback<void()>& work);
  /// Drops the recording, and with it references to memory. The next call records again.
  void reset() { sequence_ = CheckedSequence(CheckedSequence::most_unchecked); }
  /// Invalid before the second call, and if steps are not recorded.
  const Sequence& sequence() const { return sequence_.sequence(); }

 private:
  std::uint64_t memory_ = 0;          ///< which the sequence writes to
  const QueueCore* queue_ = nullptr;  ///< on which the sequence was recorded
  bool warm_ = false;
  CheckedSequence sequence_{CheckedSequence::most_unchecked};
};

}  // namespace tessera
