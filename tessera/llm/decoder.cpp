// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/decoder.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {

// A recorded step can be replayed at any position, because the position is read from `inputs_`. The attention kernel
// loops over all previous positions, and grid sizes depend only on the cache's capacity.

Decoder::Decoder(const Llama& model, KeyValueCache& cache, bool recorded)
    : model_(model), cache_(cache), recorded_(recorded && config::flag("TESSERA_SEQUENCES", true)) {
  const std::vector<Device>& devices = model.layer_devices();
  recorded_ = recorded_ && std::ranges::all_of(devices, [&](Device d) { return d == devices.front(); });
}

const Array& Decoder::step(std::int32_t token) {
  if (!recorded_) return logits_ = model_.forward(std::span(&token, 1), cache_).eval();
  model_.check_tokens(std::span(&token, 1), cache_);
  if (!inputs_) inputs_ = Array::empty({2}, DType::i32, model_.device());
  const std::array<std::int32_t, 2> now = {token, static_cast<std::int32_t>(cache_.length_)};
  Queue& queue = current_queue(model_.device());
  queue.upload(inputs_->view_for_writing(), now.data());
  const auto work = [&] {
    logits_ = model_.run(inputs_->slice(0, 0, 1), Position(inputs_->slice(0, 1, 2)), cache_, false).eval();
  };
  const Storage* const memory = cache_.keys_.front().view().storage.get();
  if (recorded_on_ != memory || recorded_in_ != &queue.core())
    sequence_ = CheckedSequence(CheckedSequence::most_unchecked);
  recorded_on_ = memory, recorded_in_ = &queue.core();
  if (warm_)
    run_recorded(queue, work);
  else
    work();
  warm_ = true;
  ++cache_.length_;
  return logits_;
}

void Decoder::run_recorded(Queue& queue, const Callback<void()>& work) {
  const auto without = [&](const std::string& why) {
    logging::warn(
        fmt::format("{}: steps are not recorded, because recording failed: {}", to_string(model_.device()), why));
    recorded_ = false;
  };
  const auto failed = [&](const Error& e) {
    without(e.what());
    work();  // repeating the step is safe: it writes the same values to the same position of the cache
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
