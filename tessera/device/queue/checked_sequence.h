// SPDX-License-Identifier: Apache-2.0
// Recorded work that calls user functions. A replay cannot see changes of their host-side state. Internal.
#pragma once

#include <string>

#include "tessera/base/callback.h"
#include "tessera/device/queue/sequence.h"

namespace tessera {

/// A Sequence that is replayed only after two consecutive recordings were equal. To detect changes of host state, it is
/// sometimes recorded and compared again instead of replayed. The interval between these comparisons starts at
/// `first_interval` replays and doubles after each comparison, up to `most_unchecked`. A change on every call is
/// therefore detected immediately, and any other change within `most_unchecked` replays.
class CheckedSequence {
 public:
  static constexpr std::uint64_t most_unchecked = 64;
  CheckedSequence() = default;
  explicit CheckedSequence(std::uint64_t first_interval) : interval_(first_interval) {}

  bool valid() const { return sequence_.valid(); }
  const Sequence& sequence() const { return sequence_; }
  std::uint64_t unchecked() const { return unchecked_; }  ///< number of replays since the last comparison
  /// Runs the work and returns whether it was replayed. If the work cannot be repeated or differs from the recording,
  /// sets `why` and becomes empty. Throws errors of Sequence::record and of the work. If the work did not run, this
  /// object is unchanged.
  bool run(Queue& queue, const Callback<void()>& work, const SequencePool& pool, std::string& why);
  void replay();

 private:
  Sequence sequence_;
  bool compared_ = false;
  std::uint64_t interval_ = 1, unchecked_ = 0;  ///< number of replays between comparisons, and since the last one
};

}  // namespace tessera
