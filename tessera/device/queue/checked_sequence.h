// SPDX-License-Identifier: Apache-2.0
// Recorded work that calls user functions, whose host-side state a replay cannot see. Internal.
#pragma once

#include <string>

#include "tessera/base/callback.h"
#include "tessera/device/queue/sequence.h"

namespace tessera {

/// A Sequence that is replayed only after two consecutive recordings were equal. It is recorded again and compared,
/// instead of replayed, after `first_interval` replays, then twice as many, and so on up to every `most_unchecked`. A
/// change of host state is therefore detected immediately if it happens on every call, and otherwise within
/// `most_unchecked` replays or as many as there were before.
class CheckedSequence {
 public:
  static constexpr std::uint64_t most_unchecked = 64;
  CheckedSequence() = default;
  explicit CheckedSequence(std::uint64_t first_interval) : interval_(first_interval) {}

  bool valid() const { return sequence_.valid(); }
  const Sequence& sequence() const { return sequence_; }
  std::uint64_t unchecked() const { return unchecked_; }  ///< number of replays since the last comparison
  /// Runs the work and returns whether it was replayed. Sets `why`, and becomes empty, if the work cannot be repeated
  /// or differs from the recording. Throws errors of Sequence::record and of the work; if the work was not done, this
  /// object is unchanged.
  bool run(Queue& queue, const Callback<void()>& work, const SequencePool& pool, std::string& why);
  void replay();

 private:
  Sequence sequence_;
  bool compared_ = false;
  std::uint64_t interval_ = 1, unchecked_ = 0;  ///< number of replays until the next comparison, and since the last one
};

}  // namespace tessera
