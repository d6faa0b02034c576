// SPDX-License-Identifier: Apache-2.0
// Recorded work that calls functions of the user, whose numbers on the host a replay cannot see.
// Internal.
#pragma once

#include <string>

#include "tessera/device/queue/sequence.h"

namespace tessera {

/// A Sequence that is replayed only once two recordings in a row were the same, and that is recorded again and compared
/// in place of a replay after `first_interval`, twice as many, ... and then each `most_unchecked` replays. So what the
/// work draws, counts or chooses on the host is found at the first replay that would miss it if it changes with every
/// call, and within `most_unchecked` replays, or as many as there were before, if it changes later.
class CheckedSequence {
 public:
  static constexpr std::uint64_t most_unchecked = 64;
  CheckedSequence() = default;
  explicit CheckedSequence(std::uint64_t first_interval) : interval_(first_interval) {}

  bool valid() const { return sequence_.valid(); }
  const Sequence& sequence() const { return sequence_; }
  std::uint64_t unchecked() const { return unchecked_; }  ///< replays since the last comparison
  /// Does the work, and returns whether by a replay. `why` is set if the work cannot be repeated, or differs from what
  /// was recorded: this is empty then. Errors of Sequence::record and of the work, after which this stays as it was if
  /// the work was not done.
  bool run(Queue& queue, const std::function<void()>& work, const SequencePool& pool, std::string& why);
  void replay();

 private:
  Sequence sequence_;
  bool compared_ = false;
  std::uint64_t interval_ = 1, unchecked_ = 0;  ///< replays until the next comparison; since the last one
};

}  // namespace tessera
