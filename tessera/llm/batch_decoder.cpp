// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/batch_decoder.h"

#include <algorithm>
#include <array>
#include <bit>

#include "tessera/base/config.h"
#include "tessera/device/device.h"
#include "tessera/llm/past.h"

namespace tessera {

BatchDecoder::BatchDecoder(const Llama& model, PagedCache& cache)
    : model_(model),
      cache_(cache),
      width_((cache.context() + ops::page_positions - 1) / ops::page_positions),
      recorded_(config::flag("TESSERA_SEQUENCES", true)),
      pads_(!model.config_.is_recurrent() && std::ranges::none_of(model.parts_, [](const Llama::Part& part) {
        return is_built_in(part.device.backend) || device_info(part.device).kind == DeviceKind::cpu;
      })) {
  cache_.before_growth_ = [this] {
    for (auto& [rows, parts] : parts_)
      for (Part& part : parts) part.recorded.reset();
  };
}
BatchDecoder::~BatchDecoder() { cache_.before_growth_ = {}; }

bool BatchDecoder::takes(std::span<const SequencePiece> pieces) const {
  if (!recorded_ || pieces.empty() || pieces.size() > most_rows || (!pads_ && !std::has_single_bit(pieces.size())))
    return false;
  // Experts of many tokens are chosen on the host; see ops/experts.h.
  const LlamaConfig& c = model_.config_;
  if (c.experts > 0 && static_cast<std::int64_t>(std::bit_ceil(pieces.size())) * c.used_experts >= 2 * c.experts)
    return false;
  return std::ranges::all_of(pieces, [&](const SequencePiece& p) {
    return p.tokens.size() == 1 && p.logits && p.states == nullptr && p.sequence->pages() <= width_;
  });
}

Array BatchDecoder::step(std::span<const SequencePiece> pieces) {
  model_.check_pieces(pieces, cache_);
  const auto rows = static_cast<std::int64_t>(std::bit_ceil(pieces.size()));
  std::vector<std::int32_t> now(static_cast<std::size_t>(rows * (7 + width_)), PagedCache::spare_page());
  for (std::size_t i = 0, n = static_cast<std::size_t>(rows); i < n; ++i) {
    now[2 * n + i] = static_cast<std::int32_t>(i);
    const bool used = i < pieces.size();
    now[i] = used ? pieces[i].tokens[0] : 0;
    now[n + i] = used ? static_cast<std::int32_t>(pieces[i].sequence->length()) : 0;
    if (!used) continue;
    const auto [before, after] = PagedCache::slots_of(*pieces[i].sequence);
    std::ranges::copy(std::array{static_cast<std::int32_t>(i), 1, before, after},
                      now.begin() + static_cast<std::ptrdiff_t>(3 * n + 4 * i));
    std::ranges::copy(PagedCache::pages_of(*pieces[i].sequence),
                      now.begin() + static_cast<std::ptrdiff_t>(7 * n) + static_cast<std::ptrdiff_t>(i) * width_);
  }
  std::vector<Part>& parts = parts_[rows];
  parts.resize(model_.parts_.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Llama::Part& layers = model_.parts_[i];
    Part& part = parts[i];
    Queue& queue = current_queue(layers.device);
    if (!part.inputs) part.inputs = Array::empty({std::ssize(now)}, DType::i32, layers.device);
    queue.upload(part.inputs->view_for_writing(), now.data());
    if (i > 0) {  // copies between devices are not recorded
      const Array before = parts[i - 1].result.to(layers.device);
      if (!part.x) part.x = Array::empty(before.shape(), before.dtype(), layers.device);
      part.x->assign(before), part.x->eval();
    }
    part.recorded.run(queue, 0, recorded_, [&] {
      const auto numbers = [&](std::int64_t from, std::int64_t to) {
        return part.inputs->slice(0, from * rows, to * rows);
      };
      const ops::PagedTokens tokens{numbers(7, 7 + width_).reshape({rows, width_}), numbers(2, 3), numbers(1, 2), rows};
      const Llama::Past past(tokens, cache_, numbers(3, 7).reshape({rows, 4}));
      part.result = model_.run_part(layers, i == 0 ? numbers(0, 1) : *part.x, past, {.all = true}).eval();
    });
  }
  for (const SequencePiece& p : pieces) cache_.append(*p.sequence, p.tokens);
  return parts.back().result.slice(0, 0, std::ssize(pieces));
}

std::size_t BatchDecoder::recordings() const {
  std::size_t n = 0;
  for (const auto& [rows, parts] : parts_)
    n += static_cast<std::size_t>(
        std::ranges::count_if(parts, [](const Part& p) { return p.recorded.sequence().valid(); }));
  return n;
}

}  // namespace tessera
