// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/decoder.h"

#include <array>

#include "tessera/base/config.h"
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
  // The last four numbers are the ranges of recurrent layers (ops/recurrent.h).
  const std::array<std::int32_t, 6> now = {
      token, static_cast<std::int32_t>(cache_.length_), 0, 1, cache_.slot_, cache_.next_slot()};
  cache_.begin_step();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Llama::Part& layers = model_.parts_[i];
    Part& part = parts_[i];
    Queue& queue = current_queue(layers.device);
    if (!part.inputs) part.inputs = Array::empty({6}, DType::i32, layers.device);
    if (in_memory) {
      queue.copy(part.inputs->slice(0, 0, 1).view_for_writing(), in_memory->view());
      queue.upload(part.inputs->slice(0, 1, 6).view_for_writing(), &now[1]);
    } else {
      queue.upload(part.inputs->view_for_writing(), now.data());
    }
    if (i > 0) {  // copies between devices are not recorded
      const Array before = parts_[i - 1].result.to(layers.device);
      if (!part.x) part.x = Array::empty(before.shape(), before.dtype(), layers.device);
      part.x->assign(before), part.x->eval();
    }
    const auto work = [&] {
      const Llama::Past past(Position(part.inputs->slice(0, 1, 2)), cache_,
                             part.inputs->slice(0, 2, 6).reshape({1, 4}));
      part.result = model_.run_part(layers, i == 0 ? part.inputs->slice(0, 0, 1) : *part.x, past, {}).eval();
    };
    // Keys are reallocated when the cache grows, and states only when it is replaced.
    const auto attends = [&](std::size_t l) { return model_.config_.kind_of(l) == LayerKind::attention; };
    std::size_t l = layers.begin;
    while (l + 1 < layers.end && !attends(l)) ++l;
    const Array& first = attends(l) ? cache_.keys_[l] : cache_.states_.layer(l).convolution;
    part.recorded.run(queue, reinterpret_cast<std::uintptr_t>(first.view().storage.get()), recorded_, work);
  }
  cache_.append(1);
  return parts_.back().result;
}

}  // namespace tessera
