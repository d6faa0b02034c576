// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue/checked_sequence.h"

#include <algorithm>

namespace tessera {

bool CheckedSequence::run(Queue& queue, const Callback<void()>& work, const SequencePool& pool, std::string& why) {
  why.clear();
  if (!valid()) {
    sequence_ = Sequence::record_or_run(queue, work, why, pool);
    return false;
  }
  if (compared_ && unchecked_ < interval_) {
    replay();
    return true;
  }
  why = sequence_.record_again(work);
  if (!why.empty()) return false;
  if (compared_) interval_ = std::min(2 * interval_, most_unchecked);
  compared_ = true, unchecked_ = 0;
  return false;
}

void CheckedSequence::replay() {
  sequence_.replay();
  ++unchecked_;
}

}  // namespace tessera
