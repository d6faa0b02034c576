// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/recorded_step.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {

void RecordedStep::run(Queue& queue, std::uint64_t memory, bool& enabled, const Callback<void()>& work) {
  if (memory_ != memory || queue_ != &queue.core()) reset();
  memory_ = memory, queue_ = &queue.core();
  if (!warm_ || !enabled) {
    work();
    warm_ = true;
    return;
  }
  const auto without = [&](const std::string& why) {
    logging::warn(
        fmt::format("{}: steps are not recorded, because recording failed: {}", to_string(queue.device()), why));
    enabled = false;
  };
  const auto failed = [&](const Error& e) {
    without(e.what());
    // Repeating the work is safe: it writes the same values to the same position and slots of the cache.
    work();
  };
  const bool known = sequence_.valid();
  try {
    std::string why;
    sequence_.run(queue, work, SequencePool(), why);
    if (!why.empty()) without(why);
  } catch (const KernelError& e) {
    failed(e);
  } catch (const OutOfMemory& e) {
    // Verifying the recording needs more memory than replaying it.
    if (known && sequence_.valid()) return sequence_.replay();
    failed(e);
  } catch (const ArgumentError& e) {
    failed(e);
  }
}

}  // namespace tessera
