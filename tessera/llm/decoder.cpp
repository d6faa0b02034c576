// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/decoder.h"

#include <array>

#include <fmt/format.h>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/llm/past.h"

namespace tessera {

// A recorded step can be replayed at any position, because the position is read from `inputs`. The attention kernel
// loops over all previous positions, and grid sizes depend only on the cache's capacity.

Decoder::Decoder(const Llama& model, KeyValueCache& cache, bool recorded)
    : model_(model),
      cache_(cache),
      recorded_(recorded && config::flag("TESSERA_SEQUENCES", true)),
      parts_(model.parts_.size()) {}

const Array& Decoder::step(std::int32_t token) {
  if (!recorded_) return parts_.back().result = model_.forward(std::span(&token, 1), cache_).eval();
  model_.check_tokens(std::span(&token, 1), cache_);
  return run_parts(token, nullptr);
}

const Array& Decoder::step(const Array& token) {
  const std::int32_t known = 0;
  model_.check_tokens(std::span(&known, 1), cache_);
  return run_parts(known, &token);
}

const Array& Decoder::run_parts(std::int32_t token, const Array* in_memory) {
  const std::array<std::int32_t, 2> now = {token, static_cast<std::int32_t>(cache_.length_)};
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Llama::Part& layers = model_.parts_[i];
    Part& part = parts_[i];
    Queue& queue = current_queue(layers.device);
    if (!part.inputs) part.inputs = Array::empty({2}, DType::i32, layers.device);
    if (in_memory) {
      queue.copy(part.inputs->slice(0, 0, 1).view_for_writing(), in_memory->view());
      queue.upload(part.inputs->slice(0, 1, 2).view_for_writing(), &now[1]);
    } else {
      queue.upload(part.inputs->view_for_writing(), now.data());
    }
    if (i > 0) {  // copies between devices are not recorded
      const Array before = parts_[i - 1].result.to(layers.device);
      if (!part.x) part.x = Array::empty(before.shape(), before.dtype(), layers.device);
      part.x->assign(before), part.x->eval();
    }
    const auto work = [&] {
      part.result = model_
                        .run_part(layers, i == 0 ? part.inputs->slice(0, 0, 1) : *part.x,
                                  Llama::Past(Position(part.inputs->slice(0, 1, 2)), cache_), {})
                        .eval();
    };
    const Storage* const memory = cache_.keys_[layers.begin].view().storage.get();
    if (part.recorded_on != memory || part.recorded_in != &queue.core())
      part.sequence = CheckedSequence(CheckedSequence::most_unchecked);
    part.recorded_on = memory, part.recorded_in = &queue.core();
    if (warm_ && recorded_)
      run_recorded(part, queue, work);
    else
      work();
  }
  warm_ = true;
  ++cache_.length_;
  return parts_.back().result;
}

void Decoder::run_recorded(Part& part, Queue& queue, const Callback<void()>& work) {
  const auto without = [&](const std::string& why) {
    logging::warn(
        fmt::format("{}: steps are not recorded, because recording failed: {}", to_string(part.inputs->device()), why));
    recorded_ = false;
  };
  const auto failed = [&](const Error& e) {
    without(e.what());
    work();  // repeating the work is safe: it writes the same values to the same position of the cache
  };
  const bool known = part.sequence.valid();
  try {
    std::string why;
    part.sequence.run(queue, work, SequencePool(), why);
    if (!why.empty()) without(why);
  } catch (const KernelError& e) {
    failed(e);
  } catch (const OutOfMemory& e) {
    // Verifying the recording needs more memory than replaying it.
    if (known && part.sequence.valid()) return part.sequence.replay();
    failed(e);
  } catch (const ArgumentError& e) {
    failed(e);
  }
}

}  // namespace tessera
